import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlib.published.comparisons import (
    SURE,
    Finding,
    Quantity,
    above,
    at_least,
    average,
    below,
    chance_of,
    distinct,
    fact,
    highest,
    lowest,
    most,
    within,
)
from fedlib.published.units import Units

LOST = Quantity(math.nan, who="lost")
numbers = st.floats(0, 100)


def cell(seeds, cut=None, *, partial=False, who="", origin=None):
    """A measured cell: accuracies of the clients of every seed, and the same on cut streams."""

    def units(values, images, **more):
        keys = tuple((s, c) for s, clients in enumerate(values) for c in range(len(clients)))
        flat = np.array([v for clients in values for v in clients], dtype=float)
        return Units(keys, flat, np.ones(len(flat)), np.full(len(flat), images), **more)

    found = units(seeds, 2 if partial else 100, partial=partial, cut=cut and units(cut, 2, partial=True))
    return Quantity(found.mean, who=who, units=found, origin=origin)


def test_printed_cells_without_spread_are_compared_strictly():
    assert above(Quantity(50.01), Quantity(50.0)).state == "holds"
    assert above(Quantity(50.0), Quantity(50.0)).state == "fails"
    assert at_least(Quantity(50.0), Quantity(50.0)).state == "holds"
    assert at_least(Quantity(49.99), Quantity(50.0)).state == "fails"
    assert at_least(Quantity(46.54), Quantity(38.54), 8).state == "holds", "differences of printed digits are exact"
    assert above(Quantity(46.54), Quantity(38.54), 8).state == "fails"


def test_a_noisy_run_proves_nothing():
    """A mixture of 81.57 is not above 88.33 however large the spread: it was called so while the margin worked in the claim's favour."""
    for error in (0.0, 2.0, 6.0):
        assert above(Quantity(81.57, error**2), Quantity(88.33, error**2)).state != "holds"
    assert above(Quantity(81.57, 2.0**2), Quantity(88.33, 2.0**2)).state == "fails"
    assert above(Quantity(81.57, 6.0**2), Quantity(88.33, 6.0**2)).state == "undecided"


def test_three_states_on_either_side_of_the_margin():
    a = Quantity(50.0, 0.3**2)
    states = {gap: above(a, Quantity(50.0 - gap, 0.4**2)).state for gap in (0.51, 0.49, 0.0, -0.49, -0.51)}
    assert states == {0.51: "holds", 0.49: "undecided", 0.0: "undecided", -0.49: "undecided", -0.51: "fails"}
    assert [below(a, Quantity(50.0 + g, 0.4**2)).state for g in (0.51, 0.49, -0.51)] == ["holds", "undecided", "fails"]
    assert [above(a, Quantity(48.0, 0.4**2), by).state for by in (1.4, 1.6, 2.4, 2.6)] == ["holds", "undecided", "undecided", "fails"]


def test_a_spread_that_is_not_known_leaves_open():
    one_seed = Quantity(90.0, math.nan)
    assert above(one_seed, Quantity(10.0)).state == "undecided"
    assert within(one_seed, 0, 100).state == "undecided"
    assert "± ?" in above(one_seed, Quantity(10.0)).text
    assert above(cell([[90]]), cell([[10]])).state == "undecided", "one seed, one client"


def test_paired_differences_decide_what_deviations_alone_would_not():
    """Two methods on the same hard and easy clients: 1 point apart on each, give or take 0.1, though clients differ by 60."""
    easy = [20.0, 50.0, 80.0, 65.0]
    a = cell([easy], who="a")
    b = cell([[x - 1 + d for x, d in zip(easy, (0.1, -0.1, 0.1, -0.1), strict=True)]], who="b")
    difference = a - b
    assert difference.mean == pytest.approx(1)
    assert difference.margin == pytest.approx(np.std([0.9, 1.1, 0.9, 1.1], ddof=1) / 2)
    assert above(a, b).state == "holds"
    assert above(b, a).state == "fails"
    assert "(+1.00 ± 0.06)" in above(a, b).text


