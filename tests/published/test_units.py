from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student

from fedlib.published.units import Units, all_seen, different, together, units_of


def rows(**more):
    """Two seeds, two clients, two draws; client 1 has three times the images of client 0, and the cut streams hold two."""
    made = []
    for seed in (0, 1):
        for client in (0, 1):
            for draw in (0, 1):
                value = 40.0 + 10 * seed + 20 * client + 4 * draw
                made.append({"seed": seed, "client": client, "draw": draw, "n": 10 + 20 * client, "accuracy": value})
    frame = pd.DataFrame(made).assign(setting="s", method="m", column="c")
    return frame.assign(cut_accuracy=frame["accuracy"] / 2, cut_n=2, cut=False, **more)


BY = ["setting", "method", "column"]


def test_a_clients_draws_are_one_unit_and_their_images_count_once():
    (units,) = units_of(rows(), BY)
    assert units.keys == ((0, 0), (0, 1), (1, 0), (1, 1))
    assert units.value.tolist() == [42, 62, 52, 72]
    assert units.images == 80
    assert (units.mean, units.std) == (57, pytest.approx(np.std([52, 62], ddof=1)))
    assert units.cut.value.tolist() == [21, 31, 26, 36]
    assert (units.cut.images, units.cut.partial, units.partial) == (8, True, False)


def test_images_that_seeds_clients_or_draws_share_count_once():
    """Client 1 holds the images of client 0 and more, with every seed the same; the first two of a stream are cut off."""
    frame = rows()
    frame["seen"] = [np.arange(n) for n in frame["n"]]
    (units,) = units_of(frame, BY)
    assert (units.images, units.cut.images) == (30, 2)
    frame["seen"] = [np.arange(n) + 100 * client for n, client in zip(frame["n"], frame["client"], strict=True)]
    (units,) = units_of(frame, BY)
    assert (units.images, units.cut.images) == (40, 4)
    (ahead,) = units_of(frame[frame["client"] == 0].assign(method="ahead"), BY)
    assert together(units, ahead, np.subtract).images == 10
    # A row that does not know its images: all are counted.
    frame.loc[0, "seen"] = None
    (units,) = units_of(frame, BY)
    assert units.images == 80


def test_different_images_of_rows():
    frame = rows()
    frame["seen"] = [np.arange(n) + 100 * client for n, client in zip(frame["n"], frame["client"], strict=True)]
    assert different(frame, ["seed"]).to_dict() == {0: 40, 1: 40}
    assert different(frame, ["method"]).to_dict() == {"m": 40}
    assert different(frame.drop(columns="seen"), ["method"]).to_dict() == {"m": 80}


def test_a_row_without_a_place_is_of_no_cell():
    frame = rows()
    frame["seen"] = [np.arange(n) for n in frame["n"]]
    astray = frame.assign(column=None, seen=[np.arange(1000, 1010)] * len(frame))
    (units,) = units_of(pd.concat([frame, astray], ignore_index=True), BY)
    assert units.images == 30


def test_what_several_tests_have_seen_together():
    frame = rows()
    frame["seen"] = [np.arange(n) + 5 * draw for n, draw in zip(frame["n"], frame["draw"], strict=True)]
    seen = all_seen(frame, ["client"])
    assert sorted(set(seen.loc[0, "seen"])) == list(range(15))
    assert sorted(set(seen.loc[1, "cut_seen"])) == [0, 1, 5, 6]
    (units,) = units_of(seen.reset_index().assign(seed=0, setting="s", method="m", column="c", accuracy=1.0, n=9, cut_n=9, cut=False), BY)
    assert units.images == 35


def test_weighted_units_give_the_accuracy_over_all_images():
    (units,) = units_of(rows(), BY, weighted=True)
    assert units.mean == pytest.approx(np.mean([(42 + 3 * 62) / 4, (52 + 3 * 72) / 4]))


def test_the_cell_of_a_cut_stream_says_so():
    frame = rows()
    costly = frame.assign(method="costly", accuracy=frame["cut_accuracy"], n=2, cut=True)
    whole, cut = units_of(pd.concat([frame, costly]), BY)
    assert (whole.partial, cut.partial, cut.images) == (False, True, 8)
    difference = together(whole, cut, lambda a, b: a - b)
    assert difference.value.tolist() == [0, 0, 0, 0], "on the same images"
    assert together(whole, whole, np.add).cut.value.tolist() == [42, 62, 52, 72], "a sum of whole ones still knows them"
    (alone,) = units_of(frame.drop(columns=["cut", "cut_accuracy", "cut_n"]), BY)
    assert together(alone, cut, lambda a, b: a - b) is None


def test_other_values_have_no_cut():
    (units,) = units_of(rows(loss=1.0), BY, value="loss")
    assert units.mean == 1
    assert units.cut is None
    assert not units.points
    (accuracy,) = units_of(rows(), BY)
    assert [together(a, b, np.add).points for a, b in ((accuracy, accuracy), (accuracy, units), (units, accuracy))] == [True, False, False]


def test_a_cell_may_be_named_by_a_column_of_any_name():
    cells = units_of(rows(weight=0.5, total=1, n_images=3), ["method", "weight", "total"])
    assert [u.mean for u in cells] == [57]


def test_who_has_no_images_counts_for_nothing():
    keys = ((0, 0), (0, 1), (0, 2))
    some, all_ = (Units(keys[:k], np.array([60.0, 70, 5])[:k], np.array([10.0, 10, 0])[:k], np.array([10, 10, 0])[:k]) for k in (2, 3))
    assert (all_.mean, some.mean) == (65, 65)
    assert np.isfinite(all_.error)


