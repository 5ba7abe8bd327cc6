"""FedTHE's printed tables: the settings behind every block, and the step from measured rows to printed cells."""

import numpy as np
import pandas as pd
import pytest

from fedlib import study as studies
from fedlib.papers.fedthe import mean_of_four
from fedlib.papers.fedthe.recipes import VARIANTS
from fedlib.papers.fedthe.settings import COLUMNS
from fedlib.papers.fedthe.tables import FURTHER, scores
from fedlib.published import cells
from fedlib.results import check_table
from tests.papers.fedthe.fedthe_cases import blocks, parameters, smallest, study

TABLES = [f"T{i}" for i in range(1, 16)]
LEFT_OUT = "not run: left out by the parameters methods, alphas or imagenet32"


@pytest.mark.parametrize("profile", ["smoke", "small", "paper"])
def test_every_printed_block_has_its_setting(profile):
    """Also guards the words of the print: a setting that is not understood raises."""
    p = parameters(profile, alphas=[0.1, 1.0, 10.0])
    for name in TABLES:
        found = blocks(p, name)
        printed = cells("fedthe", name)[["dataset", "model", "setting"]].drop_duplicates()
        assert [(b.dataset, b.model, s.label) for b in found for s in b.settings] == list(printed.itertuples(index=False, name=None))
        for b in found:
            for s in b.settings:
                assert s.protocol.alpha == float(s.label.removeprefix("Dir(").split(")")[0])
                assert s.model == (p.wide_model if b.dataset == "imagenet32" else b.model)
                assert s.protocol.dataset == (p.imagenet32 if b.dataset == "imagenet32" else p.dataset)


def test_test_time_studies_share_the_trainings_of_table_1():
    p = parameters()
    schedules = {s.schedule for name in ("T1", "T3", "T8", "T10") for block in blocks(p, name) for s in block.settings}
    assert len(schedules) == 1


def test_alphas_and_imagenet_leave_blocks_out(monkeypatch):
    monkeypatch.setattr(studies, "run", None)
    given = study(alphas=[0.1], imagenet32="none")
    assert [s.label for block in blocks(given.p, "T1") for s in block.settings] == ["Dir(0.1)"]
    assert not any(block.settings for block in blocks(given.p, "T2"))
    assert set(given.frame("T5")["status"]) == {"not run: switched off by the parameter imagenet32"}


def test_a_table_that_is_not_asked_for_runs_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(studies, "run", None)
    given = study(tables=["leak"], output=str(tmp_path))
    for name in TABLES:
        frame = given.frame(name)
        check_table(frame)
        assert set(frame["status"]) == {"not run: not asked for"}
        assert given.show(name) == studies.NOT_HERE
    assert list(tmp_path.iterdir()) == []


def measured_rows():
    """Two seeds, two clients, five columns; accuracy 10 x column + client + 4 x seed."""
    index = pd.MultiIndex.from_product([range(2), range(2), range(5)], names=["seed", "client", "c"])
    rows = index.to_frame(index=False)
    rows["accuracy"] = 10.0 * rows["c"] + rows["client"] + 4 * rows["seed"]
    names = {"setting": "Dir(0.1)", "method": "FedTHE", "dataset": "digits", "model": "cnn"}
    return rows.assign(column=np.array(COLUMNS)[rows["c"]], printed_dataset="cifar10", printed_model="cnn", **names)


def test_cells_and_their_average():
    frame = scores(parameters(), measured_rows()).set_index("column")
    assert frame.loc["ooc", "mean"] == 22.5
    assert frame.loc["average", "mean"] == 22.5
    assert frame["std"].tolist() == pytest.approx([np.std([0, 4], ddof=1)] * 6)
    assert set(frame["n_seeds"]) == {2}
    assert set(frame["status"]) == {"stand-in"}


def test_real_data_but_for_the_natural_shift():
    rows = measured_rows().assign(dataset="cifar10_jpeg")
    rows["stand_in"] = rows["column"].isin(["natural", "mixture"])
    status = scores(parameters(), rows).set_index("column")["status"]
    assert status.to_dict() == dict.fromkeys(COLUMNS, "ok") | dict.fromkeys(("natural", "mixture", "average"), "stand-in")
    assert set(scores(parameters(), rows.assign(stand_in=False))["status"]) == {"ok"}


def test_mean_of_four():
    table = pd.DataFrame({"setting": "Dir(0.1)", "method": "M", "column": COLUMNS, "published_mean": [1.0, 2, 3, 6, 7]})
    [row] = mean_of_four(table.assign(mean=[4.0, 4, 4, np.nan, 5])).to_dict("records")
    assert (row["published mixture"], row["published mean of four"]) == (7, 3)
    assert row["ours mixture"] == 5
    assert np.isnan(row["ours mean of four"])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return study(**smallest(tmp_path_factory))


@pytest.mark.parametrize("name", ["T14", *(pytest.param(name, marks=pytest.mark.slow) for name in ("T2", "T8"))])
def test_tables_run(tiny, name):
    """A table with average and columns of its own, one with two columns, one whose clients are sampled."""
    frame = tiny.frame(name)
    check_table(frame)
    ran = frame["method"].isin(tiny.p.methods)
    assert set(frame.loc[ran, "status"]) == {"stand-in"}
    assert set(frame.loc[~ran, "status"]) == {LEFT_OUT}


def test_rows_that_the_print_does_not_have(tmp_path_factory):
    """They follow the printed ones, in every printed block and column, without published values."""
    names = ["Ditto", "kNN-Per", "Ditto (prox)", "kNN-Per (oracle)"]
    frame = study(**smallest(tmp_path_factory) | {"methods": names, "alphas": [0.1]}).frame("T1")
    check_table(frame)
    further = frame[frame["method"].isin(FURTHER["T1"])]
    found = sorted(further[["method", "setting", "column"]].itertuples(index=False, name=None))
    assert found == sorted((method, "Dir(0.1)", column) for method in names[2:] for column in COLUMNS)
    assert further["published_mean"].isna().all()
    assert frame.index[frame["method"].isin(names[2:])].min() > frame.index[~frame["method"].isin(names[2:])].max()
    ours = frame[frame["setting"] == "Dir(0.1)"].pivot(index="column", columns="method", values="mean")
    assert ours.loc["original", "kNN-Per (oracle)"] >= ours.loc["original", "kNN-Per"]
    assert not ours["Ditto (prox)"].equals(ours["Ditto"])


def test_further_rows_stand_beside_a_row_of_their_table():
    for name, methods in FURTHER.items():
        printed = set(cells("fedthe", name)["method"])
        assert {method.split(" (")[0] for method in methods} <= printed
        assert not printed & set(methods)
    assert set().union(*FURTHER.values()) == set(VARIANTS)
