"""FedTHE's notebook as data: parameters, the settings behind printed words, tables and figures."""

from dataclasses import fields, replace

import matplotlib

matplotlib.use("Agg")
import numpy as np
import pandas as pd
import pytest

from fedlib.papers import fedthe, fedthe_figures, fedthe_tables
from fedlib.papers.fedthe import FIGURES, TABLES, Parameters, setting
from fedlib.plots import charts
from fedlib.published import cells
from fedlib.published.claims import FIGURE_COLUMNS, PROVENANCE
from fedlib.recipes.fedthe import ABLATIONS, RECIPES
from fedlib.results import check_table

NAMESPACE = dict.fromkeys(field.name for field in fields(Parameters)) | {"split": "fixed", "jobs": 1, "device": "cpu", "cache": "cache"}


def parameters(profile="smoke", **given):
    return fedthe.parameters(NAMESPACE | {"profile": profile} | given)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tables": ["T16"]}, "unknown table, figure or study 'T16'"),
        ({"methods": ["FedThe"]}, "Did you mean 'FedTHE'"),
        ({"split": "fix"}, "Did you mean 'fixed'"),
        ({"wide_model": "cnnn"}, "Did you mean 'cnn'"),
        ({"side_rounds": 0}, "side_rounds must be at least 1"),
        ({"network_clients": 1}, "network_clients must be at least 2"),
        ({"long_rounds": [500]}, "long_rounds must be two numbers"),
        ({"alphas": [0.0]}, "positive Dirichlet values"),
    ],
)
def test_bad_values(wrong, message):
    with pytest.raises(ValueError, match=message):
        parameters(**wrong)


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


def test_what_the_words_of_a_setting_vary():
    p = parameters("paper")
    plain = setting(p, "Dir(0.1)")
    assert setting(p, "Dir(0.1), severity 3").protocol == replace(plain.protocol, severity=3)
    assert setting(p, "Dir(0.1), test size 0.75").protocol == replace(plain.protocol, test_size=0.75)
    assert setting(p, "Dir(0.1), train size 0.5").protocol == replace(plain.protocol, train_size=0.5)
    assert setting(p, "Dir(0.1), 100 clients").protocol == replace(plain.protocol, n_clients=100)
    assert setting(p, "Dir(0.1), sampling 0.4").schedule == replace(plain.schedule, participation=0.4)
    personal = replace(plain.schedule.personal, epochs=8)
    assert setting(p, "Dir(0.1), personal epochs 8").schedule == replace(plain.schedule, personal=personal)
    for wrong in ("Dir(0.1), strength 3", "iid", "Dir(0.1), 100"):
        with pytest.raises(ValueError, match="not understood"):
            setting(p, wrong)


def test_the_papers_schedule():
    s = setting(parameters("paper"), "Dir(0.1)")
    assert (s.schedule.rounds, s.schedule.local.epochs, s.schedule.personal.epochs, s.protocol.n_clients) == (100, 5, 1, 20)
    assert (s.schedule.local.lr, s.schedule.local.momentum, s.schedule.local.batch_size) == (0.01, 0, 32)
    assert (s.protocol.natural_size, s.protocol.corruption_draws, s.protocol.split) == (2000, 2, "fixed")
    resnet, cct = (setting(parameters("paper"), "Dir(1.0)", model=m).schedule.local for m in ("resnet20gn", "cct4"))
    assert (resnet.optimizer, resnet.lr, resnet.momentum) == ("sgd", 0.01, 0.9)
    assert (cct.optimizer, cct.lr) == ("adam", 0.001)
    imagenet = setting(parameters("paper"), "Dir(1.0)", model="resnet20gn_w4", dataset="imagenet32").schedule
    assert (imagenet.rounds, imagenet.local.batch_size) == (300, 128)


def test_test_time_studies_share_the_trainings_of_table_1():
    p = parameters()
    schedules = {s.schedule for name in ("T1", "T3", "T8", "T10") for block in fedthe_tables.settings(p, name).values() for s in block}
    assert len(schedules) == 1


def test_cct_solves_for_the_weight_at_a_tenth_of_the_rate():
    p = parameters()
    assert p.recipes(["FedTHE"], "cct4")["FedTHE"].adapt.lr == 0.01
    assert p.recipes(["FedTHE+"], "cct4")["FedTHE+"].adapt.ensemble.lr == 0.01
    assert p.recipes(["FedTHE", "FedTHE+"], "resnet20gn") == {m: RECIPES[m] for m in ("FedTHE", "FedTHE+")}


def test_methods_keep_the_printed_order():
    assert list(parameters(methods=["FedTHE", "FedAvg"]).recipes()) == ["FedAvg", "FedTHE"]
    names = cells("fedthe", "T13")["method"].unique()
    assert list(parameters().recipes(names)) == list(names)
    assert set(ABLATIONS) == set(names)


def test_alphas_and_imagenet_leave_blocks_out():
    p = parameters(alphas=[0.1], imagenet32="none")
    assert [s.label for s in fedthe_tables.settings(p, "T1")["cifar10", "cnn"]] == ["Dir(0.1)"]
    assert fedthe_tables.settings(p, "T2") == {}
    frame = fedthe_tables.table(p, "T5")
    assert set(frame["status"]) == {"not run: left out by the parameters methods, alphas or imagenet32"}
    assert fedthe_figures.settings(p, "F9") == []


