"""A user's images: an `.npz` file, or a folder of image files.

Folders are ``train|test/<class>/``, ``<domain>/<class>/`` or ``<class>/``; JPEG and PNG, in the order of the sorted paths. Where a data set
has domains, the last one is its natural shift; without an official test part or domains, a sixth of every class, drawn with a fixed
seed, is the test part.
"""

import functools
import warnings
from pathlib import Path

import numpy as np

from fedlib.data.about import About
from fedlib.data.dataset import Dataset
from fedlib.data.files import image_files, opened, read_images, subfolders
from fedlib.data.partition import stratified
from fedlib.data.sources import npz_file
from fedlib.tools.seeding import numpy_generator

PARTS = {"train", "test"}
# What other data sets call their parts; a domain of such a name would be a mistake.
LIKE_PARTS = PARTS | {"training", "testing", "val", "valid", "validation", "dev", "eval"}
# Images that are not read, and are worth a warning.
UNREAD = {".webp", ".gif", ".bmp", ".tif", ".tiff", ".jfif", ".avif", ".heic", ".jp2"}
SIDE = 32  # of images that differ in size
SMALL = 5_000  # training images: with fewer, clients hold too few for the papers' schedules


def is_path(name: str) -> bool:
    """Whether the name of a data set is the path of a file or folder."""
    return name.endswith(".npz") or "/" in name or "\\" in name or Path(name).is_dir()


def load_own(path: Path, size: int | None = None) -> Dataset:
    """The images at ``path``, named after the file or (with a slash behind it) the folder. size: side in pixels of a folder's images,
    None for their own where they agree, else ``SIDE``."""
    if not path.is_dir() and (path.suffix != ".npz" or not path.exists()):
        raise FileNotFoundError(
            f"no .npz file and no folder {path.resolve()}; a name that contains a slash or ends in .npz is taken as a path"
        )
    return _read(path, size if path.is_dir() else None, stamp(path))


def measured(path: Path) -> About:
    """What the images at ``path`` say of themselves, with normalisation measured on their training part."""
    return _measured(path, stamp(path)) if path.exists() else About(path.name, own=True)


def stamp(path: Path) -> tuple:
    """Tells whether what is at ``path`` has changed."""
    path = path.resolve()
    files = sorted(path.glob("**/*")) if path.is_dir() else [path]
    # What a link to nothing spoils is said when the images are read.
    states = [file.stat() if file.exists() else file.lstat() for file in files]
    return tuple((str(file), state.st_size, state.st_mtime_ns) for file, state in zip(files, states, strict=True))


# Every setting and seed builds its clients anew, and a tree of small files takes long to read.
@functools.lru_cache(maxsize=2)
def _read(path: Path, size: int | None, stamp: tuple) -> Dataset:
    return tree(path, f"{path.resolve().name}/", size) if path.is_dir() else npz_file(path)


@functools.lru_cache(maxsize=8)
def _measured(path: Path, stamp: tuple) -> About:
    data = load_own(path)
    held_out = data.group_names[-1] if data.group_names else ""
    train = ~data.is_test if data.is_test is not None else data.groups != len(data.group_names) - 1
    without = {f"without {name}": _statistics(data.images[data.groups != g]) for g, name in enumerate(data.group_names)}
    return About(
        data.name,
        statistics=without | {"measured": _statistics(data.images[train])},
        domains=data.group_names,
        held_out=held_out,
        small=int(train.sum()) < SMALL,
        own=True,
    )


