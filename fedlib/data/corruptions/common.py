"""What the corruptions share: the unit scale, colour spaces, one draw per image, the Gaussian filter."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.colors import hsv_to_rgb, rgb_to_hsv
from scipy import ndimage

LUMA = np.array([0.299, 0.587, 0.114])


def unit(images: np.ndarray) -> np.ndarray:
    """uint8 pixels on the scale 0..1, float64."""
    return images / 255


def hsv(values: np.ndarray) -> np.ndarray:
    """RGB [n, 3, H, W] in 0..1 as hue, saturation and value, all in 0..1."""
    return np.moveaxis(rgb_to_hsv(np.moveaxis(values, 1, -1)), -1, 1)


def rgb(values: np.ndarray) -> np.ndarray:
    """The way back from `hsv`."""
    return np.moveaxis(hsv_to_rgb(np.moveaxis(values, 1, -1)), -1, 1)


def each(rngs: Sequence[np.random.Generator], draw: Callable[[np.random.Generator], np.ndarray]) -> np.ndarray:
    """``draw(rng)`` of every image's own generator, stacked: image i's numbers do not depend on its neighbours."""
    return np.stack([draw(rng) for rng in rngs])


def gauss(values: np.ndarray, sigma: float) -> np.ndarray:
    """Gaussian filter over the last two axes, borders extended by the edge pixel, cut at 4 sigma."""
    return ndimage.gaussian_filter(values, sigma, mode="nearest", truncate=4, axes=(-2, -1))


def grey(values: np.ndarray) -> np.ndarray:
    """Luma of [n, 3, H, W] as [n, 1, H, W]: the grey values of ITU-R 601, as PIL converts."""
    return np.tensordot(values, LUMA, axes=(1, 0))[:, None]
