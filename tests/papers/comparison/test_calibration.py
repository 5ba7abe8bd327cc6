import numpy as np
import pytest

from fedlib.papers.comparison.calibration import expected_calibration_error


def oracle(sure, hit, bins):
    """Guo et al., equation (3), bin by bin: the m-th holds confidences in ((m - 1)/M, m/M]."""
    total = 0.0
    for m in range(1, bins + 1):
        inside = [(s, h) for s, h in zip(sure, hit, strict=True) if (m - 1) / bins < s <= m / bins]
        if inside:
            accuracy = sum(h for _, h in inside) / len(inside)
            confidence = sum(s for s, _ in inside) / len(inside)
            total += len(inside) / len(sure) * abs(accuracy - confidence)
    return total


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_against_plain_loops(bins):
    rng = np.random.default_rng(bins)
    sure = rng.uniform(0.1, 1, 500)
    hit = rng.random(500) < sure**2
    assert expected_calibration_error([sure], [hit], bins) == pytest.approx(oracle(sure, hit, bins))


def test_parts_are_pooled_and_not_averaged():
    """One client always sure and right, another sure and wrong: together half of the answers are right."""
    assert expected_calibration_error([np.ones(10), np.ones(10)], [np.ones(10), np.zeros(10)]) == pytest.approx(0.5)
    assert expected_calibration_error([np.ones(10)], [np.ones(10)]) == 0


def test_edges_are_of_the_bin_below_and_nothing_is_nan():
    assert expected_calibration_error([np.array([0.5, 0.5000001])], [np.array([0.0, 1.0])], 2) == pytest.approx(0.5)
    assert np.isnan(expected_calibration_error([np.array([])], [np.array([])]))
