"""Blurs, and the two geometric tools that `snow` shares: the centre zoom and the directional blur."""

import math

import numpy as np
from scipy import ndimage

from fedlib.data.corruptions.common import each, gauss, unit


def gaussian_blur(images, sigma, rngs):
    """Gaussian filter, sigma in pixels."""
    return gauss(unit(images), sigma)


def defocus_blur(images, constants, rngs):
    """Correlation with a disk that is itself smoothed by a 3 x 3 Gaussian; borders mirrored without repeating the edge pixel."""
    radius, sigma = constants
    offsets = np.arange(-2, 3)
    disk = (offsets[:, None] ** 2 + offsets**2 <= radius**2).astype(float)
    taps = np.exp(-(np.arange(-1, 2) ** 2) / (2 * sigma**2))
    taps /= taps.sum()
    kernel = ndimage.correlate(disk / disk.sum(), np.outer(taps, taps), mode="constant")
    return ndimage.correlate(unit(images), kernel, mode="mirror", axes=(-2, -1))


def glass_blur(images, constants, rngs):
    """Every pixel from row and column 2 on receives a copy of one of its upper left neighbours (or of itself), between two Gaussians.

    Paper and code: the corruption benchmark means to swap the two pixels; its code, and hence every published number, copies one way.
    The code scans from the bottom right, so a pixel's sources are still unchanged when it is reached and one pass is one gather.
    """
    sigma, reach, passes = constants
    height, width = images.shape[2:]
    pixels = (255 * gauss(unit(images), sigma)).astype(np.uint8)
    size = (passes, 2, height - 1 - reach, width - 1 - reach)
    shifts = each(rngs, lambda rng: rng.integers(-reach, reach, size))
    rows, columns = np.mgrid[reach + 1 : height, reach + 1 : width]
    batch = np.arange(len(images))[:, None, None]
    for step in range(passes):
        moved = pixels[batch, :, rows + shifts[:, step, 1], columns + shifts[:, step, 0]]
        pixels[:, :, reach + 1 :, reach + 1 :] = np.moveaxis(moved, -1, 1)
    return gauss(unit(pixels), sigma)


def motion_blur(images, constants, rngs):
    """Streak at a random angle within 45 degrees of the horizontal."""
    radius, sigma = constants
    return directional_blur(images, radius, sigma, each(rngs, lambda rng: rng.uniform(-45, 45)))


def directional_blur(images: np.ndarray, radius: float, sigma: float, angles: np.ndarray) -> np.ndarray:
    """One-sided Gaussian streak along ``angles`` [n] (degrees), as ImageMagick's motion blur; borders clamped. uint8, rounded half up."""
    n, channels, height, width = images.shape
    steps = np.arange(2 * math.ceil(radius) + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    weights /= weights.sum()
    radians = np.deg2rad(angles)[:, None]
    down = np.ceil(steps * np.sin(radians) - 0.5).astype(int)
    right = np.ceil(steps * np.cos(radians) - 0.5).astype(int)
    pixels = np.moveaxis(images, 1, -1).reshape(n * height * width, channels).astype(np.float32)
    first = (np.arange(n) * height * width)[:, None, None]
    blurred = np.zeros((n, height, width, channels))
    for step, weight in zip(steps, weights, strict=True):
        rows = np.clip(np.arange(height) + down[:, step, None], 0, height - 1)
        columns = np.clip(np.arange(width) + right[:, step, None], 0, width - 1)
        blurred += weight * pixels[first + rows[:, :, None] * width + columns[:, None, :]]
    return np.ascontiguousarray(np.moveaxis((blurred + 0.5).astype(np.uint8), -1, 1))


def zoom_blur(images, top, rngs):
    """Mean of the image and its zooms 1, 1.01, ...; `arange` includes the end point of the first two severities, as published."""
    x = images.astype(np.float32) / 255
    total = x.copy()
    zooms = np.arange(1, top, 0.01)
    for zoom in zooms:
        total += centre_zoom(x, float(zoom))
    return total / (len(zooms) + 1)


def centre_zoom(x: np.ndarray, zoom: float) -> np.ndarray:
    """Enlarge the centre of x [n, C, H, W] to the full frame, bilinear."""
    return _zoomed(_zoomed(x, zoom).swapaxes(2, 3), zoom).swapaxes(2, 3)


def _zoomed(x: np.ndarray, zoom: float) -> np.ndarray:
    """The zoom along the height: every row is a mixture of two neighbours. No matrix product, whose last bit depends on the processor,
    and with it a grey level here and there; one rounding of each product and sum, as where it is fused."""
    operator = _zoom_matrix(x.shape[2], zoom).astype(x.dtype)
    above = np.minimum((operator != 0).argmax(1), len(operator) - 2)
    first, second = (operator[np.arange(len(operator)), row][:, None] for row in (above, above + 1))
    return (second.astype(np.float64) * x[:, :, above + 1] + first * x[:, :, above]).astype(x.dtype)


def _zoom_matrix(size: int, zoom: float) -> np.ndarray:
    """[size, size] operator of one axis: crop the centre, `scipy.ndimage.zoom` of order 1, crop the centre of the result."""
    kept = math.ceil(size / zoom)
    start = (size - kept) // 2
    enlarged = ndimage.zoom(np.eye(size)[start : start + kept], (zoom, 1), order=1)
    start = (len(enlarged) - size) // 2
    return enlarged[start : start + size]