def test_one_seed_decides_nothing_by_less_than_three_tenths():
    """Though its clients agree to a hundredth: the next training may be that far away. Two seeds may; so may what is in no points."""
    gap = [0.24, 0.26, 0.25, 0.25]
    a, b = cell([[50 + x for x in gap]], who="a"), cell([[50.0] * 4], who="b")
    assert [above(x, y).state for x, y in ((a, b), (b, a))] == ["undecided"] * 2
    assert "(+0.25 ± 0.00), one seed: under 0.3" in above(a, b).text
    assert "(-0.25 ± 0.00), one seed: under 0.3" in above(b, a).text
    assert above(a, b, -0.2).state == "holds"
    assert at_least(b, b).state == "holds", "equal to the digit"
    seeds = cell([[50 + x for x in gap]] * 2), cell([[50.0] * 4] * 2)
    assert above(*seeds).state == "holds"
    assert above(a / b, 1.004).state == "holds", "a ratio"
    weights = replace(a, units=replace(a.units, points=False))
    assert above(weights, 50.1).state == "holds"


def test_the_margin_is_the_larger_of_clients_and_seeds():
    over_seeds = cell([[1, 1], [3, 3], [5, 5]])
    assert over_seeds.margin == pytest.approx(np.std([1, 3, 5], ddof=1) / np.sqrt(3))
    over_clients = cell([[1, 5], [1, 5], [1, 5]])
    assert over_clients.margin == pytest.approx(np.std([1, 5], ddof=1) / np.sqrt(2)), "the same two clients each time"


def test_weights_count_in_mean_and_margin():
    units = Units(((0, 0), (0, 1)), np.array([10.0, 40.0]), np.array([3.0, 1.0]), np.array([30, 10]))
    assert units.mean == pytest.approx(17.5)
    assert units.error == pytest.approx(np.sqrt(2 * ((0.75 * 7.5) ** 2 + (0.25 * 22.5) ** 2)))
    assert units.images == 40


def test_cells_on_different_images_are_compared_on_the_same():
    """On all images fine-tuning has 70, on the first ones 78: the costly method's 74 on these is no gain of 4 but a loss of 4."""
    tuned, costly = cell([[70, 70.2]], cut=[[78, 78.4]], who="FT"), cell([[74, 74.2]], partial=True, who="MEMO-P")
    finding = above(costly, tuned)
    assert finding.state == "fails"
    assert "MEMO-P 74.10 > FT 78.20 (-4.10 ± 0.10), first images" in finding.text
    assert (costly - tuned).mean == pytest.approx(-4.1)
    other = cell([[60, 60.2]], cut=[[50, 50]], who="FedAvg")
    assert (tuned - other).mean == pytest.approx(10), "two whole cells keep all their images"
    assert average([tuned, other, costly]).mean == pytest.approx((78.2 + 50 + 74.1) / 3)
    assert above(costly, cell([[70, 70]])).state == "undecided", "no number on the same images"


def test_the_best_is_chosen_on_the_images_of_the_comparison():
    whole = [cell([[70, 70]], cut=[[60, 60]], who="a"), cell([[65, 65]], cut=[[66, 66]], who="b")]
    assert highest(whole).who == "a"
    costly = cell([[64, 64.2]], partial=True, who="c")
    assert "b 66.00" in above(costly, highest(whole)).text
    assert highest([*whole, costly]).who == "b"
    assert lowest([*whole, costly]).who == "a"


def test_differences_of_independent_numbers_add_their_variances():
    gain = Quantity(60.0, 0.3**2) - Quantity(50.0, 0.4**2)
    assert (gain.mean, gain.margin) == (10.0, pytest.approx(0.5))
    assert [within(gain, low, 12).state for low in (9.4, 9.6, 10.4, 10.6)] == ["holds", "undecided", "undecided", "fails"]
    assert abs(gain * -2).mean == 20
    assert (gain * 2).margin == pytest.approx(1.0)


