"""What the readers of files share: the error for absent data, `.npz` files and trees of image files.

Nothing here unpickles. Image trees are read strictly inside their folder: a link that leads out of it is refused.
"""

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from fedlib.data.dataset import Dataset

SUFFIXES = {".jpg", ".jpeg", ".png"}


def not_found(name: str, root: Path, layout: str, remedy: str) -> FileNotFoundError:
    """The error for absent data: where it was looked for, under which official name, and how to get it."""
    return FileNotFoundError(
        f"data set {name!r}: no {layout} in {root.resolve()}. {remedy} "
        "Another folder: load(name, root=...) or the environment variable FEDLIB_DATA."
    )


def nchw(images: np.ndarray) -> np.ndarray:
    """[N, H, W] or [N, H, W, C] to contiguous [N, C, H, W]."""
    return np.ascontiguousarray(images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2))


def joined(name: str, parts: Sequence[tuple[np.ndarray, np.ndarray]], classes: Sequence[str], **fields) -> Dataset:
    """Data set of (images, labels) of the training part followed by those of the test part."""
    images, labels = zip(*parts, strict=True)
    is_test = np.repeat(np.arange(len(parts)) > 0, [len(part) for part in labels])
    return Dataset(name, np.concatenate(images), np.concatenate(labels), tuple(classes), is_test=is_test, **fields)


def read_npz(path: Path) -> tuple[list[tuple[np.ndarray, np.ndarray]], tuple[str, ...]]:
    """Parts [(train images, labels), (test images, labels)] and class names of an `.npz` with x_train, y_train, x_test, y_test.

    x: uint8 [N, H, W] or [N, H, W, C]; y: integers [N] or [N, 1]; an optional string array `classes` names the classes.
    """
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            missing = [key for key in ("x_train", "y_train", "x_test", "y_test") if key not in file]
            if missing:
                raise ValueError(f"no {', '.join(missing)}; the file must hold x_train, y_train, x_test, y_test")
            parts = [_images_and_labels(file[f"x_{part}"], file[f"y_{part}"], part) for part in ("train", "test")]
            named = tuple(map(str, file["classes"])) if "classes" in file else ()
        if len({images.shape[1:] for images, _ in parts}) > 1:
            raise ValueError(f"x_train and x_test must hold images of one shape, got {' and '.join(str(x.shape[1:]) for x, _ in parts)}")
    # TypeError: what NumPy reads from a file that is a single array.
    except (zipfile.BadZipFile, zlib.error, EOFError, TypeError) as error:
        raise ValueError(f"{path}: damaged, or not an .npz file ({error})") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    n_classes = 1 + max(labels.max(initial=-1) for _, labels in parts)
    return parts, named or tuple(map(str, range(n_classes)))


def _images_and_labels(images: np.ndarray, labels: np.ndarray, part: str) -> tuple[np.ndarray, np.ndarray]:
    """uint8 [N, C, H, W] and int64 [N] of one part; ValueError for arrays that are something else."""
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[-1] not in (1, 3)):
        raise ValueError(
            f"x_{part} must be uint8 [N, H, W] or [N, H, W, 1 or 3], values 0..255, got {images.dtype} {images.shape}; "
            "scale, round and .astype('uint8'), and put the channels last"
        )
    if not np.issubdtype(labels.dtype, np.integer) or labels.shape not in ((len(images),), (len(images), 1)):
        raise ValueError(f"y_{part} must be integers [{len(images)}], one class number per image, got {labels.dtype} {labels.shape}")
    if len(labels) and labels.min() < 0:
        raise ValueError(f"y_{part} must count classes from 0, got {labels.min()}")
    return nchw(images), labels.reshape(-1).astype(np.int64)


def subfolders(folder: Path) -> list[Path]:
    """Visible subfolders by name; none if ``folder`` does not exist."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] != ".") if folder.is_dir() else []


def image_files(folder: Path) -> list[Path]:
    """JPEG and PNG files of a folder by name; none if it does not exist."""
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES) if folder.is_dir() else []


def read_images(paths: Sequence[Path], base: Path, size: int) -> np.ndarray:
    """RGB images resized (bilinear, aspect not kept) to uint8 [N, 3, size, size].

    Raises ValueError for a file that is no image, and for one that a link places outside ``base``.
    """
    base = base.resolve()
    images = np.empty((len(paths), size, size, 3), np.uint8)
    for out, path in zip(images, paths, strict=True):
        if not path.resolve().is_relative_to(base):
            raise ValueError(f"{path} leads out of {base} to {path.resolve()}; links out of a data set's folder are not followed")
        try:
            with Image.open(path) as image:
                out[:] = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
        except (OSError, SyntaxError) as error:
            raise ValueError(f"{path} cannot be read as an image: {error}") from error
    return nchw(images)