def test_a_section_that_is_not_asked_for_runs_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(fedthe_tables, "run", None)
    monkeypatch.setattr(fedthe_figures, "run", None)
    p = parameters(tables=["leak"], output=str(tmp_path))
    for name in TABLES:
        frame = fedthe_tables.table(p, name)
        check_table(frame)
        assert set(frame["status"]) == {"not run: not asked for"}
        assert fedthe_tables.publish(p, frame) == "not run: not asked for"
    for name in (*FIGURES, "H26"):
        assert fedthe_figures.publish(p, name, fedthe_figures.frame(p, name), charts.bars, "") == "not run: not asked for"
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
    frame = fedthe_tables.measured(measured_rows().assign(dataset="cifar10_jpeg")).set_index("column")
    assert frame["status"].to_dict() == {c: "stand-in" if c in ("natural", "mixture") else "ok" for c in (*fedthe.COLUMNS, "average")}


def test_mean_of_four():
    table = pd.DataFrame({"setting": "Dir(0.1)", "method": "M", "column": fedthe.COLUMNS, "published_mean": [1.0, 2, 3, 6, 7]})
    [row] = fedthe_tables.mean_of_four(table.assign(mean=[4.0, 4, 4, np.nan, 5])).to_dict("records")
    assert (row["published mixture"], row["published mean of four"]) == (7, 3)
    assert row["ours mixture"] == 5
    assert np.isnan(row["ours mean of four"])


def test_learning_curves_end_at_the_last_round():
    assert fedthe_figures.rounds_of(20) == (1, 7, 14, 20)
    assert fedthe_figures.rounds_of(2) == (1, 2)
    assert fedthe_figures.rounds_of(1) == (1,)


def test_facts_beside_a_result():
    p = parameters()
    line = fedthe.about(p, [setting(p, "Dir(0.1)"), setting(p, "Dir(0.1), train size 0.5")], 2)
    expected = "digits in place of CIFAR-10, cnn, 10 clients (training parts cut to 0.5), 6/3 rounds x 2 epochs, 1 seed, fixed split"
    assert line == f"{expected}, per-sample methods on the first 2 images of a stream, smoke"
    real = parameters("paper", dataset="cifar10_jpeg")
    assert fedthe.about(real, [setting(real, "Dir(0.1)")]).startswith("CIFAR-10 (JPEG), cnn, 20 clients, 100 rounds x 5 epochs, 3 seeds")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Everything at its smallest, on three clients."""
    sizes = {"clients": 3, "network_clients": 2, "rounds": 2, "side_rounds": 1, "network_rounds": 1, "imagenet_rounds": 1}
    folders = {"cache": str(tmp_path_factory.mktemp("cache")), "output": str(tmp_path_factory.mktemp("output"))}
    cheap = ["FedAvg", "FedAvg+FT", "T3A", "FedTHE", "FedTHE:-history"]
    return parameters(**sizes, **folders, methods=cheap, local_epochs=1, long_rounds=[2, 2], costly_samples=1, side_samples=1)


SLOW = pytest.mark.slow


@pytest.mark.parametrize("name", ["T2", pytest.param("T8", marks=SLOW), "T14"])
def test_tables_run(tiny, name):
    """A table with average and columns of its own, one with two columns, one whose clients are sampled."""
    frame = fedthe_tables.table(tiny, name)
    check_table(frame)
    ran = frame["method"].isin(tiny.methods)
    assert set(frame.loc[ran, "status"]) == {"stand-in"}
    assert set(frame.loc[~ran, "status"]) == {"not run: left out by the parameters methods, alphas or imagenet32"}


@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=SLOW) for name in ("F2a", "F18", "leak")), "F8", "F12", "F14", "F16", "F17", "F19", "H26"]
)
def test_figures_have_the_columns_that_claims_read(tiny, name):
    frame = fedthe_figures.frame(tiny, name)
    wanted = [*FIGURE_COLUMNS["fedthe"].get(name, ("setting", "method", "column", "mean")), *PROVENANCE]
    assert set(wanted) <= set(frame.columns)
    assert len(frame)
    assert frame[list(PROVENANCE)].notna().all(axis=None)
    assert not frame.duplicated([c for c in frame.columns if c not in ("mean", "std", "density", "x", "y")]).any() or name == "F18"


def test_the_oracle_is_no_worse_than_one_weight_for_all(tiny):
    frame = fedthe_figures.frame(tiny, "F14")
    for _, panel in frame.groupby("setting"):
        shared = panel.loc[panel["method"] == "shared", "mean"]
        assert len(shared) == 11
        assert panel.loc[panel["method"] == "oracle", "mean"].item() >= shared.max()


def test_a_figure_is_written_with_its_facts(tiny):
    frame = fedthe_figures.frame(tiny, "F17")
    caption = fedthe_figures.publish(tiny, "F17", frame, charts.densities, "Figure 17", xlabel="1 - e")
    assert caption.splitlines()[0] == "Figure 17"
    assert "digits in place of CIFAR-10, cnn, 3 clients, 2 rounds x 1 epochs" in caption
    assert {path.name for path in tiny.folder("fedthe").iterdir()} >= {"F17.png", "F17.svg", "F17.csv"}
