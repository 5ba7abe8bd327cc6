"""What the readers of files share: the error for absent data, `.npz` files and trees of image files.

Nothing here unpickles. Arrays are not read before their headers are known to fit the file, image trees strictly inside their folder: a
link that leads out of it is refused.
"""

import contextlib
import math
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image

from fedlib.data.dataset import Dataset
from fedlib.data.jpeg import check_streams, decoded

SUFFIXES = {".jpg", ".jpeg", ".png"}


def not_found(name: str, root: Path, layout: str, remedy: str) -> FileNotFoundError:
    """The error for absent data: where it was looked for, under which official name, and how to get it."""
    return FileNotFoundError(
        f"data set {name!r}: no {layout} in {root.resolve()}. {remedy} "
        "Another folder: load(name, root=...), in notebooks the parameter data_root, or the environment variable FEDLIB_DATA."
    )


def nchw(images: np.ndarray) -> np.ndarray:
    """[N, H, W] or [N, H, W, C] to contiguous [N, C, H, W]."""
    return np.ascontiguousarray(images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2))


def joined(name: str, parts: Sequence[tuple[np.ndarray, np.ndarray]], classes: Sequence[str], **fields) -> Dataset:
    """Data set of (images, labels) of the training part followed by those of the test part."""
    images, labels = zip(*parts, strict=True)
    is_test = np.repeat(np.arange(len(parts)) > 0, [len(part) for part in labels])
    return Dataset(name, np.concatenate(images), np.concatenate(labels), tuple(classes), is_test=is_test, **fields)


Header = tuple[tuple[int, ...], np.dtype]
PARTS = ("train", "test")
# No images are packed a hundredfold; a small file that unpacks to more than this is none.
DENSE, LARGE = 100, 1 << 28


def read_npz(path: Path, shape: tuple[int, ...] = ()) -> tuple[list[tuple[np.ndarray, np.ndarray]], tuple[str, ...]]:
    """Parts [(train images, labels), (test images, labels)] and, if there are any, class names of an `.npz` with x_train, y_train, x_test,
    y_test.

    x: uint8 [N, H, W] or [N, H, W, C], of the given ``shape`` if there is one; y: integers [N] or [N, 1]; an optional string array
    `classes` names the classes. Or an archive of JPEG streams (``fedlib.data.jpeg``).
    """
    check_npz(path, shape)
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            file = decoded(archive, shape) if "jpeg" in archive else archive
            parts = [_images_and_labels(file[f"x_{part}"], file[f"y_{part}"], part) for part in PARTS]
            return parts, tuple(map(str, file["classes"])) if "classes" in file else ()
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{path}: damaged, or not an .npz file ({error})") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def check_npz(path: Path, shape: tuple[int, ...] = ()) -> None:
    """Raise ValueError, within moments and without reading the images, where ``read_npz`` could not make images and labels of a file."""
    found = headers(path)
    try:
        if len(named := found.get("classes", ((0,),))[0]) != 1:
            raise ValueError(f"classes must be a list of names, one for each class, got an array {named}")
        if "jpeg" in found:
            return check_streams(found)
        if missing := [key for part in PARTS for key in (f"x_{part}", f"y_{part}") if key not in found]:
            raise ValueError(f"no {', '.join(missing)}; the file must hold x_train, y_train, x_test, y_test")
        for part in PARTS:
            _check_part(found[f"x_{part}"], found[f"y_{part}"], part)
        shapes = {found[f"x_{part}"][0][1:] for part in PARTS}
        if len(shapes) > 1:
            raise ValueError(f"x_train and x_test must hold images of one shape, got {' and '.join(map(str, sorted(shapes)))}")
        if shape and shapes != {shape}:
            raise ValueError(f"its images must have the shape {shape}, got {shapes.pop()}")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def headers(path: Path) -> dict[str, Header]:
    """Shape and type of every array in an `.npz` or `.npy` file (there under the name ""). ValueError for what is damaged or too dense."""
    try:
        if path.suffix == ".npy":
            with path.open("rb") as stream:
                return {"": _header(stream, path.stat().st_size)}
        with zipfile.ZipFile(path) as file:
            packed, size = path.stat().st_size, sum(member.file_size for member in file.infolist())
            if size > max(LARGE, DENSE * packed):
                raise ValueError(f"{packed:,} bytes that unpack to {size:,}: not read, since no images are packed so densely")
            found = {}
            for member in file.infolist():
                with file.open(member) as stream:
                    found[member.filename.removesuffix(".npy")] = _header(stream, member.file_size)
            return found
    # What NumPy's reader of headers raises for bytes that are none.
    except (zipfile.BadZipFile, zlib.error, EOFError, tokenize.TokenError, SyntaxError, TypeError, NotImplementedError) as error:
        raise ValueError(f"{path}: damaged, or not an {path.suffix} file ({error})") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _header(stream: BinaryIO, size: int) -> Header:
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are not read: they can run any code")
    needed = math.prod(shape) * dtype.itemsize
    if needed != size - stream.tell():
        raise ValueError(f"damaged: its header asks for {needed:,} bytes, {size - stream.tell():,} are there")
    return shape, dtype