def test_arithmetic_keeps_the_pairs():
    a, b = cell([[10, 20], [12, 26]]), cell([[5, 5], [7, 8]])
    gain = abs((b - a) * 2)
    assert gain.units.value.tolist() == [10, 30, 10, 36]
    assert gain.mean == pytest.approx(21.5)
    mean = average([a, b])
    assert mean.units.value.tolist() == [7.5, 12.5, 9.5, 17]
    ratio = a / b
    assert ratio.mean == pytest.approx(a.mean / b.mean)
    assert ratio.units.mean == pytest.approx(ratio.mean)
    fewer = cell([[9, 21]])
    assert (fewer - a).mean == pytest.approx(0), "on the clients and seeds that both have"


def test_ratio_error_matches_first_order_propagation():
    ratio = Quantity(60.0, 3.0**2) / Quantity(20.0, 1.0**2)
    assert ratio.mean == 3
    assert ratio.margin == pytest.approx(3 * math.sqrt(0.05**2 + 0.05**2))


def test_extremes_skip_lost_cells_and_say_so():
    best = highest([Quantity(1.0, who="a"), LOST, Quantity(2.0, who="b")])
    assert (best.mean, best.who) == (2.0, "b (best of 2 of 3)")
    assert lowest([Quantity(1.0, who="a"), Quantity(2.0, who="b")]).who == "a"
    assert math.isnan(highest([LOST]).mean)
    mean = average([Quantity(1.0, 1.0), Quantity(3.0, 1.0)])
    assert (mean.mean, mean.variance, mean.where) == (2.0, 0.5, "mean")


def test_a_lost_cell_leaves_the_comparison_unmade():
    for finding in (above(LOST, 1), below(LOST, 1), within(LOST, 0, 1), above(LOST - Quantity(1.0), 0), most([above(LOST, 1)])):
        assert finding.state is None


def test_most_counts_what_holds_among_all():
    yes, no, open_, lost = Finding("y", "holds"), Finding("n", "fails"), Finding("u", "undecided"), Finding("l", None)
    assert most([yes, yes, yes, no, lost]).state == "holds"
    assert most([yes, yes, no, lost]).state == most([yes, lost]).state == "undecided", "what is not judged would tip it"
    assert most([yes, no, no, lost]).state == most([yes, no]).state == "fails", "half is not most"
    assert most([yes, yes, no, open_]).state == "undecided", "the open one would tip it"
    assert most([yes, yes, yes, open_, open_]).state == "holds"
    assert most([no, no, open_, yes]).state == "fails", "the open one could not"
    assert most([yes, yes, no, lost]).text == "most: 2 of 3, 1 not judged [y; y; n FAILS]"


def test_one_run_in_several_printed_cells_is_one_comparison():
    a, b = (cell([[90, 91]], who=w, origin=("digits", "mlp", w)) for w in "ab")
    again = [above(a, b), above(a, b), above(b, a), above(a, b, 1), above(a, LOST), above(a, LOST)]
    assert [f.origin for f in distinct(again)] == [again[0].origin, again[2].origin, again[3].origin, None, None]
    assert most([above(a, b), above(a, b), above(b, a)]).text.startswith("most: 0 of 2")


def test_conditions_without_a_margin_are_marked():
    assert fact("x", True).bare
    assert above(0.9, 0.6).bare
    assert not fact("x", True, exact=True).bare
    assert not above(Quantity(0.9), 0.6).bare


def test_text_carries_the_numbers():
    a, b = Quantity(74.06, 0.3**2, "ours", "T1 x"), Quantity(73.52, 0.4**2, "base", "T1 x")
    assert above(a, b).text == "T1 x: ours 74.06 > base 73.52 (+0.54 ± 0.50)"
    assert above(a, b, 2).text == "T1 x: ours 74.06 > base 73.52 by 2 (+0.54 ± 0.50)"
    assert below(a - b, 1).text == "T1 x: ours - base 0.54 < 1 (± 0.50)"
    assert above(Quantity(2.0, who="a"), Quantity(1.0, who="b")).text == "a 2.00 > b 1.00 (+1.00)"


