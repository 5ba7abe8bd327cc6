"""Blurs against loops over pixels, and the centre zoom against SciPy's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from fedlib.data.corruptions import blur, corrupt_each
from tests.data.corruptions.photographs import PHOTOGRAPHS
from tests.oracles import corruptions as oracle


def test_glass_blur_against_the_pixel_loop():
    image, seed = PHOTOGRAPHS[3], 11
    for severity, sigma, passes in ((1, 0.05, 1), (5, 0.4, 2)):
        shifts = np.random.default_rng(seed).integers(-1, 1, (passes, 2, 30, 30))
        pixels = (255 * ndimage.gaussian_filter(image / 255, (0, sigma, sigma), mode="nearest")).astype(np.uint8)
        for step in shifts:
            pixels = oracle.glass_pass(pixels, step)
        expected = (255 * ndimage.gaussian_filter(pixels / 255, (0, sigma, sigma), mode="nearest")).astype(np.uint8)
        np.testing.assert_array_equal(corrupt_each(image[None], "glass_blur", severity, [seed])[0], expected)


@settings(deadline=None, max_examples=8)
@given(st.floats(-180, 180), st.sampled_from([(6, 1), (9, 2.5), (14, 12)]))
def test_directional_blur_against_the_pixel_loop(angle, streak):
    images = PHOTOGRAPHS[:2, :, :16, :20]
    blurred = blur.directional_blur(images, *streak, np.array([angle, -angle]))
    for image, ours, turned in zip(images, blurred, (angle, -angle), strict=True):
        difference = np.abs(ours.astype(int) - oracle.directional_blur(image, *streak, turned))
        assert difference.max() <= 1  # a sum on the edge of rounding
        assert (difference > 0).mean() < 0.01


@pytest.mark.parametrize("zoom", [1.0, 1.01, 1.1, 1.25, 1.75, 2.25])
@pytest.mark.parametrize("shape", [(32, 32), (28, 28), (16, 24)])
def test_centre_zoom_against_scipy(zoom, shape):
    x = PHOTOGRAPHS[:2, :, : shape[0], : shape[1]] / 255
    expected = np.stack([oracle.centre_zoom(image, zoom) for image in x])
    np.testing.assert_allclose(blur.centre_zoom(x, zoom), expected, atol=1e-12)
