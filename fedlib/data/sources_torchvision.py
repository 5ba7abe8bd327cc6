"""CIFAR-10/100, MNIST, Fashion-MNIST, SVHN and USPS through torchvision, in its folder layout.

CIFAR's official batches are pickles: torchvision opens them only after their MD5 sums have been checked. Nothing is downloaded unless
``download`` is set. The official training part comes first, then the test part.
"""

import hashlib
from pathlib import Path

import numpy as np

from fedlib.data.about import described
from fedlib.data.dataset import Dataset
from fedlib.data.files import joined, nchw, not_found, read_npz

DIGITS = tuple("0123456789")
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SUPERCLASSES = {
    "aquatic_mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food_containers": "bottle bowl can cup plate",
    "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper",
    "household_electrical_devices": "clock keyboard lamp telephone television",
    "household_furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large_carnivores": "bear leopard lion tiger wolf",
    "large_man-made_outdoor_things": "bridge castle house road skyscraper",
    "large_natural_outdoor_scenes": "cloud forest mountain plain sea",
    "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium_mammals": "fox porcupine possum raccoon skunk",
    "non-insect_invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small_mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles_1": "bicycle bus motorcycle pickup_truck train",
    "vehicles_2": "lawn_mower rocket streetcar tank tractor",
}

# FedTHE's code (its paper states 0.5), UPFL's and ATP's.
CIFAR10_SCALE = {
    "fedthe": ((0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)),
    "upfl": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "atp": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
}
CIFAR100_SCALE = {
    "fedthe": ((0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762)),
    "upfl": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "atp": ((0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762)),
}
# Of the first hundred test images, as `load` returns them, of the copy, which is kept in a file of the same layout too: sha256.
JPEG_COPY = "bd0ea7ef8490ca7ac8a114a69f480c91dd065220700297636cfdb6b1e87b8e96"
CIFAR = {"views": "cifar", "natural": "cifar10_1", "printed": "cifar10", "statistics": CIFAR10_SCALE}
# Characters lose their class in a mirror; clothes are treated alike, as in the published code.
CHARACTERS = {"flips": False, "views": "digits"}
MNIST_SCALE = {"upfl": ((0.1307,), (0.3081,))}


@described("cifar10", **CIFAR)
def cifar10(root: Path, download: bool = False) -> Dataset:
    """CIFAR-10, 50,000 + 10,000 of 3 x 32 x 32, from root/cifar10.npz if there is one, else from cifar-10-batches-py/.

    Raises ValueError where that file holds the public JPEG copy, so that no result from it is called CIFAR-10's."""
    if (root / "cifar10.npz").is_file():
        parts, _ = read_npz(root / "cifar10.npz", (32, 32, 3))
        images, _ = parts[1]
        if hashlib.sha256(images[:100].tobytes()).hexdigest() == JPEG_COPY:
            raise ValueError(f"{root / 'cifar10.npz'} holds CIFAR-10's JPEG copy, not the official images: its name is cifar10_jpeg")
        return joined("cifar10", parts, CIFAR10)
    parts, classes = _parts("CIFAR10", "cifar10", root, download, "cifar10.npz or cifar-10-batches-py/ with intact batches")
    return joined("cifar10", parts, classes)


@described("cifar100", printed="cifar100", views="cifar", statistics=CIFAR100_SCALE)
def cifar100(root: Path, download: bool = False) -> Dataset:
    """CIFAR-100, 50,000 + 10,000 of 3 x 32 x 32; groups are the 20 superclasses."""
    parts, classes = _parts("CIFAR100", "cifar100", root, download, "cifar-100-python/ with intact files")
    superclass = {fine: coarse for coarse, members in enumerate(SUPERCLASSES.values()) for fine in members.split()}
    of_class = np.array([superclass[fine] for fine in classes])
    groups = of_class[np.concatenate([labels for _, labels in parts])]
    return joined("cifar100", parts, classes, groups=groups, group_names=tuple(SUPERCLASSES))


@described("mnist", printed="mnist", statistics=MNIST_SCALE, **CHARACTERS)
def mnist(root: Path, download: bool = False) -> Dataset:
    """MNIST, 60,000 + 10,000 of 1 x 28 x 28."""
    parts, _ = _parts("MNIST", "mnist", root, download, "MNIST/raw/*-ubyte")
    return joined("mnist", parts, DIGITS)


@described("fashion_mnist", printed="fashion_mnist", flips=False)
def fashion_mnist(root: Path, download: bool = False) -> Dataset:
    """Fashion-MNIST, 60,000 + 10,000 of 1 x 28 x 28."""
    parts, classes = _parts("FashionMNIST", "fashion_mnist", root, download, "FashionMNIST/raw/*-ubyte")
    return joined("fashion_mnist", parts, classes)


@described("svhn", **CHARACTERS)
def svhn(root: Path, download: bool = False) -> Dataset:
    """SVHN's cropped digits, 73,257 + 26,032 of 3 x 32 x 32 (without the extra part)."""
    parts, _ = _parts("SVHN", "svhn", root, download, "intact train_32x32.mat and test_32x32.mat", ({"split": "train"}, {"split": "test"}))
    return joined("svhn", parts, DIGITS)


@described("usps", **CHARACTERS)
def usps(root: Path, download: bool = False) -> Dataset:
    """USPS, 7,291 + 2,007 of 1 x 16 x 16."""
    parts, _ = _parts("USPS", "usps", root, download, "usps.bz2 and usps.t.bz2")
    return joined("usps", parts, DIGITS)


def _parts(
    kind: str, name: str, root: Path, download: bool, layout: str, splits: tuple[dict, dict] = ({"train": True}, {"train": False})
) -> tuple[list[tuple[np.ndarray, np.ndarray]], tuple[str, ...]]:
    """(images, labels) of the training and the test part as torchvision's class ``kind`` reads them, and its class names."""
    from torchvision import datasets  # doubles the import time of the package, and most runs never need it

    reader = getattr(datasets, kind)
    try:
        opened = [reader(str(root), **split, download=download) for split in splits]
    except (RuntimeError, FileNotFoundError) as error:
        raise not_found(name, root, layout, f"Get it with fedlib.load({name!r}, {str(root.resolve())!r}, download=True).") from error
    parts = []
    for part in opened:
        images, labels = np.asarray(part.data), np.asarray(getattr(part, "targets", getattr(part, "labels", None)), dtype=np.int64)
        parts.append((images if kind == "SVHN" else nchw(images), labels))
    return parts, tuple(getattr(opened[0], "classes", ()))
