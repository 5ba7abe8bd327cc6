"""Places, intervals and who is ranked, on made-up gains. Coverage is counted on clients and seeds whose true means are known."""

import numpy as np
import pandas as pd
import pytest

from fedlib.papers.comparison import ranking
from fedlib.papers.comparison.ranking import OVER, distinct, place, ranked, ranks, repeats_of, replicated, resampled, stretch
from fedlib.papers.comparison.settings import PROTOCOLS
from fedlib.papers.comparison.significance import two_sided
from fedlib.tools.seeding import numpy_generator

NEW, OWN = "new", "labels"


def gains(values, seeds=1, clients=5, noise=0.0, rng=None):
    """values: protocol -> method -> mean gain."""
    rng = rng or np.random.default_rng(0)
    return pd.DataFrame(
        [
            {"setting": s, "method": m, "seed": seed, "column": "test", "client": k, "accuracy": v + noise * rng.standard_normal()}
            for s, row in values.items() for m, v in row.items() for seed in range(seeds) for k in range(clients)
        ]
    )  # fmt: skip


def test_place():
    assert place(np.array([3.0, 9.0, 5.0])).tolist() == [100, 0, 50]
    assert place(np.array([[1.0, 1.0], [0.0, 2.0]])).tolist() == [[50, 50], [100, 0]]
    assert place(np.array([4.0])).tolist() == [0]
    assert place(np.array([3.0, np.nan, 5.0])).tolist()[::2] == [100, 0]


def test_images_are_counted_once():
    """Draws show the same images, and so do the clients of one unseen domain; the worst column counts, within one seed."""
    sizes = [("BRFL", "a", 0, 0, 0, 60), ("BRFL", "a", 0, 0, 1, 60), ("BRFL", "a", 0, 1, 0, 70), ("BRFL", "b", 0, 0, 0, 300)]
    sizes += [
        ("BRFL", "a", 1, 0, 0, 500),
        ("BRFL", "b", 1, 0, 0, 500),
        ("FedICON domain", "t", 0, 0, 0, 90),
        ("FedICON domain", "t", 0, 1, 0, 90),
    ]
    rows = pd.DataFrame(sizes, columns=["setting", "column", "seed", "client", "draw", "n"]).assign(method="Tent")
    other = 100 * rows["client"].where(rows["setting"] == "BRFL", 0)
    rows["seen"] = [np.arange(n) + first for n, first in zip(rows["n"], other, strict=True)]
    assert distinct(rows).to_dict() == {("BRFL", "Tent"): 130, ("FedICON domain", "Tent"): 90}


def test_ranked_are_methods_with_enough_images_on_every_protocol_of_a_kind():
    counts = {
        ("BRFL", "FedAvg"): 300, ("BRFL", "Tent"): 300, ("BRFL", "MEMO"): 20, ("BRFL", "BTFL"): 300,
        ("BTGFL", "FedAvg"): 300, ("BTGFL", "Tent"): 199, ("BTGFL", "MEMO"): 20, ("BTGFL", "BTFL"): 200,
        ("UPFL new clients", "FedAvg"): 900, ("UPFL new clients", "Tent"): 900,
        ("TTPFL label", "FedAvg"): 120, ("TTPFL label", "Tent"): 120,
    }  # fmt: skip
    groups = ranked(pd.Series(counts), PROTOCOLS, "FedAvg")
    assert groups[OWN] == (["BRFL", "BTGFL"], ["BTFL", "FedAvg"])
    assert groups[NEW] == (["UPFL new clients"], ["FedAvg", "Tent"])
    assert ranked(pd.Series({("BRFL", "FedAvg"): 10}), PROTOCOLS, "FedAvg") == {}


def test_means_are_over_the_same_protocols_and_brfl_counts_once_with_btgfl():
    """A leads on BRFL and BTGFL, which share their clients, B on the third protocol: a draw, where three votes would have A lead."""
    table = gains({"BRFL": {"A": 2, "B": 1}, "BTGFL": {"A": 2, "B": 1}, "FedICON attribute": {"A": 0, "B": 6}})
    found = ranks(table, {OWN: (["BRFL", "BTGFL", "FedICON attribute"], ["A", "B"])}, draws=10).set_index(["protocol", "method"])
    assert found.loc[("mean", "A"), ["place", "gain", "protocols"]].tolist() == [50, 1, 2]
    assert found.loc[("mean", "B"), ["place", "gain"]].tolist() == [50, 3.5]
    assert found.loc["BTGFL", "place"].to_dict() == {"A": 0, "B": 100}


def test_kinds_of_clients_are_ranked_apart():
    table = gains({"BRFL": {"A": 2, "B": 1}, "UPFL new clients": {"B": 3, "C": 1}})
    found = ranks(table, {OWN: (["BRFL"], ["A", "B"]), NEW: (["UPFL new clients"], ["B", "C"])}, draws=10)
    mean = found[found["protocol"] == "mean"].set_index(["kind", "method"])["place"].to_dict()
    assert mean == {(OWN, "A"): 0, (OWN, "B"): 100, (NEW, "B"): 0, (NEW, "C"): 100}


