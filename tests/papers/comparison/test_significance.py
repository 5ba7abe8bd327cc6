"""Tests of cells, Holm's correction, and critical differences; how often both are wrong is counted where the truth is known."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedlib.papers.comparison import significance
from fedlib.papers.comparison.ranking import replicated
from fedlib.papers.comparison.recipes import CUT, NONE, PLAIN
from fedlib.papers.comparison.significance import average_ranks, cells, critical_difference, differences, places, two_sided
from fedlib.published.pairs import holm
from tests.papers.comparison_cases import by_training, of_one_test, rows


def test_only_what_stands_on_enough_images_is_ranked():
    """MEMO has seen the first two images of each stream: 80 in all, where the others have 400."""
    full = rows({NONE: 50, "Tent": 60, "BTFL": 70}, clients=40)
    few = rows({CUT: 50, "MEMO": 90}, clients=40, n=2)
    table = places(pd.concat([full, few]))
    assert set(table["method"]) == {NONE, "Tent", "BTFL"}
    assert table.loc[table["method"] == "BTFL", "place"].eq(0).all()
    assert significance.unranked(pd.concat([full, few])).to_dict("records") == [{"setting": "BRFL", "method": "MEMO", "images": 80}]
    assert places(rows({NONE: 50, "Tent": 60})).empty


def test_a_method_whose_baseline_is_not_there_is_not_ranked():
    """As FedTTA where FedAvg on its network diverged."""
    full = pd.concat([rows({NONE: 50, "Tent": 60, "EM": 55}, clients=40), rows({"FedTTA": 70}, clients=40)])
    assert set(places(full)["method"]) == {NONE, "Tent", "EM"}
    assert differences(full).empty


def test_a_method_that_lacks_its_baseline_on_one_protocol_is_not_ranked_with_the_others():
    values = {NONE: 50, "Tent": 60, "EM": 55, "FedTTA": 70}
    there = rows(values | {PLAIN: 50}, clients=40, seeds=3)
    full = pd.concat([there, rows(values, "BTGFL", clients=40, seeds=3)])
    for table in (places(full), differences(full)):
        assert set(table["method"]) == {NONE, "Tent", "EM"}
    assert set(places(there)["method"]) == {NONE, "Tent", "EM", "FedTTA"}


def test_baselines_alone_are_not_ranked():
    alone = rows({PLAIN: 50}, clients=40)
    assert places(alone).empty
    assert significance.unranked(alone).empty
    assert differences(alone).empty


def test_holm_by_hand():
    """0.01 x 4, 0.02 x 3, 0.03 x 2 falls below what was before and is lifted to it, 0.6 x 1."""
    assert holm(np.array([0.03, 0.01, 0.6, 0.02])).tolist() == pytest.approx([0.06, 0.04, 0.6, 0.06])
    assert holm(np.array([0.4, 0.9])).tolist() == [0.8, 0.9]
    found = holm(np.array([np.nan, 0.01, np.nan, 0.04]))
    assert np.isnan(found[[0, 2]]).all()
    assert found[[1, 3]].tolist() == [0.02, 0.04]
    assert holm(np.array([])).tolist() == []


def test_shared_images_are_drawn_however_many_clients_repeat_them():
    """A method with one global model has the same gain for every client, which is one measurement and not many that agree."""
    found = pd.concat([cells(of_one_test(trial, EM=0, BBSE=0), draws=100) for trial in range(60)])
    assert 0.01 <= (found["p"] <= 0.05).mean() <= 0.12
    sure = cells(of_one_test(0, EM=20, BBSE=-20)).set_index("method")
    assert sure["verdict"].to_dict() == {"EM": "helps", "BBSE": "hurts"}
    assert (sure["high"] - sure["low"]).between(10, 22).all()


def test_where_right_answers_are_unknown_shared_images_are_not_tested():
    found = cells(of_one_test(0, EM=20).drop(columns="right")).set_index("method")
    assert found.loc["EM", "verdict"] == "undecided"
    assert found.loc["EM", ["low", "high", "p"]].isna().all()


def test_a_method_that_saw_fewer_of_the_shared_images_takes_no_place_and_leaves_the_others_theirs():
    cut = of_one_test(1, images=250, MEMO=0).replace({"method": {NONE: CUT}})
    found = places(pd.concat([of_one_test(0, EM=20, BBSE=-20), cut], ignore_index=True))
    found = found[found["protocol"] == "FedICON domain"].set_index("method")
    assert found["place"].dropna().to_dict() == {NONE: 50, "EM": 0, "BBSE": 100}
    assert found[["place_low", "place_high"]].drop("MEMO").notna().all(axis=None)
    assert found.loc["MEMO", ["place", "place_low", "place_high"]].isna().all()


def test_two_sided_is_students_t():
    scores = np.random.default_rng(0).standard_normal((1, 12, 1)) + 0.4
    error = scores.std(ddof=1) / np.sqrt(12)
    found = two_sided(scores.mean((0, 1)), np.array([[error]]), np.array([11]))
    assert found[0] == pytest.approx(stats.ttest_1samp(scores.ravel(), 0).pvalue)
    assert two_sided(np.array([0.0]), np.array([[0.0]]), np.array([5]))[0] == 1
    # What a few clients gain alike to the last image says nothing.
    assert np.isnan(two_sided(np.array([1.0]), np.array([[1e-15]]), np.array([5]))[0])
    assert np.isnan(two_sided(np.array([1.0]), np.array([[np.nan]]), np.array([1]))[0])


def test_a_test_is_where_the_interval_ends_at_zero():
    """Seeds and clients both count, each with its own number: three seeds stay three, however little they seem to differ."""
    errors, df = np.array([[1.0], [2.0]]), np.array([2, 49])
    reach = np.sqrt(stats.t.ppf(0.975, 2) ** 2 * 1 + stats.t.ppf(0.975, 49) ** 2 * 4)
    assert two_sided(np.array([reach]), errors, df)[0] == pytest.approx(0.05)
    scores = np.random.default_rng(0).standard_normal((3, 20, 400)) + np.random.default_rng(1).standard_normal((3, 1, 400)) + 1
    replicates, errors, df = replicated(scores, "UPFL new clients", "clients and seeds", draws=4000)
    low, high = np.quantile(replicates[1:], [0.025, 0.975], axis=0)
    outside = (low > 0) | (high < 0)
    assert 0.1 < outside.mean() < 0.9
    assert ((two_sided(replicates[0], errors, df) <= 0.05) == outside).mean() > 0.95


@pytest.mark.parametrize(
    ("seeds", "clients", "protocol"),
    [
        (1, 10, "BRFL"),
        (3, 10, "BRFL"),
        (3, 8, "UPFL new clients"),
        (2, 20, "UPFL new clients"),
        (3, 50, "UPFL new clients"),
        (5, 5, "TTPFL label"),
    ],
)
def test_no_effect_is_called_one_in_at_most_one_of_twenty_families(seeds, clients, protocol):
    """Six methods without any gain, of which trainings and clients differ: a family is wrong if any of them is called different."""
    rng, wrong, trials = np.random.default_rng(1), 0, 300
    redrawn = protocol == "BRFL"
    for _ in range(trials):
        trainings = rng.standard_normal((seeds, 1, 6)) if seeds > 1 else 0
        of_clients = 2 * rng.standard_normal((seeds if redrawn else 1, clients, 6))
        scores = trainings + of_clients + 2 * rng.standard_normal((seeds, clients, 6))
        replicates, errors, df = replicated(scores, protocol, "clients and seeds" if seeds > 1 else "clients", draws=200)
        wrong += (holm(two_sided(replicates[0], errors, df)) <= 0.05).any()
    assert wrong / trials <= 0.08


def test_a_cell_is_called_by_its_corrected_test():
    base = rows({NONE: 50}, clients=40)
    better = rows({"BTFL": 60}, clients=40, noise=3.0)
    worse = rows({"EM": 45}, clients=40, noise=3.0).assign()
    same = rows({"T3A": 50}, clients=40, noise=3.0)
    few = rows({CUT: 50, "MEMO": 90}, clients=40, n=2)
    table = cells(pd.concat([base, better, worse, same, few])).set_index(["column", "method"])
    verdicts = table["verdict"].unstack("column")
    assert set(verdicts.columns) == {"original", "ooc", "mean"}
    assert verdicts.loc["BTFL"].eq("helps").all()
    assert verdicts.loc["EM"].eq("hurts").all()
    assert verdicts.loc["T3A"].eq("undecided").all()
    assert verdicts.loc["MEMO"].eq("too few images").all()
    row = table.loc[("original", "BTFL")]
    assert row["low"] < row["gain"] < row["high"]
    assert row[["images", "n", "clients", "n_seeds", "over"]].tolist() == [400, 400, 40, 1, "clients"]
    assert table.loc[("mean", "BTFL"), "n"] == 800
    assert row["better"] > 0.9
    assert table.loc[("original", "T3A"), "better"] == pytest.approx(0.5, abs=0.2)
    # Untested cells take no part in the correction.
    assert (table.loc["original", "p_holm"].dropna() <= 3 * table.loc["original", "p"].dropna() + 1e-12).all()
    assert NONE not in table.index.get_level_values("method")


def test_a_test_on_stand_ins_does_not_make_the_others_stand_ins():
    made = rows({NONE: 50, "BTFL": 60}).assign(dataset="cifar10_jpeg")
    status = cells(made.assign(stand_in=made["column"] == "ooc")).set_index("column")["status"]
    assert status.to_dict() == {"original": "ok", "ooc": "stand-in", "mean": "stand-in"}


def test_without_a_correction_chance_alone_finds_something():
    """Twenty methods that do nothing, on one column: uncorrected, some p-value falls below 0.05."""
    idle = [
        rows({f"m{i}": 50}, clients=40, columns=("original",), noise=0).assign(
            accuracy=lambda f, i=i: f["accuracy"] + np.random.default_rng(i).normal(0, 5, len(f))
        )
        for i in range(20)
    ]
    table = cells(pd.concat([rows({NONE: 50}, clients=40, columns=("original",)), *idle]))
    assert (table["p"] <= 0.05).any()
    assert table["verdict"].eq("undecided").all()


def test_average_ranks_share_ties():
    assert average_ranks(np.array([[3.0, 1, 2], [5, 5, 1]])).tolist() == [1.25, 2.25, 2.5]


def test_critical_difference_of_the_print():
    """Demšar (2006), table 5a: q at 5 % is 2.569 for four methods, 3.164 for ten."""
    assert critical_difference(14, 4) == pytest.approx(2.569 * np.sqrt(4 * 5 / (6 * 14)), abs=2e-3)
    assert critical_difference(30, 10) == pytest.approx(3.164 * np.sqrt(10 * 11 / (6 * 30)), abs=2e-3)


def test_blocks_are_groups_of_clients_and_seeds():
    """BRFL and BTGFL make one block per seed, FedICON attribute another: four blocks in two seeds."""
    values = {NONE: 50, "BTFL": 60, "T3A": 55, "EM": 40}
    parts = [rows(values, name, seeds=2, clients=40) for name in ("BRFL", "BTGFL", "FedICON attribute")]
    found = differences(pd.concat(parts))
    assert found["kind"].unique().tolist() == ["labels"]
    assert found["blocks"].unique().tolist() == [4]
    assert found.set_index("method")["rank"].to_dict() == {"BTFL": 1, "T3A": 2, NONE: 3, "EM": 4}
    assert found["friedman"].iloc[0] == pytest.approx(stats.chi2.sf(12, 3))


def test_one_block_or_two_methods_make_no_diagram():
    assert differences(rows({NONE: 50, "BTFL": 60, "EM": 40}, clients=40)).empty
    assert differences(rows({NONE: 50, "BTFL": 60}, seeds=3, clients=40)).empty


def test_methods_of_all_kinds_are_ranked_together_where_all_have_them():
    labelled = rows({NONE: 50, "BTFL": 60, "T3A": 55, "EM": 40}, seeds=3, clients=40)
    new = rows({NONE: 50, "T3A": 45, "EM": 40}, "UPFL new clients", seeds=3, clients=40, columns=("test",))
    found = differences(pd.concat([labelled, new]))
    ranks = found[found["kind"] == "all"].set_index("method")["rank"].to_dict()
    assert ranks == {NONE: 1.5, "T3A": 1.5, "EM": 3}


def test_without_a_baseline_there_are_no_cells():
    assert cells(rows({"T3A": 50})).empty


def test_ties_are_half_an_improvement_and_draws_show_the_same_images():
    one = rows({NONE: 50, "Tent": 50, "BTFL": 60}, clients=40)
    found = cells(pd.concat([one, one.assign(draw=1)])).set_index(["column", "method"])
    assert found["better"].xs("Tent", level="method").eq(0.5).all()
    assert found["better"].xs("BTFL", level="method").eq(1).all()
    once = cells(one).set_index(["column", "method"])
    assert found["n"].to_dict() == once["n"].to_dict()


def test_gains_of_several_tests_that_cancel_are_a_tie():
    made = rows({NONE: 50.0, "EM": 50.0}, columns=("original", "corrupted", "ooc"))
    for column, gain in (("original", 0.1), ("corrupted", 0.2), ("ooc", -0.3)):
        made.loc[(made["method"] == "EM") & (made["column"] == column), "accuracy"] += gain
    assert cells(made).set_index("column").loc["mean", "better"] == 0.5


def test_a_cell_of_several_trainings_is_tested_over_them():
    made = rows({NONE: 50, "EM": 60}, "UPFL new clients", seeds=3, clients=40, columns=("test",), noise=0.1)
    assert cells(made).iloc[0]["verdict"] == "helps"
    cell = cells(by_training(made, "EM")).iloc[0]
    assert (cell["verdict"], cell["over"]) == ("undecided", "clients and seeds")
    assert cell["low"] < 0 < cell["high"]
