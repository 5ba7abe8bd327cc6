import numpy as np
import pytest
from PIL import Image

from fedlib.data.corruptions.common import each, gauss, grey, unit
from tests.data.corruptions.photographs import PHOTOGRAPHS


@pytest.mark.parametrize("sigma", [0.4, 1.5])
def test_the_gaussian_filter_is_a_weighted_mean_of_neighbours_with_the_edge_repeated(sigma):
    reach = round(4 * sigma)
    taps = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    taps /= taps.sum()
    x = unit(PHOTOGRAPHS[:2])
    padded = np.pad(x, ((0, 0), (0, 0), (reach, reach), (reach, reach)), mode="edge")
    expected = np.zeros_like(x)
    for row, weight in enumerate(taps):
        for column, other in enumerate(taps):
            expected += weight * other * padded[:, :, row : row + 32, column : column + 32]
    np.testing.assert_allclose(gauss(x, sigma), expected, atol=1e-12)


def test_luma_is_pillows_grey():
    pillow = [np.asarray(Image.fromarray(np.moveaxis(image, 0, -1)).convert("L")) for image in PHOTOGRAPHS]
    assert np.abs(grey(PHOTOGRAPHS)[:, 0] - pillow).max() < 0.51  # a rounding


def test_an_image_gets_the_draws_of_its_own_generator():
    drawn = each([np.random.default_rng(seed) for seed in (5, 6, 5)], lambda rng: rng.normal(size=4))
    np.testing.assert_array_equal(drawn[0], drawn[2])
    np.testing.assert_array_equal(drawn[1], np.random.default_rng(6).normal(size=4))
