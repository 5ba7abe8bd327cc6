"""Images as JPEG streams in one array: several times smaller than their pixels.

An `.npz` with `jpeg`, all encoded images one after the other as uint8, `offsets` [N + 1] into it, `labels` [N] and bool `is_test` [N].
"""

import io
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from PIL import Image

NAMES = ("offsets", "labels", "is_test")


def check_streams(found: Mapping[str, tuple[tuple[int, ...], np.dtype]]) -> None:
    """Raise ValueError where arrays of these shapes and types are no such archive."""
    if missing := [name for name in NAMES if name not in found]:
        raise ValueError(f"no {', '.join(missing)} beside jpeg")
    (offsets, of_offsets), (labels, of_labels), (is_test, _) = (found[name] for name in NAMES)
    if not (np.issubdtype(of_labels, np.integer) and np.issubdtype(of_offsets, np.integer)):
        raise ValueError(f"labels and offsets must be integers, got {of_labels} and {of_offsets}")
    if found["jpeg"][1] != np.uint8 or len(labels) != 1 or is_test != labels or offsets != (labels[0] + 1,):
        raise ValueError(
            f"jpeg streams of {found['jpeg'][1]} with {offsets} offsets, {labels} labels, {is_test} is_test; N + 1, N, N expected"
        )


def decoded(archive: Mapping[str, np.ndarray], shape: tuple[int, ...] = ()) -> dict[str, np.ndarray]:
    """The archive as one of images: x_train, y_train, x_test, y_test, and classes if there are any. Raises ValueError for a stream that is
    none, and for images of another ``shape`` where one is given."""
    jpeg, labels, is_test, images = archive["jpeg"], archive["labels"], archive["is_test"].astype(bool), []
    for i, (start, stop) in enumerate(pairwise(archive["offsets"])):
        try:
            with Image.open(io.BytesIO(jpeg[start:stop].tobytes())) as image:
                images.append(np.asarray(image.convert("RGB")))
        except (OSError, SyntaxError) as error:
            raise ValueError(f"image {i} cannot be decoded: {error}") from error
    pixels = np.stack(images)
    if shape and pixels.shape[1:] != shape:
        raise ValueError(f"its images must have the shape {shape}, got {pixels.shape[1:]}")
    parts = {"x_train": pixels[~is_test], "y_train": labels[~is_test], "x_test": pixels[is_test], "y_test": labels[is_test]}
    return parts | ({"classes": archive["classes"]} if "classes" in archive else {})
