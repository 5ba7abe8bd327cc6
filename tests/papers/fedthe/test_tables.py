"""FedTHE's printed tables: the settings behind every block, and the step from measured rows to printed cells."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fedlib.papers.fedthe import settings as fedthe
from fedlib.papers.fedthe import tables as fedthe_tables
from fedlib.papers.fedthe.recipes import VARIANTS
from fedlib.papers.fedthe.settings import TABLES
from fedlib.published import cells
from fedlib.results import check_table
from tests.papers.fedthe.fedthe_cases import parameters, smallest


@pytest.mark.parametrize("profile", ["smoke", "small", "paper"])
def test_every_printed_block_has_its_setting(profile):
    """Also guards the words of the print: a setting that is not understood raises."""
    p = parameters(profile)
    for name in TABLES:
        blocks = fedthe_tables.settings(p, name)
        printed = cells("fedthe", name)[["dataset", "model", "setting"]].drop_duplicates()
        assert [(*block, s.label) for block, chosen in blocks.items() for s in chosen] == list(printed.itertuples(index=False, name=None))
        for (dataset, model), chosen in blocks.items():
            for s in chosen:
                assert s.protocol.alpha == float(s.label.removeprefix("Dir(").split(")")[0])
                assert s.model == (p.wide_model if dataset == "imagenet32" else model)
                assert s.protocol.dataset == (p.imagenet32 if dataset == "imagenet32" else p.dataset)


def test_test_time_studies_share_the_trainings_of_table_1():
    p = parameters()
    schedules = {s.schedule for name in ("T1", "T3", "T8", "T10") for block in fedthe_tables.settings(p, name).values() for s in block}
    assert len(schedules) == 1


def test_alphas_and_imagenet_leave_blocks_out():
    p = parameters(alphas=[0.1], imagenet32="none")
    assert [s.label for s in fedthe_tables.settings(p, "T1")["cifar10", "cnn"]] == ["Dir(0.1)"]
    assert fedthe_tables.settings(p, "T2") == {}
    frame = fedthe_tables.table(p, "T5")
    assert set(frame["status"]) == {"not run: left out by the parameters methods, alphas or imagenet32"}


def test_a_table_that_is_not_asked_for_runs_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(fedthe_tables, "run", None)
    p = parameters(tables=["leak"], output=str(tmp_path))
    for name in TABLES:
        frame = fedthe_tables.table(p, name)
        check_table(frame)
        assert set(frame["status"]) == {"not run: not asked for"}
        assert fedthe_tables.publish(p, frame) == "not run: not asked for"
    assert list(tmp_path.iterdir()) == []


def measured_rows():
    """Two seeds, two clients, five columns; accuracy 10 x column + client + 4 x seed."""
    index = pd.MultiIndex.from_product([range(2), range(2), range(5)], names=["seed", "client", "c"])
    rows = index.to_frame(index=False)
    rows["accuracy"] = 10.0 * rows["c"] + rows["client"] + 4 * rows["seed"]
    names = {"setting": "Dir(0.1)", "method": "FedTHE", "dataset": "digits", "model": "cnn"}
    return rows.assign(column=np.array(fedthe.COLUMNS)[rows["c"]], printed_dataset="cifar10", printed_model="cnn", **names)


def test_cells_and_their_average():
    frame = fedthe_tables.measured(measured_rows()).set_index("column")
    assert frame.loc["ooc", "mean"] == 22.5
    assert frame.loc["average", "mean"] == 22.5
    assert frame["std"].tolist() == pytest.approx([np.std([0, 4], ddof=1)] * 6)
    assert set(frame["n_seeds"]) == {2}
    assert set(frame["status"]) == {"stand-in"}


def test_real_data_but_for_the_natural_shift():
    rows = measured_rows().assign(dataset="cifar10_jpeg")
    rows["stand_in"] = rows["column"].isin(["natural", "mixture"])
    status = fedthe_tables.measured(rows).set_index("column")["status"]
    assert status.to_dict() == dict.fromkeys(fedthe.COLUMNS, "ok") | dict.fromkeys(("natural", "mixture", "average"), "stand-in")
    assert set(fedthe_tables.measured(rows.assign(stand_in=False))["status"]) == {"ok"}


def test_mean_of_four():
    table = pd.DataFrame({"setting": "Dir(0.1)", "method": "M", "column": fedthe.COLUMNS, "published_mean": [1.0, 2, 3, 6, 7]})
    [row] = fedthe_tables.mean_of_four(table.assign(mean=[4.0, 4, 4, np.nan, 5])).to_dict("records")
    assert (row["published mixture"], row["published mean of four"]) == (7, 3)
    assert row["ours mixture"] == 5
    assert np.isnan(row["ours mean of four"])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return smallest(tmp_path_factory)


@pytest.mark.parametrize("name", ["T14", *(pytest.param(name, marks=pytest.mark.slow) for name in ("T2", "T8"))])
def test_tables_run(tiny, name):
    """A table with average and columns of its own, one with two columns, one whose clients are sampled."""
    frame = fedthe_tables.table(tiny, name)
    check_table(frame)
    ran = frame["method"].isin(tiny.methods)
    assert set(frame.loc[ran, "status"]) == {"stand-in"}
    assert set(frame.loc[~ran, "status"]) == {"not run: left out by the parameters methods, alphas or imagenet32"}


def test_rows_that_the_print_does_not_have(tmp_path_factory):
    """They follow the printed ones, in every printed block and column, without published values."""
    names = ["Ditto", "kNN-Per", "Ditto (prox)", "kNN-Per (oracle)"]
    p = replace(smallest(tmp_path_factory), methods=names, alphas=[0.1])
    frame = fedthe_tables.table(p, "T1")
    check_table(frame)
    further = frame[frame["method"].isin(fedthe_tables.FURTHER["T1"])]
    found = sorted(further[["method", "setting", "column"]].itertuples(index=False, name=None))
    assert found == sorted((method, "Dir(0.1)", column) for method in names[2:] for column in fedthe.COLUMNS)
    assert further["published_mean"].isna().all()
    assert frame.index[frame["method"].isin(names[2:])].min() > frame.index[~frame["method"].isin(names[2:])].max()
    ours = frame[frame["setting"] == "Dir(0.1)"].pivot(index="column", columns="method", values="mean")
    assert ours.loc["original", "kNN-Per (oracle)"] >= ours.loc["original", "kNN-Per"]
    assert not ours["Ditto (prox)"].equals(ours["Ditto"])


def test_further_rows_stand_beside_a_row_of_their_table():
    for name, methods in fedthe_tables.FURTHER.items():
        printed = set(cells("fedthe", name)["method"])
        assert {method.split(" (")[0] for method in methods} <= printed
        assert not printed & set(methods)
    assert set().union(*fedthe_tables.FURTHER.values()) == set(VARIANTS)
