"""Spatter: drops of water or mud on the lens.

The benchmark takes its edge detector, distance transform and histogram equalisation from OpenCV; the versions here follow OpenCV's
definitions and work on a stack of images. The distance is Euclidean where OpenCV's is a chamfer approximation within 2 % of it.
"""

import numpy as np
from scipy import ndimage

from fedlib.data.corruptions.common import each, gauss

WATER = np.array([175, 238, 238], np.float32) / 255
MUD = np.array([63, 42, 20], np.float32) / 255
EMBOSS = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
FARTHEST = 20


def spatter(images, constants, rngs):
    """Smoothed noise above a threshold: embossed and added as water, or covering the image as mud."""
    mean, sd, sigma, threshold, strength, liquid = constants
    layer = gauss(each(rngs, lambda rng: rng.normal(mean, sd, images.shape[2:])), sigma)
    layer[layer < threshold] = 0
    x = images.astype(np.float32) / 255
    if liquid == "mud":
        cover = gauss((layer > threshold).astype(np.float32), strength)
        cover[cover < 0.8] = 0
        return x * (1 - cover[:, None]) + cover[:, None] * MUD[:, None, None]
    drops = (np.clip(layer, 0, 1) * 255).astype(np.uint8)
    cover = drops * _relief(drops)
    highest = cover.max(axis=(1, 2), keepdims=True)
    cover = strength * np.divide(cover, highest, out=np.zeros_like(cover), where=highest > 0)
    return x + cover[:, None] * WATER[:, None, None]


def _relief(drops: np.ndarray) -> np.ndarray:
    """Embossed distance to the nearest drop edge, float32 [n, H, W] in 0..255."""
    edges = canny(drops, 50, 150)
    # Stacked images are so far apart along the first axis that the nearest edge is always one of the same image, if it has any.
    distance = ndimage.distance_transform_edt(~edges, sampling=(4 * FARTHEST, 1, 1)) if edges.any() else np.full(edges.shape, np.inf)
    distance = _box(np.minimum(distance, FARTHEST)).astype(np.uint8)
    embossed = ndimage.correlate(equalize(distance).astype(np.int32), EMBOSS, mode="mirror", axes=(1, 2))
    return np.floor(_box(np.clip(embossed, 0, 255).astype(float)) + 0.5).astype(np.float32)


def _box(values: np.ndarray) -> np.ndarray:
    # Nine ninths of a level fall short of it, and what is truncated next would lose one.
    return ndimage.correlate(values, np.ones((3, 3)), mode="mirror", axes=(1, 2)) / 9


def canny(pixels: np.ndarray, low: int, high: int) -> np.ndarray:
    """Edges of uint8 [n, H, W], bool: 3 x 3 Sobel with repeated border, L1 magnitude, thinning in four directions, hysteresis."""
    values = pixels.astype(np.int32)
    across, along = (
        ndimage.correlate1d(ndimage.correlate1d(values, [-1, 0, 1], a, mode="nearest"), [1, 2, 1], b, mode="nearest")
        for a, b in ((2, 1), (1, 2))
    )
    magnitude = np.abs(across) + np.abs(along)
    padded = np.pad(magnitude, ((0, 0), (1, 1), (1, 1)))
    height, width = pixels.shape[1:]

    def at(down: int, right: int) -> np.ndarray:
        return padded[:, 1 + down : 1 + down + height, 1 + right : 1 + right + width]

    flat = np.abs(along) < np.tan(np.pi / 8) * np.abs(across)
    steep = np.abs(along) > np.tan(3 * np.pi / 8) * np.abs(across)
    falling = across * along >= 0
    thin = np.select(
        [flat, steep, falling],
        [
            (magnitude > at(0, -1)) & (magnitude >= at(0, 1)),
            (magnitude > at(-1, 0)) & (magnitude >= at(1, 0)),
            (magnitude > at(-1, -1)) & (magnitude > at(1, 1)),
        ],
        (magnitude > at(-1, 1)) & (magnitude > at(1, -1)),
    )
    candidate = thin & (magnitude > low)
    neighbours = np.zeros((3, 3, 3), int)
    neighbours[1] = 1
    regions, count = ndimage.label(candidate, neighbours)
    strong = np.zeros(count + 1, bool)
    strong[regions[candidate & (magnitude > high)]] = True
    return strong[regions]


def equalize(pixels: np.ndarray) -> np.ndarray:
    """Histogram equalisation of every uint8 image of [n, H, W]; the darkest level becomes 0, an image of one level stays as it is."""
    n = len(pixels)
    total = pixels[0].size
    flat = pixels.reshape(n, total)
    histogram = np.bincount((np.arange(n)[:, None] * 256 + flat).ravel(), minlength=256 * n).reshape(n, 256)
    below = histogram.cumsum(axis=1) - histogram[np.arange(n), flat.min(axis=1)][:, None]
    rest = below[:, -1:]
    table = np.where(rest > 0, np.rint(255 * below / np.maximum(rest, 1)), np.arange(256)).clip(0, 255).astype(np.uint8)
    return np.take_along_axis(table, flat, axis=1).reshape(pixels.shape)
