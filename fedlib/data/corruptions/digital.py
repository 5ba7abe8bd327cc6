"""Contrast, saturation, elastic deformation, pixelation and JPEG."""

import io
from collections.abc import Callable

import numpy as np
from PIL import Image
from scipy import ndimage

from fedlib.data.corruptions.common import each, hsv, rgb, unit


def contrast(images, factor, rngs):
    """Shrink towards the mean of each channel."""
    x = unit(images)
    mean = x.mean(axis=(2, 3), keepdims=True)
    return (x - mean) * factor + mean


def saturate(images, constants, rngs):
    """Change the HSV saturation; severities 1 and 2 lower it."""
    factor, added = constants
    colours = hsv(unit(images))
    colours[:, 1] = np.clip(factor * colours[:, 1] + added, 0, 1)
    return rgb(colours)


def elastic_transform(images, constants, rngs):
    """Random affine map of three points (severity 1: nothing else), then a smooth random displacement of every pixel.

    The constants are fractions of the shorter side: strength and smoothing of the displacement, jitter of the three points.
    """
    height, width = images.shape[2:]
    side = min(height, width)
    strength, sigma, jitter = (constant * side for constant in constants)
    shifts = each(rngs, lambda rng: rng.uniform(-jitter, jitter, (3, 2)))
    noise = each(rngs, lambda rng: rng.uniform(-1, 1, (2, height, width)))
    grid = np.mgrid[:height, :width].astype(float)

    points = np.array([height // 2, width // 2]) + side // 3 * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = np.concatenate([points + shifts, np.ones((len(images), 3, 1))], axis=2)
    back = np.linalg.solve(moved, np.broadcast_to(points.astype(float), shifts.shape))
    source = back[:, 2, :, None, None] + sum(back[:, axis, :, None, None] * grid[axis] for axis in (0, 1))
    x = _sample(images.astype(np.float32) / 255, source, "mirror")

    displacement = strength * ndimage.gaussian_filter(noise, sigma, mode="reflect", truncate=3, axes=(-2, -1))
    return _sample(x, grid + displacement, "reflect") if strength else x


def _sample(x: np.ndarray, source: np.ndarray, mode: str) -> np.ndarray:
    """Bilinear values of x [n, C, H, W] at rows and columns ``source`` [n, 2, H, W]."""
    batch = np.broadcast_to(np.arange(len(x), dtype=float)[:, None, None], source[:, 0].shape)
    coordinates = np.stack([batch, source[:, 0], source[:, 1]])
    channels = (ndimage.map_coordinates(x[:, c], coordinates, order=1, mode=mode) for c in range(x.shape[1]))
    return np.stack(list(channels), axis=1)


def pixelate(images, scale, rngs):
    """Shrink by box averages and enlarge again."""
    height, width = images.shape[2:]
    small = (int(width * scale), int(height * scale))
    return _through_pil(images, lambda image: image.resize(small, Image.Resampling.BOX).resize((width, height), Image.Resampling.BOX))


def jpeg_compression(images, quality, rngs):
    """Encode and decode as JPEG."""

    def recode(image: Image.Image) -> Image.Image:
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=quality)
        return Image.open(buffer)

    return _through_pil(images, recode)


def _through_pil(images: np.ndarray, change: Callable[[Image.Image], Image.Image]) -> np.ndarray:
    """Apply ``change`` to every image as a PIL image (RGB, or L for one channel)."""
    pictures = np.moveaxis(images, 1, -1) if images.shape[1] == 3 else images[:, 0]
    changed = np.stack([np.asarray(change(Image.fromarray(np.ascontiguousarray(picture)))) for picture in pictures])
    return np.moveaxis(changed, -1, 1) if images.shape[1] == 3 else changed[:, None]
