"""Small tiles of real photographs, on which corruptions are measured."""

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images


def photographs() -> np.ndarray:
    """30 tiles uint8 [30, 3, 32, 32] of scikit-learn's two photographs, reduced to 160 x 96."""
    small = [np.asarray(Image.fromarray(p).resize((160, 96), Image.Resampling.BOX)) for p in load_sample_images().images]
    tiles = [p[row : row + 32, column : column + 32] for p in small for row in range(0, 96, 32) for column in range(0, 160, 32)]
    return np.ascontiguousarray(np.moveaxis(np.stack(tiles), -1, 1))


PHOTOGRAPHS = photographs()
