"""Tiny files in the layouts that the loaders read: arrays, one-colour images, and a pickle that must not be opened."""

import numpy as np
import pytest
from PIL import Image

RNG_SEED = 5


def pixels(*shape):
    return np.random.default_rng(RNG_SEED).integers(0, 256, shape, dtype=np.uint8)


def save_image(path, colour, size=(12, 8)):
    """A one-colour image, losslessly if the name ends in .png."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def colour_of(image):
    return tuple(int(v) for v in np.rint(image.mean(axis=(1, 2))))


def save_npz(path, train=6, test=4, shape=(32, 32, 3), **extra):
    path.parent.mkdir(parents=True, exist_ok=True)
    x = pixels(train + test, *shape)
    y = np.arange(train + test) % 10
    np.savez(path, x_train=x[:train], y_train=y[:train, None], x_test=x[train:], y_test=y[train:], **extra)
    return x, y


class Trap:
    """Unpickling an instance raises an error that no loader may let happen."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was opened",))
