"""What FedICON's tables, figures and studies run, and how rows become their numbers, on made-up rows."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedlib import study as studies
from fedlib.core import Recipe
from fedlib.extras import NEEDS
from fedlib.papers.fedicon import PAPER, copied, stand_ins
from fedlib.papers.fedicon.exhibits import EXHIBITS, T4, T5, TUNING
from fedlib.papers.fedicon.recipes import MAIN, RECIPES, VIEWS
from fedlib.personalize.knn_per import LocalMemory
from fedlib.published import cells
from fedlib.results import check_table
from fedlib.train.fedavg import FedAvg
from tests.papers.fedicon.test_settings import given, parameters, users_domains


def rows(settings, methods, columns, seeds=(0, 1), clients=2, dataset="digits5", accuracy=50.0):
    return pd.DataFrame(
        [
            {"setting": s, "method": m, "seed": seed, "round": 1, "column": c, "draw": 0, "client": k, "n": 4, "dataset": dataset,
             "model": "net", "accuracy": accuracy + 10 * seed + k, "cached": False}
            for s in settings for m in methods for seed in seeds for c in columns for k in range(clients)
        ]
    )  # fmt: skip


@pytest.fixture
def ran(monkeypatch):
    """What is run, as (setting's label, method); all tests of all families in the rows."""
    found = []

    def run(settings, recipes, seeds, **options):
        found.extend((setting.label, name) for setting in settings for name in recipes)
        return rows([s.label for s in settings], recipes, ["plain", "original", "natural"], seeds)

    monkeypatch.setattr(studies, "run", run)
    return found


@pytest.fixture
def frame(monkeypatch):
    """The numbers of an exhibit whose blocks gave ``measured``, under parameters that are ``changed``."""

    def of(name, measured, **changed):
        study = studies.Study(PAPER, given(**changed))
        monkeypatch.setattr(study, "rows", lambda blocks: (measured, {}))
        return study.frame(name)

    return of


def test_tables_of_a_users_domains_carry_their_names(tmp_path, monkeypatch):
    folder = users_domains(tmp_path / "photos", ["day", "night"])
    study = studies.Study(PAPER, given(dataset=folder, tables=["T1"], output=str(tmp_path / "results")))
    seen = rows(["covariate shift"], ["FedAvg", "FedICON"], ["day", "night"], dataset="photos/")
    monkeypatch.setattr(study, "rows", lambda blocks: (seen, {}))
    page = study.show("T1")._repr_html_()
    assert pd.read_csv(tmp_path / "results" / "T1.csv")["column"].unique().tolist() == ["day", "night"]
    assert ">day<" in page
    assert "MNIST" not in page
    # Claims look for the printed names.
    table = study.frame("T1")
    assert set(table.loc[table["mean"].notna(), "column"]) == {"MNIST", "SVHN"}
    assert study.p.own_columns("office") == {"Amazon": "day", "Caltech": "night"}
    assert parameters().own_columns("dataset") == {}


def test_table_1_maps_domains_to_columns_by_position(frame):
    table = frame("T1", rows(["covariate shift"], ["FedAvg"], ["plain", "blend"], clients=1)).set_index(["method", "column"])
    assert table.loc[("FedAvg", "MNIST"), ["mean", "status"]].tolist() == [55.0, "stand-in"]
    assert table.loc[("FedAvg", "MNIST-M"), "std"] == pytest.approx(7.0711, abs=1e-4)
    assert table.loc[("FedAvg", "SVHN"), "status"].startswith("not run")


def test_table_2_joins_the_held_out_domains(frame):
    measured = pd.concat([rows([label], MAIN, [domain]) for label, domain in (("Amazon", "plain"), ("Webcam", "fonts"))])
    table = frame("T2", measured)
    assert set(table[table["mean"].notna()]["column"]) == {"Amazon", "Webcam"}
    assert set(table[table["mean"].notna()]["method"]) == set(MAIN)
    # All clients meet the four images of the held-out domain, with every seed.
    same = measured.assign(seen=[np.arange(4)] * len(measured))
    assert set(frame("T2", same)["n"].dropna()) == {4}
    assert set(frame("T1", rows(["covariate shift"], MAIN, ["plain"]))["n"].dropna()) == {2 * 2 * 4}


def test_table_3_takes_the_difference_within_each_client(frame):
    own = rows(["Dir(0.1)"], ["FedICON"], ["original"], dataset="digits")
    shifted = rows(["Dir(0.1)"], ["FedICON"], ["natural"], dataset="digits", accuracy=45.5)
    corrupted = rows(["Dir(0.1)"], ["FedICON"], ["corrupted"], dataset="digits")
    table = frame("T3", pd.concat([own, shifted, corrupted]))
    delta = table[(table["method"] == "FedICON") & (table["setting"] == "Dir(0.1)") & (table["column"] == "delta")].iloc[0]
    assert delta["mean"] == pytest.approx(-4.5)
    assert delta["std"] == pytest.approx(0)
    assert delta["n"] == 2 * 2 * (4 + 4)
    seen = [part.assign(seen=[np.arange(4) + 4 * k + at for k in part["client"]]) for part, at in ((own, 0), (shifted, 100))]
    table = frame("T3", pd.concat(seen)).query("method == 'FedICON' and setting == 'Dir(0.1)'").set_index("column")["n"]
    # With every seed the same images.
    assert table[["original", "attribute_shift", "delta"]].tolist() == [8, 8, 16]


def test_table_4_is_the_mean_over_domains_in_both_blocks(frame):
    first = pd.concat([rows(["covariate shift"], T4, [c], clients=1, accuracy=a) for c, a in (("plain", 20), ("blend", 40))])
    first["client"] = (first["column"] == "blend").astype(int)
    objects = rows(["covariate shift"], T4, ["plain"], accuracy=60).assign(printed_dataset="office10")
    table = frame("T4", pd.concat([first.assign(printed_dataset="digits5"), objects]))
    means = table[table["method"] == "FedICON"].set_index("dataset")["mean"]
    assert means.to_dict() == pytest.approx({"digits5": 35.0, "office10": 65.5})


@pytest.mark.parametrize("name", ["T1", "T2", "T3", "T4", "T5"])
def test_nothing_run_is_said_in_every_cell(ran, name):
    family = {"T2": "office", "T3": "attribute"}.get(name, "dataset")
    # One family stays, since a run of none is refused.
    study = studies.Study(PAPER, given(**({"attribute": "none"} if name == "T3" else {"dataset": "none", "office": "none"})))
    table = study.frame(name)
    check_table(table)
    assert len(table) == len(cells("fedicon", name))
    assert set(table["status"]) == {f"not run: switched off by the parameter {f}" for f in {family, "office" if name == "T4" else family}}
    left = studies.Study(PAPER, given(methods=["FedICON:online"])).frame(name)
    assert left["status"].str.startswith("not run: left out").all()
    assert not ran


def test_families_left_out_run_nothing(ran):
    p = parameters(dataset="none", office="none", attribute="none")
    assert [s for exhibit in EXHIBITS for block in exhibit.blocks(p) for s in block.settings] == []


NEEDED = {
    "T1": (["covariate shift"], (*MAIN, VIEWS)),
    "T2": (["Amazon", "Caltech", "DSLR", "Webcam"], MAIN),
    "T3": (["Dir(0.1)", "Dir(1.0)"], MAIN),
    "corrupted": (["Dir(0.1)", "Dir(1.0)"], MAIN),
    "T4": (["covariate shift"], T4),
    "T5": (["covariate shift"], T5),
    "tuning": (["covariate shift"], tuple(TUNING)),
    "F3a": (["5", "10", "20"], ("FedAvg", "FedICON")),
    "F3b": (["1", "2", "3"], ("FedAvg", "FedICON")),
}
DOMAINS = ("plain", "clutter", "lowres", "fonts", "blend")
NEEDED["F1b"] = ([*DOMAINS, *(f"{d} x 5" for d in DOMAINS), "heterogeneous"], ("FedAvg",))


def test_an_exhibit_alone_runs_what_it_needs_and_nothing_else(ran):
    assert set(NEEDED) == {exhibit.name for exhibit in EXHIBITS}
    for name, (labels, methods) in NEEDED.items():
        study = studies.Study(PAPER, given(tables=[name]))
        for exhibit in EXHIBITS:
            study.frame(exhibit.name)
        assert set(ran) == {(label, method) for label in labels for method in methods}
        # Table 4 runs two data sets under one label.
        assert len(ran) == len(labels) * len(methods) * (2 if name == "T4" else 1)
        ran.clear()


def test_tables_of_the_covariate_shift_share_their_runs(ran):
    study = studies.Study(PAPER, given(office="none"))
    for name in ("T1", "T4", "T5", "tuning"):
        study.frame(name)
    assert sorted(ran) == sorted(("covariate shift", name) for name in RECIPES)


def test_methods_that_read_every_round_run_apart_from_those_that_read_the_last():
    kept = {}
    for block in PAPER.exhibit("T1").blocks(parameters()):
        assert block.request == {"rounds": (-1,)}
        kept |= dict.fromkeys(block.recipes, block.settings[0].schedule.save_every)
    assert kept == dict.fromkeys((*MAIN, VIEWS), 10) | {"FedTHE": 1}


def test_methods_of_ones_own_are_in_all_but_the_studies_of_fedicon(ran):
    """One that reads a validation part runs where clients have one, and says elsewhere why it does not, once in each place."""
    mine = {"Mine": Recipe(FedAvg()), "Checked": Recipe(FedAvg(), LocalMemory())}
    study = studies.Study(PAPER, given(extra=mine, methods=["FedAvg", *mine]))
    for name in ("T1", "T2", "T3", "T4", "T5"):
        table = study.frame(name)
        check_table(table)
        own = table[table["method"].isin(mine)]
        places = cells("fedicon", name)[["dataset", "model", "setting", "column"]].drop_duplicates()
        assert len(own) == (0 if name == "T5" else len(places) + (own["method"] == "Mine").sum())
        if name != "T5":
            said = {f"not run: {NEEDS['validation']}"} if name != "T3" else {"stand-in"}
            assert set(own.loc[own["method"] == "Checked", "status"]) == said
            assert "stand-in" in set(own.loc[own["method"] == "Mine", "status"])
    assert {"Mine"} < set(study.frame("F3a")["method"])
    assert set(study.frame("F1b")["method"]) == {"FedAvg"}


def test_the_row_with_views_is_in_tables_1_and_4(frame):
    table1 = frame("T1", rows(["covariate shift"], ["FedAvg", VIEWS], ["plain"], clients=1))
    assert table1.loc[table1["method"] == VIEWS, ["column", "mean"]].values.tolist() == [["MNIST", 55.0]]
    blocks = {"digits5": [*T4], "office10": [VIEWS]}
    made = [rows(["covariate shift"], methods, ["plain"]).assign(printed_dataset=name) for name, methods in blocks.items()]
    table4 = frame("T4", pd.concat(made))
    assert table4.loc[table4["method"] == VIEWS, "dataset"].tolist() == ["digits5", "office10"]
    assert table4.loc[table4["method"] == VIEWS, "published_mean"].isna().all()


def test_only_tables_asked_for_are_written(ran, tmp_path):
    study = studies.Study(PAPER, given(tables=["T5"], output=str(tmp_path)))
    assert study.show("T1") == studies.NOT_HERE
    study.show("T5")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["T5.csv", "T5.tex", "T5_clients.csv"]


def test_figure_frames_name_their_points(frame):
    made = frame("F1b", rows(["plain", "plain x 5", "heterogeneous"], ["FedAvg"], ["plain"]))
    assert made["source"].tolist() == ["single", "single, as many parts", "heterogeneous"]
    made = frame("F3a", rows(["5", "20"], ["FedICON", "FedAvg"], ["plain", "blend"]))
    points = list(zip(made["method"], made["clients"], strict=True))
    assert points == [("FedAvg", 5), ("FedAvg", 20), ("FedICON", 5), ("FedICON", 20)]


def test_tuning_lists_the_ways_in_their_order_with_the_mean_over_domains(frame):
    made = pd.concat([rows(["covariate shift"], [*TUNING], [c], clients=1, accuracy=a) for c, a in (("plain", 20), ("blend", 40))])
    table = frame("tuning", made.assign(client=(made["column"] == "blend").astype(int)))
    assert list(table["method"].unique()) == list(TUNING.values())
    assert table.loc[table["column"] == "mean", "mean"].unique() == pytest.approx([35.0])


def test_an_exhibit_tells_what_it_was_run_on(ran):
    study = studies.Study(PAPER, given(seeds=[0, 1]))
    told = {name: study.about(PAPER.exhibit(name)) for name in ("T1", "F3a")}
    assert told["T1"] == "digits5 (stand-in), net, 5 rounds x 2 epochs, 2 seeds, profile smoke"
    assert "5/10/20 clients" in told["F3a"]


def test_the_domains_behind_the_columns():
    behind = stand_ins(parameters(dataset="none")).set_index(["table", "printed"])["run"]
    assert behind.to_dict() == {("T2", c): d for c, d in zip(("Amazon", "Caltech", "DSLR", "Webcam"), DOMAINS, strict=False)}
    assert len(stand_ins(parameters())) == 9


def test_copied_cells():
    (found,) = copied().parts
    assert len(found) == 16
    assert set(found["method"]) == {"FedAvg", "FedAvg+FT", "FedRep", "FedTHE"}


@pytest.mark.slow
def test_all_methods_on_a_tiny_schedule(tmp_path: Path):
    tiny = {"rounds": 3, "local_epochs": 1, "images": 20, "costly_samples": 2, "classifier_rounds": 1}
    study = studies.Study(PAPER, given(**tiny, cache=str(tmp_path)))
    assert study.frame("T1")["mean"].notna().all()
    assert study.frame("T5")["mean"].notna().all()
    # Clean statistics and a fresh classifier answer, whatever the tuning that follows.
    assert study.frame("tuning")["method"].nunique() == len(TUNING)