def _statistics(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of every channel, in [0, 1]."""
    planes = [images[:, channel] for channel in range(images.shape[1])]
    mean = tuple(round(float(plane.mean(dtype=np.float64)) / 255, 4) for plane in planes)
    # Images of one colour have no deviation to divide by.
    return mean, tuple(max(1e-4, round(float(plane.std(dtype=np.float64)) / 255, 4)) for plane in planes)


def tree(folder: Path, name: str, size: int | None = None) -> Dataset:
    """The images of a folder in one of the three layouts; the classes are its innermost folders, sorted.

    Raises ValueError for a folder without images, one that mixes layouts, one part or domain alone, parts called otherwise, images of one
    class, a class without images or with test images alone.
    Warns of images in other formats, which are not read, and of a class that the last domain alone has."""
    tops, files = _layout(folder)
    classes = tuple(sorted({label for _, label, _ in files}))
    labels = np.array([classes.index(label) for _, label, _ in files], dtype=np.int64)
    paths = [path for *_, path in files]
    images = read_images(paths, folder, size or _side(paths, folder))
    if tops and set(tops) != PARTS:
        if untrained := sorted({label for top, label, _ in files} - {label for top, label, _ in files if top != tops[-1]}):
            here = f"class {untrained[0]} is in {tops[-1]}/ alone, which is held out as the shift: no method can learn it"
            warnings.warn(f"{folder.resolve()}: {here}", stacklevel=2)
        groups = np.array([tops.index(top) for top, *_ in files], dtype=np.int64)
        return Dataset(name, images, labels, classes, groups, tuple(tops))
    is_test = np.array([top == "test" for top, *_ in files])
    if untrained := sorted({label for top, label, _ in files} - {label for top, label, _ in files if top != "test"}):
        raise ValueError(f"{folder.resolve()}: class {untrained[0]} has images in test/ and none in train/: call it alike in both")
    if not tops:
        is_test[stratified(labels, 6, numpy_generator(0, "own", "test"))[0]] = True
        # The few images of a small class may all be among them.
        is_test[~np.isin(labels, labels[~is_test])] = False
    return Dataset(name, images, labels, classes, is_test=is_test)


def _layout(folder: Path) -> tuple[list[str], list[tuple[str, str, Path]]]:
    """The parts or domains of a folder, none where it holds the classes, and of every image its part or domain, class and path. Raises and
    warns of what ``tree`` says of the layout."""
    above = {top.name: subfolders(top) for top in subfolders(folder) if any(image_files(below) for below in subfolders(top))}
    flat = [top for top in subfolders(folder) if image_files(top)]
    if bool(above) == bool(flat):
        layouts = "train/<class>/ and test/<class>/, <domain>/<class>/ or <class>/"
        raise ValueError(f"{folder.resolve()}: {'mixes layouts' if flat else 'no JPEG or PNG images'}; a folder must hold {layouts}")
    tops = sorted(above, reverse=set(above) == PARTS)  # train before test
    if len(tops) == 1:
        raise ValueError(f"{folder.resolve()}: all images are in {tops[0]}/: name that folder itself, or put the rest beside it")
    if LIKE_PARTS & {top.lower() for top in tops} and set(tops) != PARTS:
        raise ValueError(f"{folder.resolve()} holds {', '.join(tops)}: call its parts train and test, and leave no other folder there")
    leaves = [(top, below) for top in tops for below in above[top]] or [("", top) for top in subfolders(folder)]
    if len({below.name for _, below in leaves}) < 2:
        raise ValueError(f"{folder.resolve()}: all images are of one class")
    inside = {below: image_files(below) for _, below in leaves}
    if empty := [below for below, paths in inside.items() if not paths]:
        raise ValueError(f"{empty[0].resolve()} holds no JPEG or PNG image itself: put some there (others are not read), or remove it")
    if unread := [path for below in inside for path in sorted(below.iterdir()) if path.suffix.lower() in UNREAD]:
        warnings.warn(f"{len(unread)} images in {folder.resolve()} are neither JPEG nor PNG and not read, first {unread[0]}", stacklevel=3)
    return tops, [(top, below.name, path) for top, below in leaves for path in inside[below]]


def _side(paths: list[Path], folder: Path) -> int:
    sizes = set()
    for path in paths:
        with opened(path, folder) as image:
            sizes.add(image.size)
        if len(sizes) > 1:
            return SIDE
    ((width, height),) = sizes
    return width if width == height else SIDE
