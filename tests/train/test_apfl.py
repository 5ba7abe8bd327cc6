import pytest
import torch

from fedlib.train.apfl import update_alpha
from tests.oracles import apfl as oracle


@pytest.mark.parametrize("seed", range(5))
def test_equals_the_loop(seed):
    draws = torch.randn(4, 30, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    for alpha in (0.0, 0.3, 1.0):
        expected = oracle.update_alpha(alpha, *draws.tolist(), 0.02)
        assert update_alpha(alpha, *draws, lr=0.02).item() == pytest.approx(expected, abs=1e-12)
        assert update_alpha(torch.tensor(alpha), *draws.float(), lr=0.02).item() == pytest.approx(expected, abs=1e-5)


def test_by_hand():
    """<(2, 0) - (1, 0), 0.25 (4, 1) + 0.75 (2, 1)> = 2.5, plus 0.02 * 0.25: a step of 0.1 leads from 0.25 to below zero."""
    u, v, grad_u, grad_v = (torch.tensor(values) for values in ([1.0, 0.0], [2.0, 0.0], [2.0, 1.0], [4.0, 1.0]))
    assert update_alpha(0.25, u, v, grad_u, grad_v, lr=0.01).item() == pytest.approx(0.25 - 0.01 * 2.505)
    assert update_alpha(0.25, u, v, grad_u, grad_v, lr=0.1).item() == 0
    assert update_alpha(0.25, u, v, -grad_u, -grad_v, lr=1.0).item() == 1