def test_clients_that_return_with_every_seed_are_no_new_ones():
    """Four clients whose differences persist over three seeds: as uncertain as one seed of them, not as twelve clients."""
    value = np.array([-3.0, -1.0, 1.0, 3.0])
    one = Units(tuple((0, c) for c in range(4)), value, np.ones(4), np.ones(4))
    three = Units(tuple((s, c) for s in range(3) for c in range(4)), np.tile(value, 3), np.ones(12), np.ones(12))
    assert three.error == pytest.approx(one.error) == pytest.approx(np.std(value, ddof=1) / 2)
    other = Units(tuple((s, 4 * s + c) for s in range(3) for c in range(4)), np.tile(value, 3), np.ones(12), np.ones(12))
    assert other.error == pytest.approx(np.std(np.tile(value, 3), ddof=1) / np.sqrt(12)), "other clients in every seed are"


def test_what_cancels_over_clients_and_over_seeds_is_a_spread_all_the_same():
    units = Units(((0, 0), (0, 1), (1, 0), (1, 1)), np.array([1.0, -1, -1, 1]), np.ones(4), np.ones(4))
    assert [error for error, _ in units.spreads] == [0, 0]
    assert units.error == pytest.approx(np.std([1, -1, -1, 1], ddof=1) / 2)


def shared(tests, weight=False):
    """Units of one seed whose clients saw these images; their accuracies come later."""
    frame = pd.DataFrame({"seed": 0, "client": range(len(tests)), "draw": 0, "n": [len(test) for test in tests], "seen": tests})
    frame["accuracy"] = 0.0
    (units,) = units_of(frame.assign(setting="s", method="m", column="c"), BY, weighted=weight)
    return units


def test_how_often_images_occur_among_the_clients_of_a_seed():
    own = [np.arange(5) + 5 * client for client in range(4)]
    assert shared(own).repeats == 1
    assert shared([*own, *own]).repeats == pytest.approx(2)
    assert shared([own[0]] * 4).repeats == pytest.approx(4)
    # By hand: three images of variance one, weights 1/2 + 1/2, 1/2 and 1/2 over n = 2, against four times (1/4)^2.
    assert shared([np.array([0, 1]), np.array([0, 2])]).repeats == pytest.approx((0.5**2 + 2 * 0.25**2) / (4 * 0.25**2))
    # Weighted by its images, the client with two counts twice: weights 1/3 + 1/3 and 1/3.
    assert shared([np.array([0, 1]), np.array([0])], weight=True).repeats == pytest.approx(5 / 3)
    frame = rows()
    frame["seen"] = [np.arange(n) + 100 * client for n, client in zip(frame["n"], frame["client"], strict=True)]
    assert units_of(frame, BY).iloc[0].repeats == 1, "seeds and draws may share"
    assert units_of(frame.drop(columns="seen"), BY).iloc[0].repeats == 1
    # In seed 0 both clients have the same images, in seed 1 their own.
    frame["n"], frame["seen"] = 10, [np.arange(10) + 100 * c * s for c, s in zip(frame["client"], frame["seed"], strict=True)]
    assert units_of(frame, BY).iloc[0].repeats == pytest.approx((2 + 1) / 2)


def test_clients_of_one_test_tell_nothing_of_other_images():
    units = replace(shared([np.arange(5)] * 4), value=np.array([1.0, 2.0, 3.0, 4.0]))
    assert np.isnan(units.error)
    assert units.spreads == []


@pytest.mark.parametrize("noise", [0.0, 1.0], ids=["images alone", "clients too"])
def test_the_error_is_that_of_other_images_and_clients(noise):
    """Clients with half of one another's images: the mean over 2,000 draws of all images errs as often as its margin says."""
    rng, found = np.random.default_rng(0), []
    tests = [rng.choice(100, 50, replace=False) for _ in range(12)]
    units = shared(tests)
    for _ in range(2000):
        image = rng.normal(size=100)
        value = np.array([image[test].mean() for test in tests]) + noise * rng.normal(size=12) / 7
        drawn = replace(units, value=value)
        found.append((drawn.mean, drawn.error, replace(drawn, repeats=1.0).error))
    mean, error, naive = np.array(found).T
    outside = (np.abs(mean) > student.ppf(0.975, 11) * error).mean()
    assert outside < 0.07
    assert (np.abs(mean) > student.ppf(0.975, 11) * naive).mean() > (0.2 if noise else 0.4)
    if not noise:
        assert np.sqrt((error**2).mean()) == pytest.approx(mean.std(), rel=0.06)


def test_a_difference_has_the_images_of_both():
    few, many = shared([np.arange(5), np.arange(5, 10)]), shared([np.arange(5), np.arange(4, 9)])
    assert together(few, many, np.subtract).repeats == many.repeats > 1
    assert many.map(lambda value: 2 * value).repeats == many.repeats


def test_first_images_of_several_lengths_are_not_the_same():
    """Nor are whole streams the first images of a run that was cut, unless they are as long."""
    whole = Units(((0, 0), (0, 1)), np.ones(2), np.ones(2), np.array([50, 20]))
    short = replace(whole, n=np.array([20, 20]), partial=True)
    assert together(replace(whole, cut=replace(whole, partial=True)), short, np.subtract) is None
    same = together(replace(whole, cut=short), short, np.subtract)
    assert (same.value.tolist(), same.n.tolist(), same.partial) == ([0, 0], [20, 20], True)
