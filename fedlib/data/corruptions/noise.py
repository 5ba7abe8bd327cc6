"""Noise, drawn independently for every pixel and channel. Constants: `fedlib.data.corruptions.RECIPES`.

Here and in the sister modules a corruption takes images uint8 [n, C, H, W], the constants of one severity and one generator per image;
it returns uint8 pixels, or floats on the scale 0..1 that the caller clips and truncates.
"""

import numpy as np

from fedlib.data.corruptions.common import each, unit


def gaussian_noise(images, sigma, rngs):
    """x + N(0, sigma)."""
    return unit(images) + sigma * each(rngs, lambda rng: rng.standard_normal(images.shape[1:]))


def speckle_noise(images, sigma, rngs):
    """x + x N(0, sigma)."""
    x = unit(images)
    return x + x * (sigma * each(rngs, lambda rng: rng.standard_normal(images.shape[1:])))


def shot_noise(images, photons, rngs):
    """Poisson counts, ``photons`` of them for white."""
    rates = unit(images) * photons
    return np.stack([rng.poisson(rate) for rng, rate in zip(rngs, rates, strict=True)]) / photons


def impulse_noise(images, amount, rngs):
    """A share ``amount`` of the values is replaced, half of it by 0 and half by 1."""
    draw = each(rngs, lambda rng: rng.random(images.shape[1:]))
    x = unit(images)
    x[draw < amount] = 1
    x[draw < amount / 2] = 0
    return x
