"""FedTHE's figures: the columns that claims read, from real runs at their smallest."""

import matplotlib

matplotlib.use("Agg")
import pandas as pd
import pytest

from fedlib import study as studies
from fedlib.adapt.t3a import T3A
from fedlib.core import Recipe
from fedlib.papers.fedthe import PAPER, gaps, plots
from fedlib.papers.fedthe.claims import LONG
from fedlib.papers.fedthe.figures import gains, rounds_of
from fedlib.papers.fedthe.recipes import RECIPES
from fedlib.personalize.fine_tune import FineTune
from fedlib.published import claims_of
from fedlib.published.ledger import PROVENANCE
from fedlib.train.fedavg import FedAvg
from tests.papers.fedthe.fedthe_cases import blocks, made, parameters, smallest, study

SLOW = pytest.mark.slow
FIGURES = claims_of("fedthe").FIGURE_COLUMNS


def test_learning_curves_end_at_the_last_round():
    assert rounds_of(20, 4) == (1, 7, 14, 20)
    assert rounds_of(5, 3) == (1, 3, 5)
    assert rounds_of(3, 20) == (1, 2, 3)
    assert rounds_of(5, 1) == (5,)
    assert rounds_of(1, 20) == (1,)


def test_profile_paper_has_learning_curves_of_twenty_points_and_more():
    p = parameters("paper")
    for total in (p.rounds, *p.long_rounds):
        assert len(rounds_of(total, p.curve_points)) >= 20
    assert len(rounds_of(40, parameters("paper", curve_points=30).curve_points)) == 30


@pytest.mark.parametrize("name", ["F8", "F11", "F12", "F13"])
def test_all_methods_have_all_points_of_a_learning_curve_on_the_same_images(name):
    p = parameters("paper", curve_points=22)
    [block] = blocks(p, name)
    request = p.request(**block.request)
    assert list(block.recipes) == list(LONG if name in ("F12", "F13") else RECIPES)
    assert len(request.rounds) == 22
    assert request.rounds[-1] == block.settings[0].schedule.rounds
    assert request.costly_samples == 50
    assert all(recipe.costly for recipe in block.recipes.values())


def test_a_learning_curve_of_one_point_has_its_round(monkeypatch):
    monkeypatch.setattr(studies, "run", made)
    assert set(study(rounds=5, curve_points=1).frame("F8")["round"]) == {5}


@pytest.mark.parametrize("name", ["F14", "F15"])
def test_one_weight_is_compared_on_table_1s_images(name):
    p = parameters("small")
    assert {p.request(**b.request).costly_samples for b in blocks(p, name)} == {p.costly_samples} != {p.side_samples}


def test_alphas_leave_settings_out():
    p = parameters(alphas=[0.1])
    assert not any(block.settings for block in blocks(p, "F9"))
    assert [[s.label for s in block.settings] for block in blocks(p, "F14")] == [["Dir(0.1)"], ["Dir(0.1)"]]


def test_a_figure_that_is_not_asked_for_runs_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(studies, "run", None)
    given = study(tables=["leak"], output=str(tmp_path))
    for name in FIGURES:
        assert given.show(name) == studies.NOT_HERE
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return study(**smallest(tmp_path_factory))


@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=SLOW) for name in ("F2a", "F8", "F16", "F18", "leak")), "F12", "F14", "F17", "F19", "H26"]
)
def test_figures_have_the_columns_that_claims_read(tiny, name):
    frame = tiny.frame(name)
    wanted = [*FIGURES.get(name, ("setting", "method", "column", "mean")), *PROVENANCE]
    assert set(wanted) <= set(frame.columns)
    assert len(frame)
    assert frame[list(PROVENANCE)].notna().all(axis=None)
    assert not frame.duplicated([c for c in frame.columns if c not in ("mean", "std", "density", "x", "y")]).any() or name == "F18"


@pytest.fixture
def asked(monkeypatch):
    """What is run: (labels, methods) of every call."""
    calls = []

    def run(settings, recipes, seeds, **options):
        calls.append(([s.label for s in settings], list(recipes)))
        return made(settings, recipes, seeds, **options)

    monkeypatch.setattr(studies, "run", run)
    return calls


def test_a_figure_that_rests_on_a_table_runs_what_it_needs_of_it(asked):
    """And no more: its methods, in its settings, though the table itself is not asked for."""
    study(tables=["F14"]).frame("F14")
    assert asked.pop() == (["Dir(0.1)", "Dir(1.0)"], ["FedTHE", "FedTHE+"])
    [(labels, fixed)] = asked
    assert labels == ["Dir(0.1)", "Dir(1.0)"]
    assert all(name.startswith("e=") for name in fixed)
    asked.clear()
    study(tables=["F2a"], methods=["Ditto", "FedAvg"]).frame("F2a")
    assert asked == [(["Dir(0.1)"], ["Ditto"])]


def test_what_a_table_has_run_its_figures_do_not_run_again(asked):
    given = study(tables=["T1", "F2a", "F2b", "F14"])
    given.frame("T1")
    asked.clear()
    for name in ("F2a", "F2b", "F14"):
        assert len(given.frame(name))
    assert all(name.startswith("e=") for _, names in asked for name in names)


