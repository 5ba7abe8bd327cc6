"""FedTHE's figures: the columns that claims read, from real runs at their smallest."""

import matplotlib

matplotlib.use("Agg")
import pandas as pd
import pytest

from fedlib.papers.fedthe import figures as fedthe_figures
from fedlib.papers.fedthe import tables as fedthe_tables
from fedlib.papers.fedthe import transfer as fedthe_transfer
from fedlib.papers.fedthe.recipes import RECIPES
from fedlib.papers.fedthe.settings import FIGURES
from fedlib.plots import charts
from fedlib.published import claims_of
from fedlib.published.ledger import PROVENANCE
from tests.papers.fedthe.fedthe_cases import parameters, smallest

SLOW = pytest.mark.slow


def test_learning_curves_end_at_the_last_round():
    assert fedthe_figures.rounds_of(20, 4) == (1, 7, 14, 20)
    assert fedthe_figures.rounds_of(5, 3) == (1, 3, 5)
    assert fedthe_figures.rounds_of(3, 20) == (1, 2, 3)
    assert fedthe_figures.rounds_of(5, 1) == (5,)
    assert fedthe_figures.rounds_of(1, 20) == (1,)


def test_profile_paper_has_learning_curves_of_twenty_points_and_more():
    p = parameters("paper")
    for total in (p.rounds, *p.long_rounds):
        assert len(fedthe_figures.rounds_of(total, p.curve_points)) >= 20
    assert len(fedthe_figures.rounds_of(40, parameters("paper", curve_points=30).curve_points)) == 30


@pytest.mark.parametrize("name", ["F8", "F11", "F12", "F13"])
def test_all_methods_have_all_points_of_a_learning_curve_on_the_same_images(name, monkeypatch):
    asked = []

    def run(settings, recipes, seeds, *, request, **execution):
        asked.append((recipes, request))
        return pd.DataFrame()

    monkeypatch.setattr(fedthe_figures, "run", run)
    p = parameters("paper", curve_points=22)
    fedthe_figures.frame(p, name)
    [(recipes, request)] = asked
    assert list(recipes) == list(fedthe_figures.LONG if name in ("F12", "F13") else RECIPES)
    assert len(request.rounds) == 22
    assert request.costly_samples == 50
    assert all(recipe.costly for recipe in recipes.values())


def test_alphas_leave_settings_out():
    assert fedthe_figures.settings(parameters(alphas=[0.1]), "F9") == []
    assert [s.label for s in fedthe_figures.settings(parameters(alphas=[0.1]), "F14")] == ["Dir(0.1)"]


def test_a_figure_that_is_not_asked_for_runs_and_writes_nothing(tmp_path, monkeypatch):
    for module in (fedthe_tables, fedthe_figures, fedthe_transfer):
        monkeypatch.setattr(module, "run", None)
    p = parameters(tables=["leak"], output=str(tmp_path))
    for name in (*FIGURES, "H26"):
        assert fedthe_figures.publish(p, name, fedthe_figures.frame(p, name), charts.bars, "") == "not run: not asked for"
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return smallest(tmp_path_factory)


@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=SLOW) for name in ("F2a", "F8", "F16", "F18", "leak")), "F12", "F14", "F17", "F19", "H26"]
)
def test_figures_have_the_columns_that_claims_read(tiny, name):
    frame = fedthe_figures.frame(tiny, name)
    wanted = [*claims_of("fedthe").FIGURE_COLUMNS.get(name, ("setting", "method", "column", "mean")), *PROVENANCE]
    assert set(wanted) <= set(frame.columns)
    assert len(frame)
    assert frame[list(PROVENANCE)].notna().all(axis=None)
    assert not frame.duplicated([c for c in frame.columns if c not in ("mean", "std", "density", "x", "y")]).any() or name == "F18"


def test_a_figure_that_rests_on_a_table_runs_what_it_needs_of_it(monkeypatch):
    """And no more: its methods, in its settings, though the table itself is not asked for."""
    asked = []
    monkeypatch.setattr(fedthe_tables, "run", lambda settings, recipes, *_, **__: asked.append((settings, recipes)) or pd.DataFrame())
    fedthe_figures.of_table(parameters(tables=["F14"]), "T1", "F14", ("FedTHE", "FedTHE+"))
    fedthe_figures.of_table(parameters(tables=["F2a"]), "T1", "F2a", ("Ditto",))
    assert [([s.label for s in settings], list(recipes)) for settings, recipes in asked] == [
        (["Dir(0.1)", "Dir(1.0)"], ["FedTHE", "FedTHE+"]),
        (["Dir(0.1)"], ["Ditto"]),
    ]


def test_gains_count_against_the_same_images(monkeypatch):
    cells = pd.DataFrame({"method": ["FedAvg+FT", "T3A", "MEMO-P"], "column": "ooc", "mean": [50.0, 52.0, 61.0], "std": 0.0})
    cut = pd.DataFrame({"setting": "", "method": "FedAvg+FT", "column": "ooc", "seed": 0, "client": [0, 1], "accuracy": [50.0, 70.0]})
    asked = []
    monkeypatch.setattr(fedthe_figures, "of_table", lambda *_: cells)
    monkeypatch.setattr(fedthe_figures, "measure", lambda p, name, recipes, **request: asked.append((recipes, request)) or cut)
    gains = fedthe_figures.gains(parameters()).set_index("method")["mean"]
    assert gains.to_dict() == {"T3A": 2, "MEMO-P": 1}
    [(recipes, request)] = asked
    assert recipes["FedAvg+FT"].costly
    assert request == {"costly_samples": 2}


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
