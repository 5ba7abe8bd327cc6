import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlib.published.comparisons import Finding, Quantity, above, at_least, average, below, highest, lowest, most, within

LOST = Quantity(math.nan, who="lost")
numbers = st.floats(0, 100)


def test_printed_cells_are_compared_strictly():
    assert above(Quantity(50.01), Quantity(50.0)).holds
    assert not above(Quantity(50.0), Quantity(50.0)).holds
    assert at_least(Quantity(50.0), Quantity(50.0)).holds
    assert not at_least(Quantity(49.99), Quantity(50.0)).holds
    assert at_least(Quantity(46.54), Quantity(38.54), 8).holds, "differences of printed digits are exact"
    assert not above(Quantity(46.54), Quantity(38.54), 8).holds


def test_margin_is_the_joint_deviation():
    a, b = Quantity(50.0, 0.3**2), Quantity(50.45, 0.4**2)
    assert above(a, b).holds, "0.45 below, margin 0.5"
    assert not above(a, Quantity(50.55, 0.4**2)).holds


def test_one_seed_has_a_least_margin():
    a = Quantity(50.0, 0.0, 0.3)
    assert above(a, Quantity(50.29)).holds
    assert not above(a, Quantity(50.31)).holds


def test_differences_add_their_variances():
    gain = Quantity(60.0, 0.3**2) - Quantity(50.0, 0.4**2)
    assert (gain.mean, gain.margin) == (10.0, pytest.approx(0.5))
    assert within(gain, 10.4, 12).holds
    assert not within(gain, 10.6, 12).holds
    assert abs(gain * -2).mean == 20
    assert (gain * 2).margin == pytest.approx(1.0)


def test_ratio_error_matches_first_order_propagation():
    ratio = Quantity(60.0, 3.0**2) / Quantity(20.0, 1.0**2)
    assert ratio.mean == 3
    assert ratio.margin == pytest.approx(3 * math.sqrt(0.05**2 + 0.05**2))


def test_extremes_skip_lost_cells_and_say_so():
    best = highest([Quantity(1.0, who="a"), LOST, Quantity(2.0, who="b")])
    assert (best.mean, best.who) == (2.0, "b (best of 2 of 3)")
    assert lowest([Quantity(1.0, who="a"), Quantity(2.0, who="b")]).who == "a"
    assert math.isnan(highest([LOST]).mean)
    assert average([Quantity(1.0, 1.0), Quantity(3.0, 1.0)]) == Quantity(2.0, 0.5, 0.0, "", "mean")


def test_a_lost_cell_leaves_the_comparison_open():
    for finding in (above(LOST, 1), below(LOST, 1), within(LOST, 0, 1), above(LOST - Quantity(1.0), 0), most([above(LOST, 1)])):
        assert finding.holds is None


def test_most_counts_what_was_compared():
    yes, no, lost = Finding("y", True), Finding("n", False), Finding("l", None)
    assert most([yes, yes, no, lost]).holds
    assert not most([yes, no, lost]).holds
    assert most([yes, yes, no, lost]).text == "most: 2 of 3, 1 not judged [y; y; n FAILS]"


def test_text_carries_the_numbers():
    a, b = Quantity(74.06, who="ours", where="T1 x"), Quantity(73.52, who="base", where="T1 x")
    assert above(a, b).text == "T1 x: ours 74.06 > base 73.52 (+0.54)"
    assert above(a, b, 2).text == "T1 x: ours 74.06 > base 73.52 by 2 (+0.54)"
    assert below(a - b, 1).text == "T1 x: ours - base 0.54 < 1"


@settings(deadline=None, max_examples=25)
@given(numbers, numbers, st.floats(0, 5), st.floats(0, 5))
def test_noise_only_softens(a, b, sd_a, sd_b):
    strict, soft = above(Quantity(a), Quantity(b)), above(Quantity(a, sd_a**2), Quantity(b, sd_b**2))
    assert soft.holds or not strict.holds
    assert above(Quantity(a), Quantity(b)).holds != at_least(Quantity(b), Quantity(a)).holds
