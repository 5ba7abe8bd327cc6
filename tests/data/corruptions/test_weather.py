"""The fog's plasma against a loop over points, and the frost's texture against its stated colours."""

import numpy as np
import pytest

from fedlib.data.corruptions import weather
from tests.oracles import corruptions as oracle


@pytest.mark.parametrize(("side", "decay"), [(8, 3), (32, 1.75)])
def test_plasma_against_the_point_loop(side, decay):
    noise = np.random.default_rng(0).uniform(-1, 1, (3, side, side))
    heights = weather.plasma(noise, decay)
    np.testing.assert_allclose(heights, np.stack([oracle.plasma(n, decay) for n in noise]), atol=1e-12)
    assert heights.min() == 0
    assert heights.max() == 1


def test_frost_texture_has_the_stated_colours_and_contrast():
    textures = np.stack([weather._frost_texture(np.random.default_rng(seed), (32, 32)) for seed in range(1000)])
    assert textures.mean(axis=(0, 2, 3)) == pytest.approx([144.2, 167.8, 177.4], rel=0.03)
    assert textures[:, 0].var(axis=(1, 2)).mean() == pytest.approx(0.2 * 16**2 + 0.4 * 18**2 + 0.2 * 26**2 + 0.2 * 34**2, rel=0.06)
    smooth = [weather._smooth(np.random.default_rng(seed).standard_normal((16, 16)), 3) for seed in range(400)]
    assert np.square(smooth).mean() == pytest.approx(1, abs=0.1)
