"""OpenCV's tools, as loops over pixels."""

import numpy as np
from scipy import ndimage

from fedlib.data.corruptions import spatter
from tests.oracles import corruptions as oracle


def test_canny_and_equalisation_against_the_pixel_loops():
    rng = np.random.default_rng(0)
    smooth = ndimage.gaussian_filter(rng.normal(0.65, 0.3, (6, 24, 20)), (0, 1, 1))
    drops = (255 * np.where(smooth < 0.69, 0, smooth)).astype(np.uint8)
    noise = rng.integers(0, 60, (2, 24, 20), dtype=np.uint8)
    for stack in (drops, noise, np.zeros_like(drops)):
        np.testing.assert_array_equal(spatter.canny(stack, 50, 150), [oracle.canny(image, 50, 150) for image in stack])
        np.testing.assert_array_equal(spatter.equalize(stack), [oracle.equalize(image) for image in stack])
    assert spatter.canny(drops, 50, 150).any()


def test_a_level_is_its_own_mean():
    """As what follows truncates, 19.999... would be another level."""
    levels = np.arange(256.0)[:, None, None] * np.ones((1, 4, 4))
    assert (spatter._box(levels) == levels).all()
