import numpy as np
import pytest
from scipy import ndimage

from fedlib.data.corruptions import corrupt_each, digital
from tests.data.corruptions.photographs import PHOTOGRAPHS
from tests.oracles import corruptions as oracle


@pytest.mark.parametrize(("severity", "strength", "sigma", "jitter"), [(1, 0, 0, 2.56), (3, 2.56, 1.92, 1.92), (5, 3.2, 0.96, 0.96)])
def test_elastic_transform_against_the_pixel_loop(severity, strength, sigma, jitter):
    image, seed = PHOTOGRAPHS[4], 7
    rng = np.random.default_rng(seed)
    points = np.array([(26, 26), (26, 6), (6, 6)], float)
    moved = points + rng.uniform(-jitter, jitter, (3, 2))
    forward = np.linalg.lstsq(np.c_[points, np.ones(3)], moved, rcond=None)[0]
    grid = np.moveaxis(np.mgrid[:32, :32], 0, -1)
    back = (grid - forward[2]) @ np.linalg.inv(forward[:2])
    expected = oracle.warp(image / 255, back, oracle.mirror_without_edge)
    displacement = [ndimage.gaussian_filter(d, sigma, mode="reflect", truncate=3) for d in rng.uniform(-1, 1, (2, 32, 32))]
    expected = oracle.warp(expected, grid + strength * np.stack(displacement, -1), oracle.mirror_with_edge)
    ours = corrupt_each(image[None], "elastic_transform", severity, [seed])[0]
    assert np.abs(ours - 255 * expected).max() < 1.01  # truncation, and float32 inside


def test_contrast_keeps_the_mean_of_a_channel_and_scales_its_spread():
    changed = digital.contrast(PHOTOGRAPHS, 0.4, None)
    np.testing.assert_allclose(changed.mean(axis=(2, 3)), PHOTOGRAPHS.mean(axis=(2, 3)) / 255)
    np.testing.assert_allclose(changed.std(axis=(2, 3)), 0.4 * PHOTOGRAPHS.std(axis=(2, 3)) / 255)


def test_saturation_leaves_the_brightest_channel_and_all_greys():
    brightest = PHOTOGRAPHS.max(axis=1) / 255
    for constants in ((0.1, 0), (2.5, 0.2)):
        np.testing.assert_allclose(digital.saturate(PHOTOGRAPHS, constants, None).max(axis=1), brightest, atol=1e-12)
    grey = np.repeat(PHOTOGRAPHS[:, :1], 3, axis=1)
    np.testing.assert_allclose(digital.saturate(grey, (2.5, 0), None), grey / 255, atol=1e-12)


@pytest.mark.parametrize("channels", [1, 3])
def test_pixelation_at_half_the_side_shows_means_of_four_pixels(channels):
    images = PHOTOGRAPHS[:, :channels]
    means = images.reshape(-1, channels, 16, 2, 16, 2).mean(axis=(3, 5))
    expected = means.repeat(2, axis=2).repeat(2, axis=3)
    assert np.abs(digital.pixelate(images, 0.5, None) - expected).max() <= 1  # Pillow rounds after the rows and after the columns
