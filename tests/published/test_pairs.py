import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from fedlib.published import KEY
from fedlib.published.by_client import COLUMNS, by_client, with_units
from fedlib.published.pairs import pairs
from fedlib.published.units import Units

PLACE = {"table": "T1", "dataset": "cifar10", "model": "cnn", "setting": "Dir(0.1)"}
RAN = {"run_dataset": "digits", "run_model": "cnn", "status": "ok"}


def units(seeds, *, cut=None, partial=False, weight=None):
    """Accuracies of the clients of every seed."""
    keys = tuple((s, c) for s, clients in enumerate(seeds) for c in range(len(clients)))
    value = np.concatenate([np.asarray(clients, dtype=float) for clients in seeds])
    weight = np.ones(len(value)) if weight is None else np.asarray(weight, dtype=float)
    return Units(keys, value, weight, np.full(len(value), 2 if partial else 50), cut and units(cut, partial=True), partial)


def frame(**cells):
    rows = [PLACE | RAN | {"method": m, "column": "ooc", "mean": np.nan if u is None else u.mean, "units": u} for m, u in cells.items()]
    return pd.DataFrame(rows)


def read_back(table):
    """The table as a reader of its two files has it."""
    clients = pd.read_csv(io.StringIO(by_client(table).round(4).to_csv(index=False)))
    return with_units(table.drop(columns="units"), clients)


values = st.lists(st.lists(st.floats(0, 100), min_size=3, max_size=3), min_size=1, max_size=2)


@given(values, values)
def test_the_file_keeps_what_pairs_are_made_of(ours, cut):
    cut = (cut * 2)[: len(ours)]
    table = frame(A=units(ours, cut=cut, weight=[1, 2, 3] * len(ours)), B=units(ours, partial=True), C=None)
    again = read_back(table)
    assert again["units"].iloc[2] is None
    for before, after in zip(table["units"][:2], again["units"][:2], strict=True):
        assert (after.keys, after.partial, after.images) == (before.keys, before.partial, before.images)
        assert (after.mean, after.error) == pytest.approx((before.mean, before.error), abs=1e-3, nan_ok=True)
        assert after.on_cut().mean == pytest.approx(before.on_cut().mean, abs=1e-3)
        assert after.on_cut().partial


def test_a_row_for_every_seed_and_client_that_is_known():
    clients = by_client(frame(A=units([[50, 60], [70, 80]]), B=None))
    rows = [[0, 0, 50, 50], [0, 1, 60, 50], [1, 0, 70, 50], [1, 1, 80, 50]]
    assert tuple(clients.columns) == COLUMNS
    assert clients[["seed", "client", "accuracy", "n"]].to_numpy().tolist() == rows
    assert len(by_client(frame(B=None))) == 0
    assert len(by_client(frame(B=None).drop(columns="units"))) == 0


def test_clients_of_another_run_are_refused():
    table = frame(A=units([[50, 60]]))
    with pytest.raises(ValueError, match=r"A ooc is 55\.00, and the mean of its clients 65\.00: they are of another run"):
        with_units(table.drop(columns="units"), by_client(frame(A=units([[60, 70]]))))


def test_differences_of_one_seed_are_a_paired_t_test_over_its_clients():
    a, b, c = [50.0, 60.0, 71.0, 80.0], [48.0, 59.0, 66.0, 77.0], [50.0, 61.0, 70.0, 80.0]
    found = pairs(frame(A=units([a]), B=units([b]), C=units([c])), "A").set_index("method")
    assert list(found.index) == ["B", "C"]
    assert found.loc["B", "difference"] == pytest.approx(-2.75)
    p = [ttest_rel(other, a).pvalue for other in (b, c)]
    assert found["p"].tolist() == pytest.approx(p)
    assert found["p_holm"].tolist() == pytest.approx([2 * p[0], p[1]])
    assert found.loc["B", "margin"] == pytest.approx(np.std(np.subtract(a, b), ddof=1) / 2)
    assert found.loc["B", ["clients", "seeds", "n", "cut", "status", "against"]].tolist() == [4, 1, 200, False, "ok", "A"]


def test_several_seeds_must_agree_as_well():
    """All clients gain as much in each training, and the trainings do not agree."""
    zero = units([[50.0] * 5] * 2)
    found = pairs(frame(A=zero, B=units([[51.0 + 0.01 * i for i in range(5)], [53.0 + 0.01 * i for i in range(5)]])), "A").iloc[0]
    assert found["p"] == pytest.approx(ttest_rel([51.02, 53.02], [50, 50]).pvalue, rel=1e-6)
    assert found["seeds"] == 2


def test_cut_streams_are_compared_on_the_same_images():
    """A leads by ten on all images; on the first, of which B saw no more, it is behind by five."""
    table = frame(A=units([[70.0, 71.0]], cut=[[60.0, 61.0]]), B=units([[65.0, 66.0]], partial=True))
    found = pairs(table, "A").iloc[0]
    assert (found["difference"], found["cut"], found["n"]) == (5, True, 4)


def test_stand_ins_are_told_and_what_shares_nothing_is_left_out():
    table = frame(A=units([[50.0, 60.0]]), B=units([[51.0, 62.0]]), C=units([[1.0, 2.0]], partial=True))
    table.loc[0, "status"] = "stand-in"
    found = pairs(table, "A")
    assert found["method"].tolist() == ["B"]
    assert found["status"].tolist() == ["stand-in"]


def test_what_cannot_be_tested_has_no_p_value_and_costs_the_others_nothing():
    a, b = [50.0, 60.0, 71.0, 80.0], [48.0, 59.0, 66.0, 77.0]
    found = pairs(frame(A=units([a]), B=units([b]), C=units([[55.0]])), "A").set_index("method")
    assert found["p_holm"].tolist() == pytest.approx([ttest_rel(a, b).pvalue, np.nan], nan_ok=True)
    same = pairs(frame(A=units([a]), B=units([a])), "A").iloc[0]
    assert (same["difference"], same["margin"], same["p"]) == (0, 0, 1)


def test_other_images_are_not_paired():
    table = frame(A=units([[50.0, 60.0]]), B=units([[51.0, 62.0]]))
    table.loc[1, "run_dataset"] = "cifar10"
    assert pairs(table, "A").empty


def test_wrong_questions_are_named():
    with pytest.raises(ValueError, match=r"no cell's clients are known: the table has no file <table>_clients\.csv"):
        pairs(frame(A=None), "A")
    with pytest.raises(ValueError, match="unknown method with clients 'Z'"):
        pairs(frame(A=units([[50.0, 60.0]])), "Z")


def test_a_cell_is_named_as_in_the_result_files():
    assert COLUMNS[: len(KEY)] == KEY