def test_protocols_with_the_same_clients_are_drawn_together():
    """Gains on BTGFL that mirror those on BRFL, client by client, add up to a mean without any spread."""
    first = gains({"BRFL": {"A": 1.0}}, clients=8, noise=2)
    mirrored = first.assign(setting="BTGFL", accuracy=2 - first["accuracy"])
    found = ranks(pd.concat([first, mirrored]), {OWN: (["BRFL", "BTGFL"], ["A"])}, draws=100).set_index("protocol")
    assert found.loc["BRFL", "gain_high"] - found.loc["BRFL", "gain_low"] > 1
    assert found.loc["mean", ["gain_low", "gain_high"]].tolist() == pytest.approx([1, 1])


def test_seeds_widen_and_are_told():
    table = gains({"BRFL": {"A": 0, "B": 1}}, seeds=3, clients=10, noise=2)
    table["accuracy"] += table["seed"]
    found = ranks(table, {OWN: (["BRFL"], ["A", "B"])}).set_index(["protocol", "over", "method"])
    width = (found["gain_high"] - found["gain_low"])["mean"]
    assert (width["clients and seeds"] > 2 * width["clients"]).all()
    assert set(ranks(table[table["seed"] == 0], {OWN: (["BRFL"], ["A", "B"])}, draws=10)["over"]) == {"clients"}


def test_one_client_has_no_interval():
    found = ranks(gains({"BRFL": {"A": 2, "B": 1}}, clients=1), {OWN: (["BRFL"], ["A", "B"])}, draws=10)
    assert found["gain"].notna().all()
    assert found["place"].tolist() == [0, 100] * 2
    assert found[["gain_low", "gain_high", "place_low", "place_high"]].isna().all(axis=None)


def test_bootstrap_spread_is_that_of_a_mean():
    scores = np.random.default_rng(1).standard_normal((1, 400, 1))
    replicates = resampled(scores, 2000, numpy_generator(0, "test"))
    assert replicates.mean() == pytest.approx(scores.mean(), abs=0.01)
    assert replicates.std() == pytest.approx(scores.std() / 20, rel=0.1)


def test_clients_that_all_seeds_share_are_drawn_once():
    """Three seeds of the same clients, without any noise, tell no more than one."""
    one = np.random.default_rng(1).standard_normal((1, 400, 1))
    scores = np.repeat(one, 3, axis=0)
    shared, apart = (resampled(scores, 2000, numpy_generator(0, "test"), redrawn=redrawn).std() for redrawn in (False, True))
    assert shared == pytest.approx(one.std() / 20, rel=0.1)
    assert apart == pytest.approx(shared / np.sqrt(3), rel=0.1)


def test_seeds_that_differ_widen_only_the_interval_over_seeds():
    """Two seeds without any spread over clients."""
    scores = np.broadcast_to(np.array([0.0, 1.0])[:, None, None], (2, 30, 1))
    assert resampled(scores, 200, numpy_generator(0, "test")).std() == pytest.approx(0)
    both = resampled(scores, 2000, numpy_generator(0, "test"), seeds=True)
    assert sorted(set(both.ravel().round(6))) == [0, 0.5, 1]
    assert (both == 0).mean() == pytest.approx(0.25, abs=0.05)


def covered(seeds, clients, *, over_seeds, redrawn, plain=False, trials=250):
    """Share of the intervals of (gain, place) that hold the truth: methods of gains 0 to 4, clients and images of deviation 3."""
    truth, rng, hits = np.array([0, 0.5, 1, 2, 4.0]), np.random.default_rng(0), []
    name, over = "BRFL" if redrawn else "UPFL new clients", ranking.OVER[over_seeds]
    for trial in range(trials):
        trainings = rng.standard_normal((seeds, 1, 5))
        of_clients = 3 * rng.standard_normal((seeds if redrawn else 1, clients, 5))
        scores = truth + trainings + of_clients + 3 * rng.standard_normal((seeds, clients, 5))
        if plain:
            replicates = resampled(scores, 300, np.random.default_rng(trial + 1), seeds=over_seeds, redrawn=redrawn)
        else:
            replicates = replicated(scores, name, over, draws=300)[0][1:]
        wanted = truth if over_seeds else truth + trainings.mean((0, 1))
        for values, target in ((replicates, wanted), (place(replicates), place(wanted))):
            low, high = np.quantile(values, [0.025, 0.975], axis=0)
            hits.append(((low - 1e-9 <= target) & (target <= high + 1e-9)).mean())
    return np.mean(hits[::2]), np.mean(hits[1::2])


@pytest.mark.parametrize(
    ("seeds", "clients", "over_seeds", "redrawn"),
    [
        (1, 10, False, True),
        (1, 4, False, True),
        (3, 10, False, True),
        (3, 10, True, True),
        (3, 4, True, False),
        (3, 10, True, False),
        (2, 5, True, True),
    ],
)
def test_intervals_cover_what_they_say(seeds, clients, over_seeds, redrawn):
    gain, places = covered(seeds, clients, over_seeds=over_seeds, redrawn=redrawn)
    assert gain >= 0.93
    assert places >= 0.93


