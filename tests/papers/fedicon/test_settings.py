from dataclasses import replace
from pathlib import Path

import nbformat
import pandas as pd
import papermill
import pytest

from fedlib.notebook import PROJECT
from fedlib.papers.fedicon import settings as fedicon
from fedlib.papers.fedicon.recipes import MAIN, RECIPES, VIEWS
from fedlib.published import cells

NOTEBOOK = PROJECT / "notebooks" / "fedicon.ipynb"


def declared():
    """The notebook's parameters as it declares them."""
    names = papermill.inspect_notebook(NOTEBOOK)
    return {name: eval(entry["default"]) for name, entry in names.items()}


def parameters(**given):
    return fedicon.parameters(declared() | {"cache": "nowhere"} | given)


def rows(settings, methods, columns, seeds=(0, 1), clients=2, dataset="digits5", accuracy=50.0):
    return pd.DataFrame(
        [
            {"setting": s, "method": m, "seed": seed, "round": 1, "column": c, "draw": 0, "client": k, "dataset": dataset, "model": "net",
             "accuracy": accuracy + 10 * seed + k}
            for s in settings for m in methods for seed in seeds for c in columns for k in range(clients)
        ]
    )  # fmt: skip


def test_profiles_fill_every_parameter():
    for profile in fedicon.PROFILES:
        p = parameters(profile=profile)
        optional = {"methods", "batch_size", "extra", "tables", "output"}
        assert all(getattr(p, name) is not None for name in declared() if name not in optional)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dataset": "digit5"}, "digits5"),
        ({"office": "pac"}, "pacs"),
        ({"methods": ["FedIcon"]}, "FedICON"),
        ({"tables": ["T6"]}, "T5"),
        ({"rounds": 0}, "rounds"),
    ],
)
def test_bad_parameters(given, message):
    with pytest.raises(ValueError, match=message):
        parameters(**given)


def test_table_1_maps_domains_to_columns_by_position():
    p = parameters()
    measured = rows(["covariate shift"], ["FedAvg"], ["plain", "blend"], clients=1)
    table = fedicon.table1(p, measured).set_index(["method", "column"])
    assert table.loc[("FedAvg", "MNIST"), ["mean", "status"]].tolist() == [55.0, "stand-in"]
    assert table.loc[("FedAvg", "MNIST-M"), "std"] == pytest.approx(7.0711, abs=1e-4)
    assert table.loc[("FedAvg", "SVHN"), "status"].startswith("not run")


def test_table_2_joins_the_held_out_domains():
    p = parameters()
    measured = pd.concat([rows([label], MAIN, [domain]) for label, domain in (("Amazon", "plain"), ("Webcam", "fonts"))])
    table = fedicon.table2(p, measured)
    assert set(table[table["mean"].notna()]["column"]) == {"Amazon", "Webcam"}
    assert set(table[table["mean"].notna()]["method"]) == set(MAIN)


def test_table_3_takes_the_difference_within_each_client():
    p = parameters()
    own = rows(["Dir(0.1)"], ["FedICON"], ["original"], dataset="digits")
    shifted = rows(["Dir(0.1)"], ["FedICON"], ["natural"], dataset="digits", accuracy=45.5)
    table = fedicon.table3(p, pd.concat([own, shifted, rows(["Dir(0.1)"], ["FedICON"], ["corrupted"], dataset="digits")]))
    delta = table[(table["method"] == "FedICON") & (table["setting"] == "Dir(0.1)") & (table["column"] == "delta")].iloc[0]
    assert delta["mean"] == pytest.approx(-4.5)
    assert delta["std"] == pytest.approx(0)


def test_table_4_is_the_mean_over_domains_in_both_blocks():
    p = parameters()
    first = pd.concat([rows(["covariate shift"], fedicon.T4, [c], clients=1, accuracy=a) for c, a in (("plain", 20), ("blend", 40))])
    first["client"] = (first["column"] == "blend").astype(int)
    table = fedicon.table4(p, first, rows(["covariate shift"], fedicon.T4, ["plain"], accuracy=60))
    means = table[table["method"] == "FedICON"].set_index("dataset")["mean"]
    assert means.to_dict() == pytest.approx({"digits5": 35.0, "office10": 65.5})


@pytest.mark.parametrize("name", ["T1", "T2", "T3", "T4", "T5"])
def test_nothing_run_is_said_in_every_cell(name):
    p = parameters(dataset="none", office="none", attribute="none")
    none = fedicon.measure(p, fedicon.covariate(p))
    function = getattr(fedicon, f"table{name[1]}")
    table = function(p, none, none) if name == "T4" else function(p, none)
    assert len(table) == len(cells("fedicon", name))
    assert table["status"].str.startswith("not run: left out").all()


def test_settings_of_families_left_out_are_empty():
    p = parameters(dataset="none", office="none", attribute="none")
    assert not [*fedicon.covariate(p), *fedicon.office(p), *fedicon.held_out(p), *fedicon.dirichlet(p)]
    assert not [*fedicon.single_sources(p), *fedicon.counts(p), *fedicon.epochs(p)]


