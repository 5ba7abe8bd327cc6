import json

import numpy as np
import pandas as pd
import pytest

from fedlib.published.accounting import accounting, explained, far, near, write_account
from fedlib.published.compare import fill


@pytest.fixture
def frame():
    """ATP's Table 1 with three measured cells: one near, one within the spread, one far."""
    run = {"setting": "feature shift", "column": "test", "n_seeds": 1, "run_dataset": "CIFAR-10", "run_model": "resnet18", "status": "ok"}
    values = {"NoAdapt": (69.9, np.nan), "BN-Adapt": (66.0, 4.0), "Tent": (60.0, 0.1)}
    return fill(
        "atp", "T1", pd.DataFrame([run | {"method": m, "mean": v, "std": s} for m, (v, s) in values.items()]), reason="not asked for"
    )


def test_counts_gaps_and_order(frame):
    row = accounting(frame).query("column == 'test' and setting == 'feature shift'").iloc[0]
    printed = frame[(frame["setting"] == "feature shift") & (frame["column"] == "test")].set_index("method")["published_mean"]
    assert (row["printed"], row["run"], row["near"], row["furthest"]) == (len(printed), 3, 2, "Tent")
    assert row["largest_gap"] == pytest.approx(60 - printed["Tent"])
    # Printed NoAdapt < Tent < BN-Adapt, ours Tent < BN-Adapt < NoAdapt: one of three pairs agrees.
    assert row["tau"] == pytest.approx(-1 / 3)
    assert accounting(frame).query("column == 'all'")["run"].tolist() == [3]


def test_near_is_a_margin_or_two_deviations(frame):
    assert frame["method"][near(frame)].tolist() == ["NoAdapt", "BN-Adapt"]
    assert not near(frame.assign(std=np.nan, published_std=np.nan))[frame["method"] == "BN-Adapt"].any()


def test_far_cells_carry_the_cause_that_was_found(frame, tmp_path):
    cells = far(frame)
    assert cells["method"].tolist() == ["Tent"]
    assert explained(cells, tmp_path)["cause"].tolist() == ["unexplained"]
    (tmp_path / "causes.csv").write_text("table,setting,method,column,cause\n,,BN-Adapt,,other\nT1,,Tent,,the rate\n")
    assert explained(cells, tmp_path)["cause"].tolist() == ["the rate"]


def test_the_page_of_a_folder(frame, tmp_path):
    with pytest.raises(FileNotFoundError, match="no table with accuracies measured on the printed network"):
        write_account(tmp_path)
    frame.loc[frame["method"] == "NoAdapt", "status"] = "stand-in"
    frame.to_csv(tmp_path / "T1.csv", index=False)
    frame.assign(table="AT1").to_csv(tmp_path / "AT1.csv", index=False)
    # Of an installed package, which knows no commit.
    run = {"profile": "smoke", "seeds": [0, 1], "date": "2026-11-27T10:00", "versions": {"fedlib": "0.3.0"}, "commit": None}
    (tmp_path / "run.json").write_text(json.dumps(run))
    account = write_account(tmp_path)
    assert set(account["table"]) == {"T1"}
    assert account["run"].min() > 0
    page = (tmp_path / "account.md").read_text()
    assert f"| 3 of {account['printed'].iloc[0]} | 2 | 1 of 2 |" in page
    assert "seeds 0, 1; 2026-11-27, fedlib 0.3.0. All parameters" in " ".join(page.split())
    assert "\n\nUnexplained:\n\n" in page
    assert "| T1 | feature shift | Tent | test | 60.00 | 71.76 | -11.76 |" in page
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "account.csv"), account.round(4))


def test_what_ran_on_another_network_is_not_set_beside_the_print(frame, tmp_path):
    frame.loc[frame["method"] == "Tent", "run_model"] = "shallow_cnn"  # which the paper prints elsewhere
    frame.loc[frame["method"] == "NoAdapt", "run_model"] = "resnet18_of_our_own"
    frame.to_csv(tmp_path / "T1.csv", index=False)
    assert write_account(tmp_path).query("column == 'all'")["run"].tolist() == [2]
    frame.assign(run_model=frame["run_model"].where(frame["run_model"].isna(), "shallow_cnn")).to_csv(tmp_path / "T1.csv", index=False)
    with pytest.raises(FileNotFoundError, match="printed network"):
        write_account(tmp_path)


def test_a_deviation_over_tests_brings_no_cell_near():
    cell = {"column": "average", "mean": 70.0, "std": np.nan, "published_mean": 60.0, "published_std": 20.0}
    assert near(pd.DataFrame([cell, cell | {"column": "test"}])).tolist() == [False, True]


def test_ranks_are_no_accuracies(tmp_path):
    run = {
        "setting": "all shifts",
        "method": "Tent",
        "mean": 3.0,
        "std": np.nan,
        "n_seeds": 1,
        "run_dataset": "CIFAR-10",
        "run_model": "resnet18",
    }
    ranks = fill("atp", "T1", pd.DataFrame([run | {"column": "avg_rank", "status": "ok"}]), reason="not asked for")
    ranks.to_csv(tmp_path / "T1.csv", index=False)
    with pytest.raises(FileNotFoundError, match="no table with accuracies"):
        write_account(tmp_path)
