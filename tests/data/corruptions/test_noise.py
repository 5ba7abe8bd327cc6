import numpy as np
import pytest

from fedlib.data.corruptions import corrupt


def test_noise_has_the_stated_distribution():
    grey = np.full((50, 3, 32, 32), 128, np.uint8)
    level = 128 / 255
    for kind, sd in (("gaussian_noise", 0.1), ("speckle_noise", 0.2 * level), ("shot_noise", (level / 50) ** 0.5)):
        noisy = corrupt(grey, kind, 5, 1).astype(float)
        assert noisy.std() == pytest.approx(255 * sd, rel=0.02)
        assert noisy.mean() == pytest.approx(127.5, abs=0.5)  # truncation lowers the mean by half a level
    salted = corrupt(grey, "impulse_noise", 4, 1)
    assert [(salted == value).mean() for value in (0, 255)] == pytest.approx([0.025, 0.025], rel=0.05)
    assert ((salted == 0) | (salted == 255) | (salted == 128)).all()
    assert not (salted[:, 0] == salted[:, 1]).all()


def test_noise_that_light_causes_leaves_black_black():
    """Shot and speckle noise grow with the signal; the other two show on black as well."""
    black = np.zeros((4, 3, 16, 16), np.uint8)
    for kind, shows in (("shot_noise", False), ("speckle_noise", False), ("gaussian_noise", True), ("impulse_noise", True)):
        assert corrupt(black, kind, 5, 0).any() == shows, kind
