"""Leads over a named rival: the same test as that of gains, on the same images and network, and nothing where the files do not tell."""

import numpy as np
import pandas as pd
import pytest

from fedlib.papers.comparison.grid import accuracies, gains
from fedlib.papers.comparison.ranking import MEAN
from fedlib.papers.comparison.recipes import CUT, NONE
from fedlib.papers.comparison.rivals import by_client, joined, rivals
from fedlib.papers.comparison.significance import cells, images_of, paired
from tests.papers.comparison_cases import by_training, of_one_test, rows

VALUES = {NONE: 50, "EM": 60, "T3A": 55, "BTFL": 52}


def read(frame):
    return by_client(accuracies(frame), cells(frame))


def of(frame, against):
    return rivals(read(frame), against)


def test_the_test_is_that_of_gains_over_the_rival():
    """As if the rival were the model without adaptation."""
    frame = rows(VALUES, seeds=3, clients=40, noise=3.0)
    found = of(frame, "T3A")
    renamed = frame[frame["method"] != NONE].replace({"method": {"T3A": NONE}})
    for column in ("original", "ooc"):
        each = gains(renamed[renamed["column"] == column])
        expected = paired(each[each["method"] != NONE], "BRFL", "clients and seeds", images_of(renamed, "BRFL", column)).set_index("method")
        own = found[found["column"] == column].set_index("method")
        for name, theirs in {"difference": "gain", "low": "low", "high": "high", "p": "p", "p_holm": "p_holm"}.items():
            assert own.loc[expected.index, name].to_numpy() == pytest.approx(expected[theirs].to_numpy())
    mean = found[found["column"] == MEAN].set_index("method")
    assert mean["difference"].to_dict() == pytest.approx(found[found["column"] != MEAN].groupby("method")["difference"].mean().to_dict())


def test_every_seeds_lead_stands_beside_the_mean():
    found = of(by_training(rows(VALUES, seeds=3, clients=40), "EM"), "T3A").set_index(["method", "column"])
    assert found.loc[("EM", "original"), ["seed_0", "seed_1", "seed_2"]].tolist() == pytest.approx([-15, 5, 25])
    assert found.loc[("EM", "original"), ["clients", "seeds"]].tolist() == [40, 3]
    assert found["against"].eq("T3A").all()
    assert "T3A" not in found.index.get_level_values("method")


def test_a_seed_in_which_one_of_the_two_diverged_does_not_count():
    frame = rows(VALUES, seeds=3, clients=40, noise=3.0)
    found = of(frame[(frame["method"] != "EM") | (frame["seed"] != 1)], "T3A").set_index(["method", "column"])
    assert found.loc[("EM", "original"), "seeds"] == 2
    assert np.isnan(found.loc[("EM", "original"), "seed_1"])
    assert found.loc[("BTFL", "original"), "seeds"] == 3


def test_a_method_that_lacks_a_test_has_no_mean_over_the_tests():
    frame = rows(VALUES, seeds=3, clients=40, noise=3.0)
    found = of(frame[(frame["method"] != "EM") | (frame["column"] != "ooc")], "T3A")
    assert {column: set(own["method"]) for column, own in found.groupby("column")} == {
        "original": {"EM", "BTFL"},
        "ooc": {"BTFL"},
        MEAN: {"BTFL"},
    }


def costly(seeds=2):
    """Both on the first images of every stream."""
    return rows({CUT: 50, "MEMO": 60, "TTT": 70}, clients=40, n=6, seeds=seeds)


def test_methods_on_other_images_or_another_network_have_no_row():
    frame = pd.concat([rows(VALUES, clients=40, seeds=2), costly()])
    frame.loc[frame["method"] == "BTFL", "model"] = "another"
    assert set(of(frame, "EM")["method"]) == {"T3A"}
    memo = of(frame, "MEMO")
    assert set(memo["method"]) == {"TTT"}
    assert memo["cut"].all()
    with pytest.raises(ValueError, match="no other method ran on the network and images of BTFL"):
        of(frame, "BTFL")


def test_a_test_that_is_no_longer_than_the_first_images_makes_no_method_whole():
    """Its mean over the tests is on fewer images than others'."""
    frame = pd.concat([rows(VALUES, clients=40, seeds=2), costly()])
    frame.loc[frame["column"] == "ooc", "n"] = 6
    assert set(of(frame, "EM")["method"]) == {"T3A", "BTFL"}


def test_seeds_with_other_numbers_of_images_are_one_run():
    """A client's number of images is its own, and the smallest of all seeds is that of a column."""
    frame = rows(VALUES, clients=40, seeds=3, noise=3.0)
    frame["n"] += frame["seed"]
    parts = [read(frame[frame["seed"] == seed]) for seed in range(3)]
    whole = rivals(read(frame), "EM")
    pd.testing.assert_frame_equal(rivals(joined(parts), "EM"), whole)
    mine = frame[frame["method"].isin([NONE, "BTFL"]) & (frame["seed"] > 0)]
    found = rivals(joined([read(mine), read(frame[frame["method"] != "BTFL"])]), "EM")
    assert found.loc[found["method"] == "BTFL", "seeds"].eq(2).all()
    assert len(found) == len(whole)


def test_of_a_method_no_seed_on_fewer_images_fills_in():
    whole = rows({NONE: 50, "EM": 60, CUT: 50, "MEMO": 55}, clients=40, seeds=2)
    cut = pd.concat([rows({NONE: 50, "EM": 60}, clients=40, seeds=3), costly(seeds=3)])
    found = rivals(joined([read(whole), read(cut)]), "EM").set_index(["method", "column"])
    assert found.loc[("MEMO", "original"), "seeds"] == 2
    assert "TTT" not in found.index


@pytest.mark.parametrize(("name", "value"), [("n", 12), ("dataset", "cifar10"), ("stand_in", True)])
def test_runs_on_other_images_are_not_paired(name, value):
    frame = rows(VALUES, clients=40, seeds=2).assign(dataset="cifar10" if name == "stand_in" else "digits")
    with pytest.raises(ValueError, match=r"client 0 of seed 0 has other images on BRFL's original in each"):
        joined([read(frame), read(frame.assign(**{name: value}))])


def test_on_few_images_nothing_is_tested():
    found = of(rows(VALUES, clients=10, seeds=3, noise=3.0), "T3A")
    assert found[["p", "p_holm"]].isna().all(axis=None)
    assert found[["low", "high"]].notna().all(axis=None)


@pytest.mark.parametrize(
    "frame", [rows(VALUES, "UPFL new clients", clients=40, noise=3.0, columns=("test",)), of_one_test(0, EM=20, T3A=0)]
)
def test_what_the_files_do_not_tell_is_not_known(frame):
    """How far the next training may be from a single one, and which answers were right where all clients have one test."""
    found = of(frame, "T3A")
    assert found["difference"].notna().all()
    assert found[["low", "high", "p", "p_holm"]].isna().all(axis=None)


def test_no_adaptation_and_unknown_names_are_refused():
    frame = rows(VALUES, clients=40)
    with pytest.raises(ValueError, match=r"no adaptation \(FedAvg\) is in tests.csv"):
        of(frame, NONE)
    with pytest.raises(ValueError, match="Did you mean 'BTFL'"):
        of(frame, "BTF")
