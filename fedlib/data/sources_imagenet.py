"""ImageNet at 32 x 32 and its shifted test sets, in the 86 classes common to ImageNet-A and -R (FedTHE, section 6, appendix D).

Three numberings meet here. Labels are places in `INDICES`, whose entries are places in the sorted list of the 1,000 WordNet ids; the
32 x 32 batches number classes 1..1000 by `map_clsloc.txt`; ImageNet-V2's folders are named by the place in the sorted list.
"""

from pathlib import Path

import numpy as np

from fedlib.data.about import described
from fedlib.data.dataset import Dataset
from fedlib.data.files import headers, image_files, not_found, read_images

# fmt: off
INDICES = (
    6, 11, 13, 22, 23, 39, 47, 71, 76, 79, 90, 94, 96, 97, 99, 105, 107, 113, 125, 130, 132, 144, 150, 151, 207, 234, 235, 254, 277, 291,
    301, 308, 309, 310, 311, 314, 315, 319, 323, 327, 330, 334, 335, 347, 361, 372, 397, 401, 407, 425, 428, 430, 437, 457, 462, 470, 472,
    483, 579, 609, 658, 701, 763, 768, 774, 776, 779, 780, 815, 820, 833, 847, 907, 932, 933, 934, 937, 943, 945, 947, 951, 954, 957, 980,
    981, 988,
)
# fmt: on
BATCHES = "Imagenet32_train_npz"


@described("imagenet32", printed="imagenet32", natural="imagenet_r")
def imagenet32(root: Path) -> Dataset:
    """Training images of the 86 classes from the official root/Imagenet32_train_npz/train_data_batch_1.npz .. 10; no test part."""
    number, ids = _classes(root, "imagenet32")
    paths = sorted((root / BATCHES).glob("train_data_batch_*.npz"), key=lambda path: int(path.stem.rsplit("_", 1)[1]))
    if not paths:
        raise not_found(
            "imagenet32",
            root,
            f"{BATCHES}/train_data_batch_*.npz",
            "Get Imagenet32_train_npz.zip from https://image-net.org/download-images.",
        )
    label_of = np.full(1001, -1)
    label_of[[number[wnid] for wnid in ids]] = np.arange(len(ids))
    images, labels = [], []
    for path in paths:
        headers(path)
        with np.load(path, allow_pickle=False) as batch:
            label = label_of[batch["labels"].reshape(-1)]
            images.append(batch["data"][label >= 0].reshape(-1, 3, 32, 32))
            labels.append(label[label >= 0])
    return Dataset("imagenet32", np.concatenate(images), np.concatenate(labels), ids)


@described("imagenet_a")
def imagenet_a(root: Path) -> Dataset:
    """ImageNet-A, resized to 32 x 32 without crop; root/imagenet-a/<WordNet id>/."""
    return _folders("imagenet_a", root, "imagenet-a", _classes(root, "imagenet_a")[1], "https://github.com/hendrycks/natural-adv-examples")


@described("imagenet_r")
def imagenet_r(root: Path) -> Dataset:
    """ImageNet-R, resized to 32 x 32 without crop; root/imagenet-r/<WordNet id>/."""
    return _folders("imagenet_r", root, "imagenet-r", _classes(root, "imagenet_r")[1], "https://github.com/hendrycks/imagenet-r")


@described("imagenet_v2")
def imagenet_v2(root: Path) -> Dataset:
    """ImageNet-V2, matched frequency, resized to 32 x 32 without crop; folders 0 .. 999, read by number, not by alphabet."""
    folder = "imagenetv2-matched-frequency-format-val"
    return _folders(
        "imagenet_v2",
        root,
        folder,
        _classes(root, "imagenet_v2")[1],
        "https://github.com/modestyachts/ImageNetV2",
        [str(i) for i in INDICES],
    )


def _classes(root: Path, name: str) -> tuple[dict[str, int], tuple[str, ...]]:
    """The batches' class number of each WordNet id, and the ids of the 86 classes in label order."""
    path = root / "map_clsloc.txt"
    if not path.is_file():
        raise not_found(
            name, root, "map_clsloc.txt", "It is in https://github.com/PatrykChrabaszcz/Imagenet32_Scripts; the shifted sets need it too."
        )
    number = {wnid: int(n) for wnid, n, *_ in (line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())}
    if len(number) != 1000:
        raise ValueError(f"{path} lists {len(number)} classes, not 1000")
    ordered = sorted(number)
    return number, tuple(ordered[i] for i in INDICES)


def _folders(name: str, root: Path, directory: str, ids: tuple[str, ...], page: str, folders: list[str] | None = None) -> Dataset:
    """One folder per class of ``ids``, named by ``folders`` (default: the ids). A class may lack a folder."""
    base = root / directory
    found = [image_files(base / folder) for folder in folders or ids]
    if not any(found):
        raise not_found(name, root, f"{directory}/<class>/*.jpg", f"Get it from {page}.")
    labels = np.repeat(np.arange(len(ids)), [len(paths) for paths in found])
    return Dataset(name, read_images([path for paths in found for path in paths], base, 32), labels, ids)