def test_gains_count_against_the_same_images():
    """Those that MEMO-P has seen: there the baseline has 60, and on whole streams 50."""
    whole = {"cut": False, "n": 10, "cut_n": 2}
    rows = pd.DataFrame(
        [
            whole | {"method": "FedAvg+FT", "client": 0, "accuracy": 40.0, "cut_accuracy": 50.0},
            whole | {"method": "FedAvg+FT", "client": 1, "accuracy": 60.0, "cut_accuracy": 70.0},
            whole | {"method": "T3A", "client": 0, "accuracy": 42.0, "cut_accuracy": 53.0},
            whole | {"method": "T3A", "client": 1, "accuracy": 62.0, "cut_accuracy": 73.0},
            whole | {"method": "MEMO-P", "client": 0, "accuracy": 51.0, "cut_accuracy": 51.0, "cut": True, "n": 2},
            whole | {"method": "MEMO-P", "client": 1, "accuracy": 71.0, "cut_accuracy": 71.0, "cut": True, "n": 2},
        ]
    ).assign(setting="Dir(0.1)", dataset="digits", model="cnn", column="ooc", seed=0, draw=0)
    found = gains(parameters(), rows.assign(printed_dataset="cifar10", printed_model="cnn")).set_index("method")["mean"]
    assert found.to_dict() == pytest.approx({"T3A": 3, "MEMO-P": 1})


def test_gains_vary_over_seeds_as_the_differences_do():
    """The second seed's images are harder for both methods: 20 points less, and one more between them."""
    rows = pd.DataFrame(
        [
            {"method": method, "client": client, "seed": seed, "accuracy": 60 + 10 * client - 20 * seed + (3 + seed) * (method == "T3A")}
            for method in ("FedAvg+FT", "T3A")
            for client in (0, 1)
            for seed in (0, 1)
        ]
    ).assign(setting="Dir(0.1)", dataset="digits", model="cnn", column="ooc", draw=0, n=10, printed_dataset="cifar10", printed_model="cnn")
    found = gains(parameters(), rows).set_index("method").loc["T3A"]
    assert (found["mean"], found["std"]) == pytest.approx((3.5, 0.5**0.5))


def test_without_its_baseline_nothing_is_gained(asked):
    given = study(tables=["F2b"], methods=["T3A"])
    assert given.show("F2b").startswith("not run: left out by the parameters")
    assert not asked


def test_the_oracle_is_no_worse_than_one_weight_for_all(tiny):
    for _, panel in tiny.frame("F14").groupby("setting"):
        shared = panel.loc[panel["method"] == "shared", "mean"]
        assert len(shared) == 11
        assert panel.loc[panel["method"] == "oracle", "mean"].item() >= shared.max()


def test_the_grid_names_its_two_rates(asked):
    frame = study(tables=["F16"]).frame("F16")
    assert frame[["alpha", "beta"]].drop_duplicates().to_numpy().tolist() == [
        [a, b] for a in (0.05, 0.1, 0.2) for b in (0.1, 0.2, 0.3, 0.4, 0.5)
    ]
    assert set(frame["method"]) == {"FedTHE"}


def test_gaps_of_the_leak():
    numbers = pd.DataFrame({"method": "FedAvg", "column": ["ooc", "ooc"], "setting": ["fixed", "resplit (leaks)"], "mean": [40.0, 47.0]})
    assert gaps(numbers).loc[("FedAvg", "ooc")].to_dict() == {"fixed": 40.0, "resplit (leaks)": 47.0, "gap": 7.0}
    assert gaps(pd.DataFrame()).empty
    assert [bar.get_height() for bar in plots.leak(numbers).axes[0].containers[0]] == [7.0]


def test_a_figure_is_written_with_its_facts(tiny):
    caption = tiny.show("F17")
    assert caption.splitlines()[0] == "Figure 17: weight of the personal head, Dir(0.1)"
    assert "digits (stand-in), cnn, 3 clients, 2 rounds x 1 epoch, 1 seed, fixed split, profile smoke" in caption
    assert {path.name for path in tiny.folder.iterdir()} >= {"F17.png", "F17.svg", "F17.csv"}


@pytest.mark.parametrize(("name", "method"), [("F14", "FedTHE+"), ("F15", "FedTHE"), ("F16", "FedTHE"), ("F18", "FedTHE"), ("H26", "T3A")])
def test_a_study_of_a_method_that_is_left_out_runs_nothing(name, method):
    exhibit = PAPER.exhibit(name)
    assert exhibit.blocks(study(methods=["FedAvg"]).p) == []
    assert len(exhibit.blocks(study(methods=[method]).p))


def test_own_methods_stand_in_the_figure_of_their_kind(asked):
    """One without a personal part is no personalised method; what it gains at test time is."""
    extra = {"Mine": Recipe(FedAvg(), None, T3A()), "Tuned": Recipe(FedAvg(), FineTune(), T3A())}
    given = study(tables=["F2a", "F2b"], methods=["FedAvg+FT", "Ditto", "Mine", "Tuned"], extra=extra)
    assert {*given.frame("F2a")["method"]} == {"Ditto", "FedAvg+FT", "Tuned"}
    assert {*given.frame("F2b")["method"]} == {"Mine", "Tuned"}