def read_npy(path: Path) -> np.ndarray:
    """The array of an `.npy` file, read after its header is known to fit."""
    headers(path)
    return np.load(path, allow_pickle=False)


def _check_part(images: Header, labels: Header, part: str) -> None:
    (shape, dtype), (label_shape, label_dtype) = images, labels
    if dtype != np.uint8 or len(shape) not in (3, 4) or (len(shape) == 4 and shape[-1] not in (1, 3)):
        raise ValueError(
            f"x_{part} must be uint8 [N, H, W] or [N, H, W, 1 or 3], values 0..255, got {dtype} {shape}; "
            "scale, round and .astype('uint8'), and put the channels last"
        )
    if not np.issubdtype(label_dtype, np.integer) or label_shape not in ((shape[0],), (shape[0], 1)):
        raise ValueError(f"y_{part} must be integers [{shape[0]}], one class number per image, got {label_dtype} {label_shape}")


def _images_and_labels(images: np.ndarray, labels: np.ndarray, part: str) -> tuple[np.ndarray, np.ndarray]:
    """uint8 [N, C, H, W] and int64 [N] of one part; ValueError for labels that count from below 0."""
    if len(labels) and labels.min() < 0:
        raise ValueError(f"y_{part} must count classes from 0, got {labels.min()}")
    return nchw(images), labels.reshape(-1).astype(np.int64)


def subfolders(folder: Path) -> list[Path]:
    """Visible subfolders by name; none if ``folder`` does not exist."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] != ".") if folder.is_dir() else []


def image_files(folder: Path) -> list[Path]:
    """Visible JPEG and PNG files of a folder by name; none if it does not exist."""
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and p.name[0] != ".") if folder.is_dir() else []


@contextlib.contextmanager
def opened(path: Path, base: Path) -> Iterator[Image.Image]:
    """An image file strictly inside the folder ``base``. Raises ValueError, with what to do, for anything that is none or cannot be
    read."""
    if path.is_symlink() and not path.exists():
        raise ValueError(f"{path} is a broken link: remove it, or restore what it points to")
    if not path.resolve().is_relative_to(base.resolve()):
        raise ValueError(f"{path} leads out of {base.resolve()} to {path.resolve()}; links out of a data set's folder are not followed")
    if path.is_dir():
        raise ValueError(f"{path} is a folder named like an image: rename or remove it")
    try:
        with Image.open(path) as image:
            yield image
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path} cannot be read as an image: {error}; replace or remove it") from error


def read_images(paths: Sequence[Path], base: Path, size: int) -> np.ndarray:
    """RGB images resized (bilinear, aspect not kept) to uint8 [N, 3, size, size].

    Sixteen bits a pixel are scaled to eight; what is transparent is put on white, with a warning. Raises ValueError for a file that is no
    image, and for one that a link places outside ``base``.
    """
    images, transparent = np.empty((len(paths), size, size, 3), np.uint8), []
    for out, path in zip(images, paths, strict=True):
        with opened(path, base) as image:
            if image.has_transparency_data:
                image = image.convert("RGBA")
                if image.getextrema()[-1][0] < 255:
                    transparent.append(path)
                image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
            elif image.mode.startswith("I"):
                image = Image.fromarray(np.rint(np.asarray(image) / 257).clip(0, 255).astype(np.uint8))
            out[:] = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    if transparent:
        warnings.warn(
            f"{len(transparent)} of {len(paths)} images are transparent and were placed on white, first {transparent[0]}", stacklevel=2
        )
    return nchw(images)