@settings(deadline=None, max_examples=25)
@given(numbers, numbers, st.floats(0.01, 5), st.floats(0.01, 5))
def test_noise_only_opens(a, b, error_a, error_b):
    strict, soft = above(Quantity(a), Quantity(b)), above(Quantity(a, error_a**2), Quantity(b, error_b**2))
    assert soft.state in (strict.state, "undecided")
    reverse = above(Quantity(b, error_b**2), Quantity(a, error_a**2)).state
    assert soft.state == {"holds": "fails", "fails": "holds"}.get(reverse, "undecided")


def test_the_chance_is_students_of_the_paired_difference():
    """Two clients of one seed and four of it, by hand; of several seeds the larger of that over clients and that over seeds."""
    zero = cell([[50.0] * 4])
    behind = above(cell([[49.0, 47.0, 49.0, 47.0]]), zero)
    assert behind.chance == pytest.approx(scipy.stats.ttest_1samp([-1, -3, -1, -3], 0, alternative="less").pvalue)
    assert below(zero, cell([[49.0, 47.0, 49.0, 47.0]])).chance == behind.chance
    seeds = [[49.0, 47.0, 48.0], [45.0, 43.5, 44.0]]
    over_clients = scipy.stats.ttest_1samp(np.mean(seeds, 0) - 50, 0, alternative="less").pvalue
    over_seeds = scipy.stats.ttest_1samp(np.mean(seeds, 1) - 50, 0, alternative="less").pvalue
    assert above(cell(seeds), cell([[50.0] * 3] * 2)).chance == pytest.approx(max(over_clients, over_seeds))
    assert over_seeds > 10 * over_clients
    assert math.isnan(above(Quantity(1, math.nan), 2).chance)
    assert math.isnan(above(Quantity(1, 0.1, freedom=math.nan), 2).chance)
    for clients in (4, 10, 20, 25):
        alike = above(cell([[49.1] * clients]), cell([[50.3] * clients]))
        assert math.isnan(alike.chance), "clients that all fall short by as much tell no spread, however their mean is rounded"
    assert above(Quantity(1, 0.25, freedom=4), 2).chance == pytest.approx(scipy.stats.t.cdf(-2, 4))
    assert within(Quantity(1, 0.25, freedom=4), 2, 9).chance == pytest.approx(scipy.stats.t.cdf(-2, 4))
    assert average([Quantity(1, 0.5, freedom=4), Quantity(1, 0.5, freedom=9)]).freedom == 4
    assert (Quantity(1, 0.25, freedom=4) * 3 - Quantity(0, 0.1, freedom=7)).freedom == 4
    assert (fact("x", False, exact=True).chance, math.isnan(fact("x", False).chance)) == (0, True)


def test_units_that_all_fall_short_by_as_much_say_nothing_of_chance():
    two = above(cell([[48.0, 48.0]]), cell([[50.0, 50.0]]))
    assert two.state == "fails"
    assert math.isnan(two.chance)
    assert chance_of(0.0, cell([[50.0, 50.0]]) - cell([[50.0, 50.0]])) == 1, "the same answers"
    assert above(Quantity(1), Quantity(2)).chance == 0, "digits of a print"


def test_either_end_of_an_absolute_difference_counts():
    a, b = cell([[50.0, 60, 71, 80]]), cell([[48.0, 59, 66, 77]])
    assert below(abs(a - b), 1.0).chance == pytest.approx(2 * below(a - b, 1.0).chance)


def test_a_comparison_that_absent_cells_could_turn_is_undecided():
    low, high = Quantity(40, 1.0), Quantity(60, 1.0)
    best, worst = highest([low, LOST]), lowest([high, LOST])
    assert above(best, high).state == above(low, worst).state == "undecided", "the absent one may hold"
    assert above(high, best).state == below(best, high).state == above(worst, low).state == "undecided", "the absent one may fail"
    assert above(low, highest([high, LOST])).state == below(highest([high, LOST]), low).state == "fails", "a better rival adds to it"
    assert above(highest([high, LOST]), low).state == above(high, lowest([low, LOST])).state == "holds"
    assert within(best, 35, 45).state == within(worst, 55, 65).state == within(best, 50, 60).state == "undecided"
    assert within(highest([high, LOST]), 35, 45).state == within(worst, 65, 75).state == "fails", "absent ones lead farther away"
    assert above(high, highest([low, low])).state == "holds"
    assert below(abs(high - best), 30).state == below(abs(high - best), 10).state == "undecided", "a better rival may pass"
    assert below(abs(low - highest([high, LOST])), 10).state == "fails", "or be farther ahead"


