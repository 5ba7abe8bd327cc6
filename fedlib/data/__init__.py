"""Data sets by name: `load("digits")`, `load("cifar10", root="data")`, `load("some/file.npz")`, `load("some/folder")`.

A new data set takes one loader function with its description (`described`) and one line in a table below.
"""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from fedlib.data import digits, own, sources, sources_folders, sources_imagenet, sources_torchvision
from fedlib.data.about import About, is_own, recorded
from fedlib.data.dataset import Dataset
from fedlib.data.files import check_npz, headers
from fedlib.tools.files import data_folder
from fedlib.tools.names import check_name

__all__ = [
    "DOWNLOADABLE",
    "EMBEDDED",
    "FILES",
    "About",
    "Dataset",
    "about",
    "check_files",
    "check_set",
    "counts",
    "is_own",
    "known",
    "load",
    "named",
    "recorded",
    "shown",
    "stamps",
]

EMBEDDED = {"digits": digits.digits, "digits_natural": digits.digits_natural, "digits5": digits.digits5}
DOWNLOADABLE = {
    "cifar10": sources_torchvision.cifar10,
    "cifar100": sources_torchvision.cifar100,
    "mnist": sources_torchvision.mnist,
    "fashion_mnist": sources_torchvision.fashion_mnist,
    "svhn": sources_torchvision.svhn,
    "usps": sources_torchvision.usps,
}
FILES = {
    "cifar10_jpeg": sources_folders.cifar10_jpeg,
    "cifar10_1": sources.cifar10_1,
    "mnist_5k": sources.mnist_5k,
    "cifar10_c": sources.cifar10_c,
    "femnist": sources.femnist,
    "digits5_fedbn": sources_folders.digits5_fedbn,
    "pacs": sources_folders.pacs,
    "officehome": sources_folders.officehome,
    "office10": sources_folders.office10,
    "domainnet": sources_folders.domainnet,
    "imagenet32": sources_imagenet.imagenet32,
    "imagenet_a": sources_imagenet.imagenet_a,
    "imagenet_r": sources_imagenet.imagenet_r,
    "imagenet_v2": sources_imagenet.imagenet_v2,
}


def load(name: str, root: str | Path | None = None, download: bool = False, **options) -> Dataset:
    """The data set ``name`` of the tables above, or the images in the `.npz` file or folder at the path ``name``
    (``train|test/<class>/``, ``<domain>/<class>/`` or ``<class>/``), whole in memory.

    root: folder of the data files; default: environment variable FEDLIB_DATA, else ``data/``. download: fetch the set if it is absent
    (those of `DOWNLOADABLE` only). options: the loader's own, such as ``size`` of `pacs` or ``kind`` and ``severity`` of `cifar10_c`.

    Raises ValueError for an unknown name or damaged files, FileNotFoundError (folder, official file name, where to get it) for absent ones.

    >>> load("digits").images.shape
    (1797, 1, 16, 16)
    """
    if path := _own_path(name):
        return own.load_own(path, **options)
    check_name(name, [*EMBEDDED, *DOWNLOADABLE, *FILES], "data set")
    if name in EMBEDDED:
        return EMBEDDED[name](**options)
    root = data_folder(root)
    if name in DOWNLOADABLE:
        return DOWNLOADABLE[name](root, download=download, **options)
    return FILES[name](root, **options)


def known(name: str) -> bool:
    return name in EMBEDDED or name in DOWNLOADABLE or name in FILES


def _own_path(name: str) -> Path | None:
    """Where a user's images are, if ``name`` says so and is no data set's."""
    return Path(name).expanduser() if not known(name) and own.is_path(name) else None


def about(name: str) -> About:
    """What the data set ``name``, as for `load`, says of itself. Of a user's images, the training part is read and measured.

    >>> about("digits").flips
    False
    """
    path = _own_path(name)
    return own.measured(path) if path else recorded(name)


def named(name: str) -> About:
    """The record by the name that results carry, or a user's path in full."""
    return about(name) if Path(name).is_absolute() else recorded(name)


def shown(name: str) -> str:
    """How a data set is called wherever a result from it is shown."""
    return named(name).shown


def counts(name: str, real: Iterable[str]) -> bool:
    """Whether the data set that was run holds own images of one of the printed ones in ``real``, or a user's, which replace nothing."""
    record = named(name)
    return record.own or record.printed in real


def stamps(value: Any) -> tuple:
    """Tells whether a user's images that ``value`` (a name of a data set, a dataclass with such names) speaks of have changed: for what
    is kept in memory."""
    if is_dataclass(value) and not isinstance(value, type):
        return tuple(found for f in fields(value) if (found := stamps(getattr(value, f.name))))
    path = _own_path(value) if isinstance(value, str) and value else None
    return own.stamp(path) if path and path.exists() else ()


def check_set(name: str, what: str, others: Iterable[str] = ()) -> None:
    """Raise ValueError unless ``name`` is a data set, one of the ``others``, or looks like a path. what: for the message."""
    if not own.is_path(name):
        remedy = "One's own images are given by a path: an .npz file or a folder"
        check_name(name, [*EMBEDDED, *DOWNLOADABLE, *FILES, *others], what, remedy)
    if name == "cifar10_c":
        raise ValueError(f"{what}: {sources.ONE_KIND}")


# Files in which a data set keeps arrays, and the shape of their images where it is known.
ARRAYS = {
    "cifar10": (("cifar10.npz",), (32, 32, 3)),
    "cifar10_jpeg": (("cifar10_jpeg.npz", "cifar10.npz"), (32, 32, 3)),
    "digits5_fedbn": (tuple(f"Digits5/{domain}.npz" for domain in sources_folders.DIGITS5_DOMAINS), ()),
}


def check_files(names: Iterable[str], root: str | Path | None = None) -> None:
    """Quickly check data sets among ``names``; raise ValueError if their array files cannot be what `load` takes them for, or if some of
    their domains are absent.

    Other names and absent files pass, but for a path to an `.npz` file, which must exist.
    """
    root = data_folder(root)
    for name in dict.fromkeys(names):
        if name.endswith(".npz"):
            own_file = Path(name).expanduser()
            if not own_file.is_file():
                raise ValueError(f"no file {own_file.resolve()}; a name that ends in .npz is taken as a path")
            check_npz(own_file)
        files, shape = ARRAYS.get(name, ((), ()))
        for path in filter(Path.is_file, (root / file for file in files)):
            check_npz(path, shape)
        if name in sources_folders.FOLDERS:
            sources_folders.check_domains(name, root)
        if known(name) and recorded(name).natural == "cifar10_1":
            for path in (*root.glob("cifar10.1_v6_*.npy"), *root.glob("CIFAR-10.1/cifar10.1_v6_*.npy")):
                headers(path)
