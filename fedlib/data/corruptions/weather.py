"""Snow, frost, fog and brightness."""

import numpy as np
from scipy import ndimage

from fedlib.data.corruptions.blur import centre_zoom, directional_blur
from fedlib.data.corruptions.common import each, grey, hsv, rgb, unit

# Procedural frost: probability, mean RGB, s.d. of the crop's brightness, s.d. of its pattern; grey levels 0..255.
FROST = (
    (0.2, (78, 149, 165), 12, 16),
    (0.4, (198, 203, 212), 9, 18),
    (0.2, (144, 159, 172), 10, 26),
    (0.2, (103, 114, 126), 16, 34),
)


def brightness(images, added, rngs):
    """Raise the HSV value."""
    colours = hsv(unit(images))
    colours[:, 2] = np.clip(colours[:, 2] + added, 0, 1)
    return rgb(colours)


def snow(images, constants, rngs):
    """Streaks of thresholded noise and their half-turn over a whitened image."""
    mean, sd, zoom, threshold, radius, sigma, mix = constants
    noise = each(rngs, lambda rng: rng.normal(mean, sd, (1, *images.shape[2:])))
    angles = each(rngs, lambda rng: rng.uniform(-135, -45))
    flakes = centre_zoom(noise, zoom)
    flakes[flakes < threshold] = 0
    flakes = (np.clip(flakes, 0, 1) * 255).astype(np.uint8)
    flakes = unit(directional_blur(flakes, radius, sigma, angles))
    x = unit(images)
    x = mix * x + (1 - mix) * np.maximum(x, 1.5 * grey(x) + 0.5)
    return x + flakes + flakes[:, :, ::-1, ::-1]


def frost(images, constants, rngs):
    """Blend with a frosted-glass texture.

    The benchmark crops photographs of frost that cannot be shipped. This texture is a procedural substitute with their mean colour,
    brightness spread and contrast; the mean pixel change agrees within 3 %.
    """
    kept, added = constants
    texture = each(rngs, lambda rng: _frost_texture(rng, images.shape[2:]))
    return (kept * images + added * texture) / 255


def _frost_texture(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """[3, H, W] in 0..255: a base colour, a brightness shared by the crop, a pattern shared by the channels."""
    _, colour, crop_sd, pattern_sd = FROST[rng.choice(len(FROST), p=[row[0] for row in FROST])]
    offset = rng.normal(0, crop_sd)
    white, coarse = rng.standard_normal((2, *shape))
    pattern = np.sqrt(0.7) * white + np.sqrt(0.3) * _smooth(coarse, 3)
    return np.clip(np.array(colour)[:, None, None] + offset + pattern_sd * pattern, 0, 255)


def _smooth(white: np.ndarray, sigma: float) -> np.ndarray:
    """White noise filtered on a torus (so that its variance is the same everywhere) and scaled back to unit variance."""
    impulse = np.zeros(white.shape)
    impulse[0, 0] = 1
    response = ndimage.gaussian_filter(impulse, sigma, mode="wrap")
    return ndimage.gaussian_filter(white, sigma, mode="wrap") / np.sqrt((response**2).sum())


def fog(images, constants, rngs):
    """Add a plasma fractal to all channels and scale back to the image's own maximum."""
    amount, decay = constants
    height, width = images.shape[2:]
    side = 1 << (max(height, width) - 1).bit_length()
    haze = plasma(each(rngs, lambda rng: rng.uniform(-1, 1, (side, side))), decay)[:, None, :height, :width]
    x = unit(images)
    top = x.max(axis=(1, 2, 3), keepdims=True)
    return (x + amount * haze) * top / (top + amount)


def plasma(noise: np.ndarray, decay: float) -> np.ndarray:
    """Diamond-square heights in 0..1 on a torus. noise: U(-1, 1), [n, side, side], one value per point; side a power of two.

    The published code multiplies the amplitude in twice, so the noise of a level has amplitude**2 and falls by decay**2 per level.
    """
    heights = np.zeros(noise.shape)
    step, amplitude = noise.shape[1], 100.0
    while step >= 2:
        middle = slice(step // 2, None, step)
        wobble = amplitude**2 * noise
        corners = heights[:, ::step, ::step]
        right, below = np.roll(corners, -1, 2), np.roll(corners, -1, 1)
        centres = (corners + right + below + np.roll(right, -1, 1)) / 4 + wobble[:, middle, middle]
        heights[:, middle, middle] = centres
        heights[:, ::step, middle] = (corners + right + centres + np.roll(centres, 1, 1)) / 4 + wobble[:, ::step, middle]
        heights[:, middle, ::step] = (corners + below + centres + np.roll(centres, 1, 2)) / 4 + wobble[:, middle, ::step]
        step //= 2
        amplitude /= decay
    heights -= heights.min(axis=(1, 2), keepdims=True)
    return heights / heights.max(axis=(1, 2), keepdims=True)
