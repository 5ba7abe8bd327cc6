import numpy as np
import pandas as pd
import pytest

from fedlib import published
from fedlib.published.compare import beyond_noise, fill, rows_of

REASON = "this profile leaves it out"
ONE = {"setting": "feature shift", "method": "Tent", "column": "test", "mean": 70.0, "std": 0.5, "n_seeds": 3}
RUN = {"run_dataset": "digits", "run_model": "cnn", "status": "stand-in"}


def measured(*changes):
    return pd.DataFrame([{**ONE, **RUN, **change} for change in changes or ({},)])


def test_one_row_per_published_cell_in_contract_form():
    frame = fill("atp", "T1", measured(), reason=REASON)
    assert tuple(frame.columns) == published.TABLE_COLUMNS
    names = ["table", *published.KEY]
    pd.testing.assert_frame_equal(frame[names], published.cells("atp", "T1")[names])
    ours = frame[frame["status"] == "stand-in"]
    assert len(ours) == 1
    row = ours.iloc[0]
    assert (row["mean"], row["published_mean"], row["n_seeds"], row["run_dataset"]) == (70.0, 71.76, 3, "digits")
    assert set(frame["status"]) == {"stand-in", f"not run: {REASON}"}
    assert frame["mean"].notna().sum() == 1


def test_without_dataset_a_row_serves_every_block_of_its_setting():
    everywhere = fill("atp", "T5", measured(), reason=REASON)
    assert everywhere["mean"].notna().sum() == 2
    one = fill("atp", "T5", measured({"dataset": "cifar100", "model": "resnet50"}), reason=REASON)
    assert list(one[one["mean"].notna()]["dataset"]) == ["cifar100"]


def test_reasons_by_name():
    reasons = {"MEMO": "takes hours on this machine", "label shift": "needs more classes"}
    frame = fill("atp", "T1", measured(), reason=REASON, reasons=reasons).set_index(["setting", "method", "column"])["status"]
    assert frame["feature shift", "MEMO", "test"] == "not run: takes hours on this machine"
    assert frame["label shift", "MEMO", "test"] == "not run: needs more classes"
    assert frame["hybrid shift", "EM", "test"] == f"not run: {REASON}"


@pytest.mark.parametrize(
    ("frame", "reason", "message"),
    [
        (measured({"column": "ooc"}), REASON, "prints no cell feature shift . Tent . ooc"),
        (measured({"setting": "feature"}), REASON, "prints no cell feature . Tent . test"),
        (measured({}, {}), REASON, "measured twice"),
        (measured().drop(columns="status"), REASON, "lack the columns status"),
        (measured(), "too short", "at least 10 characters"),
    ],
)
def test_bad_input_is_named(frame, reason, message):
    with pytest.raises(ValueError, match=message):
        fill("atp", "T1", frame, reason=reason)


def test_every_table_can_be_filled_from_nothing():
    empty = measured().iloc[:0]
    for paper in published.PAPERS:
        for table in published.cells(paper)["table"].unique():
            frame = fill(paper, table, empty, reason=REASON)
            assert len(frame) == len(published.cells(paper, table))
            assert frame["mean"].isna().all()


def test_a_method_that_the_print_lacks_becomes_further_rows():
    ours = measured({"method": "Ditto (prox)", "n": 120}, {"n": 400})
    frame = fill("atp", "T5", ours, reason=REASON)
    assert tuple(frame.columns) == published.TABLE_COLUMNS
    assert len(frame) == len(published.cells("atp", "T5")) + 2
    further = frame.tail(2)
    assert set(further["method"]) == {"Ditto (prox)"}
    assert further[["dataset", "model", "setting", "column"]].apply(tuple, axis=1).tolist() == [
        ("cifar10", "shallow_cnn", "feature shift", "test"),
        ("cifar100", "resnet50", "feature shift", "test"),
    ]
    assert further[["published_mean", "published_std"]].isna().all(axis=None)
    assert further["n"].tolist() == [120, 120]
    assert frame.loc[frame["method"] == "Tent", "n"].dropna().tolist() == [400, 400]
    rows = list(rows_of(frame))
    assert rows.index(("cifar10", "shallow_cnn", "feature shift", "Ditto (prox)")) == 11, "after the printed methods of its block"
    one = fill("atp", "T5", measured({"method": "X", "dataset": "cifar10", "model": "shallow_cnn"}), reason=REASON)
    assert one["method"].tolist().count("X") == 1


def test_beside_a_users_images_nothing_of_the_print_stands():
    frame = fill("atp", "T5", measured({"dataset": "cifar10", "model": "shallow_cnn", "run_dataset": "mine.npz"}), reason=REASON)
    theirs = frame["dataset"] == "cifar10"
    assert frame.loc[theirs, ["published_mean", "published_std"]].isna().all(axis=None)
    assert frame.loc[~theirs, ["published_mean", "published_std"]].notna().any().all(), "the other block was not run on them"


def test_noise_formula():
    # Tent, feature shift: printed 71.76 with 0.09 over five seeds; ours 3 seeds of sd 0.5: two standard errors are 0.583 points.
    std = published.cells("atp", "T1").query("method == 'Tent' and setting == 'feature shift'")["std_value"].item()
    edge = 2 * np.sqrt(0.5**2 / 3 + std**2 / 5)
    for gap, expected in ((edge + 0.01, "yes"), (edge - 0.01, "no"), (-edge - 0.01, "yes")):
        frame = fill("atp", "T1", measured({"mean": 71.76 + gap}), reason=REASON)
        assert beyond_noise(frame)[frame["mean"].notna()].item() == expected
    frame = fill("atp", "T1", measured({"n_seeds": 1, "std": None}), reason=REASON)
    assert beyond_noise(frame)[frame["mean"].notna()].item() == "one seed"
    rank = fill("atp", "T1", measured({"setting": "all shifts", "column": "avg_rank", "mean": 2.0}), reason=REASON)
    assert beyond_noise(rank)[rank["mean"].notna()].item() == "no spread printed"
    assert set(beyond_noise(rank)[rank["mean"].isna()]) == {""}


def test_the_printed_deviation_of_an_average_is_over_tests():
    cells = published.cells("fedthe", "T3")
    cell = cells[(cells["column"] == "average") & cells["std_value"].notna()].iloc[0]
    ours = {name: cell[name] for name in ("setting", "method", "column")} | {"mean": 1.0, "std": 0.1, "n_seeds": 3}
    ours |= {"run_dataset": "digits", "run_model": "cnn", "status": "stand-in"}
    frame = fill("fedthe", "T3", pd.DataFrame([ours]), reason="left out of this run")
    assert set(beyond_noise(frame)[frame["mean"].notna()]) == {"no spread printed"}