def test_real_data_follow_the_paper():
    p = parameters(profile="paper")
    (covariate,), held = fedicon.covariate(p), fedicon.held_out(p)
    assert (covariate.schedule.rounds, covariate.schedule.local.epochs, covariate.schedule.local.lr) == (100, 5, 0.01)
    assert (covariate.protocol.n_train, covariate.protocol.n_test) == (743, 200)
    assert [s.protocol.held_out for s in held] == ["amazon", "caltech", "dslr", "webcam"]
    assert (held[0].protocol.n_train, held[0].protocol.per_class, held[0].protocol.n_test) == (50, True, None)
    assert [s.schedule.local.momentum for s in (covariate, *fedicon.dirichlet(p))] == [0.9, 0.0, 0.0]
    assert p.recipes("office10", ["FedICON"])["FedICON"].train.contrast.views == "objects"
    assert p.recipes("cifar10", ["FedICON"])["FedICON"].train.contrast.lr == 0.005


def test_figure_1b_compares_at_equal_numbers():
    """A single source has as many images of the target domain as the heterogeneous ones, or as many images in all."""
    p = parameters(profile="small")
    *single, mixed = fedicon.single_sources(p)
    part = mixed.protocol.n_train
    held = {s.label: [(client.about, len(client.train)) for client in s.protocol.build(0).clients] for s in single}
    of_target = {client.about: len(client.train) for client in mixed.protocol.build(0).clients}
    domains = fedicon.domains("digits5")
    assert held == {d: [(d, of_target[d])] for d in domains} | {f"{d} x 5": [(d, part)] * 5 for d in domains}


def test_a_section_alone_runs_what_it_needs_and_nothing_else():
    families = {"T1": "covariate", "T2": "held_out", "T3": "dirichlet", "corrupted": "dirichlet", "T4": "office", "T5": "covariate"}
    families |= {"tuning": "covariate", "F1b": "single_sources", "F3a": "counts", "F3b": "epochs"}
    assert set(families) == set(fedicon.SECTIONS)
    for section, family in families.items():
        p = parameters(tables=[section])
        run = {name for name in ("held_out", "dirichlet", "office", "single_sources", "counts", "epochs") if getattr(fedicon, name)(p)}
        assert run == {family} - {"covariate"}
        assert set(fedicon.wanted(p)) == set(fedicon.COVARIATE.get(section, ()))
    assert set(fedicon.wanted(parameters())) == set(RECIPES)


def test_figures_with_a_deviation_draw_it():
    """In the notebook's calls; the charts themselves are tested in tests/plots."""
    code = "".join(cell.source for cell in nbformat.read(NOTEBOOK, 4).cells if cell.cell_type == "code")
    assert code.count("spread=True") + code.count('"spread": True') == code.count("charts.bars(") + code.count("charts.curves(") == 4


def test_the_row_with_views_is_in_tables_1_and_4():
    p = parameters()
    table1 = fedicon.table1(p, rows(["covariate shift"], ["FedAvg", VIEWS], ["plain"], clients=1))
    assert table1.loc[table1["method"] == VIEWS, ["column", "mean"]].values.tolist() == [["MNIST", 55.0]]
    table4 = fedicon.table4(p, rows(["covariate shift"], [*fedicon.T4, VIEWS], ["plain"]), rows(["covariate shift"], [VIEWS], ["plain"]))
    assert table4.loc[table4["method"] == VIEWS, "dataset"].tolist() == ["digits5", "office10"]
    assert table4.loc[table4["method"] == VIEWS, "published_mean"].isna().all()


def test_only_tables_asked_for_are_written(tmp_path):
    none = fedicon.measure(parameters(), [])
    for name in ("T1", "T5"):
        p = parameters(tables=["T5"])
        fedicon.publish(p, getattr(fedicon, f"table{name[1]}")(p, none), tmp_path, name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["T5.csv", "T5.tex"]


def test_figure_frames_name_their_points():
    frame = fedicon.figure1b(rows(["plain", "plain x 5", "heterogeneous"], ["FedAvg"], ["plain"]))
    assert frame["source"].tolist() == ["single", "single, five parts", "heterogeneous"]
    frame = fedicon.figure3(rows(["5", "20"], ["FedAvg", "FedICON"], ["plain", "blend"]), "clients")
    points = set(zip(frame["clients"], frame["method"], strict=True))
    assert points == {(5, "FedAvg"), (5, "FedICON"), (20, "FedAvg"), (20, "FedICON")}


def test_a_table_tells_what_it_was_run_on():
    p = parameters()
    table = fedicon.table1(p, rows(["covariate shift"], ["FedAvg"], ["plain"], clients=1))
    assert fedicon.ran(table) == "digits5 (stand-in), net, 2 seeds"
    assert fedicon.ran(table[table["mean"].isna()]) == "nothing run"


def test_copied_cells():
    frame = fedicon.copied()
    assert len(frame) == 16
    assert set(frame["method"]) == {"FedAvg", "FedAvg+FT", "FedRep", "FedTHE"}


@pytest.mark.slow
def test_measure_on_a_tiny_schedule(tmp_path: Path):
    p = replace(parameters(rounds=3, local_epochs=1, images=20, jobs=1, costly_samples=2, cache=str(tmp_path)), classifier_rounds=1)
    measured = fedicon.measure(p, fedicon.covariate(p), fedicon.RECIPES)
    assert set(measured["method"]) == set(fedicon.RECIPES)
    assert fedicon.table1(p, measured)["mean"].notna().all()
    assert fedicon.table5(p, measured)["mean"].notna().all()
    # Clean statistics and a fresh classifier answer, whatever the tuning that follows.
    assert len(fedicon.tuning(measured)) == len(fedicon.TUNING)