@pytest.mark.parametrize("seeds", [3, 5])
def test_tests_over_seeds_with_clients_of_their_own_reject_as_often_as_they_say(seeds):
    """The clients' spread is in the seeds' means, and must not be counted once more: without any effect, 5 % are rejected, not none."""
    scores = np.random.default_rng(seeds).standard_normal((seeds, 20, 1000))
    replicates, errors, df = replicated(scores, "BRFL", ranking.OVER[1], draws=1000)
    assert (two_sided(replicates[0], errors, df) <= 0.05).mean() == pytest.approx(0.05, abs=0.025)


def test_clients_that_share_images_count_for_less():
    """One training on tests drawn from one pool, without any effect: an interval that knows of the sharing leaves zero out as often as it
    should, one that does not far more often. Over seeds that draw their clients anew, their own spread counts."""
    rng, found = np.random.default_rng(0), []
    tests = [rng.choice(100, 50, replace=False) for _ in range(12)]
    frame = gains({"BRFL": {"Tent": 0.0}}, clients=12).assign(seen=tests)
    repeats = repeats_of(frame)
    assert repeats > 2
    assert repeats_of(frame.drop(columns="seen")) == 1
    # A first method whose streams were cut shares hardly any image.
    cut = frame.assign(method="TTT", seen=[np.array([1000 + client]) for client in range(12)])
    assert repeats_of(pd.concat([cut, frame])) == repeats
    for _ in range(300):
        image = rng.normal(size=100)
        scores = np.array([[[image[test].mean()] for test in tests]])
        for of in (repeats, 1.0):
            replicates, errors, df = replicated(scores, "BRFL", "clients", draws=200, repeats=of)
            low, high = np.quantile(replicates[1:], [0.025, 0.975], axis=0)
            found.append((low[0] > 0 or high[0] < 0, two_sided(replicates[0], errors, df)[0] < 0.05))
    told, untold = np.array(found).reshape(300, 2, 2).mean(0)
    assert (told <= 0.08).all()
    assert (untold > 0.3).all()
    scores = rng.normal(size=(3, 12, 1))
    over_seeds = [replicated(scores, "BRFL", OVER[1], draws=50, repeats=of)[0] for of in (repeats, 1.0)]
    assert np.array_equal(*over_seeds)


def test_plain_percentiles_do_not():
    """What the stretch is for: four clients, one seed."""
    assert covered(1, 4, over_seeds=False, redrawn=True, plain=True)[0] < 0.86


def test_ranked_names_exist():
    names = {*ranking.REDRAWN, *ranking.TOGETHER, *ranking.VOTE, *ranking.VOTE.values(), *ranking.SAME_TEST}
    assert names <= set(PROTOCOLS)


def test_stretch_of_one_unit_is_unknown():
    assert np.isnan(stretch(1, 0))
    assert stretch(4, 3) == pytest.approx(3.182 / 1.960 * np.sqrt(4 / 3), rel=1e-3)


def test_many_clients_are_not_set_off_for_few_seeds():
    """Two seeds of the same forty clients, whose trainings are the same but for 0.1: nearly what the clients alone would give."""
    one = np.random.default_rng(2).standard_normal((1, 40, 1)) * 5
    scores = np.concatenate([one, one + 0.1])
    (both, errors, df), (alone, _, _) = (replicated(scores, "UPFL new clients", over, draws=2000) for over in reversed(ranking.OVER))
    widths = [np.ptp(np.quantile(replicates[1:], [0.025, 0.975])) for replicates in (both, alone)]
    assert 1 <= widths[0] / widths[1] < 1.2
    assert df.tolist() == [1, 39]
    assert errors[:, 0] == pytest.approx([0.1 / 2, np.sqrt(one.var(ddof=1) / 40)], rel=0.1)


def test_what_is_drawn_decides_the_degrees_of_freedom():
    """Three seeds of five clients: the seeds' own clients count in all seeds, and over seeds only the seeds do."""
    scores = np.random.default_rng(0).standard_normal((3, 5, 1))
    df = {(name, over): replicated(scores, name, over, draws=10)[2].tolist() for name in PROTOCOLS for over in OVER}
    redrawn = {"BRFL", "BTGFL", "FedICON attribute"}
    for name in set(PROTOCOLS) - {"FedICON domain"}:
        assert df[name, "clients"] == ([12] if name in redrawn else [4])
        assert df[name, "clients and seeds"] == ([2] if name in redrawn else [2, 4])


@pytest.mark.parametrize("together", [("BRFL", "BTGFL"), ("TTPFL feature", "TTPFL label", "TTPFL hybrid")])
def test_protocols_of_the_same_clients_draw_the_same(together):
    scores = np.random.default_rng(0).standard_normal((2, 5, 3))
    first, *others = (replicated(scores, name, "clients", draws=20)[0] for name in together)
    assert all(np.array_equal(first, other) for other in others)