def test_absent_cells_that_could_help_a_claim_keep_it_from_being_refuted():
    low, high = Quantity(40, 1.0), Quantity(60, 1.0)
    best, worst = highest([low, LOST]), lowest([high, LOST])
    assert math.isnan(above(best, high).chance)
    assert math.isnan(above(low, worst).chance)
    assert math.isnan(below(worst, low).chance)
    assert above(highest([low, low]), high).chance < 1e-9
    assert math.isnan(above(1.0, 2.0).chance), "without any margin"
    assert above(low, highest([high, LOST])).chance < 1e-9, "a better rival would only add to it"
    lead = low - highest([low, LOST])
    assert (lead.rises, lead.falls) == (False, True)
    assert math.isnan(below(lead, -5).chance), "it would be smaller with the absent rival"
    assert math.isnan(below(lead * 2, -5).chance)
    assert math.isnan(above(lead * -1, 5).chance)
    assert above(lead, 5).chance < 0.01
    assert math.isnan(below(average([lead, low]), -50).chance)
    assert math.isnan(within(lead, -9, -5).chance)
    assert within(lead, 5, 9).chance < 0.01
    assert math.isnan(below(low / highest([low, LOST]), 0.5).chance)


def test_a_best_counts_as_all_that_it_was_chosen_from():
    """Of twelve rivals with the same true mean the best is ahead of any method."""
    ours, rivals = cell([[50.0, 52, 49, 50]]), [cell([[51.0 + 0.01 * i, 52, 50, 51.5]]) for i in range(12)]
    alone = above(ours, rivals[-1]).chance
    assert above(ours, highest(rivals)).chance == pytest.approx(min(1, 12 * alone))
    assert above(ours, highest([*rivals, LOST])).chance == pytest.approx(min(1, 12 * alone))
    assert above(ours, highest([highest(rivals[:4]), highest(rivals[4:])])).chance == pytest.approx(min(1, 12 * alone)), "of two bests"
    assert average([highest(rivals), highest(rivals[:3]), ours]).tries == 36
    assert below(highest(rivals) - lowest([ours, *rivals]), 0.0).chance == pytest.approx(min(1, 12 * 13 * alone))
    assert alone < 0.1


def test_most_is_refuted_where_half_of_all_fail_beyond_chance():
    def fails(*chances):
        return [Finding(str(i), "fails", chance=chance) for i, chance in enumerate(chances)]

    yes, lost = Finding("y", "holds"), Finding("l", None)
    assert most([*fails(0.001, 0.01), yes, yes]).chance == pytest.approx(0.03), "two of four, the second of three that could be chance"
    assert math.isnan(most([*fails(0.001), yes, yes]).chance)
    assert math.isnan(most([*fails(0.001, 0.001), lost, lost, lost]).chance), "those not made could hold"


@pytest.mark.parametrize("seeds", [1, 3])
def test_noise_refutes_one_claim_in_twenty_at_most(seeds):
    """400 claims that a method leads the best of two rivals on four tests, where all are alike; clients keep their part over the seeds."""
    rng, clients, refuted = np.random.default_rng(seeds), 10, 0
    for _ in range(400):
        noise = rng.standard_normal((4, 3, seeds, clients)) + rng.standard_normal((4, 3, 1, clients))
        cells = [[cell(values) for values in column] for column in noise.tolist()]
        chances = [above(ours, highest(rivals)).chance for ours, *rivals in cells]
        refuted += min(chances) * 4 <= SURE
    assert refuted / 400 < 0.08
    assert seeds > 1 or refuted
