"""Methods of one's own in every paper's tables, figures and ranks, and the parameters that all notebooks have in common."""

from dataclasses import dataclass, replace

import pandas as pd
import papermill
import pytest
import torch

from fedlib import extras
from fedlib.adapt.bn_adapt import BNAdapt
from fedlib.adapt.whole_client import TentAll
from fedlib.commands.export import export
from fedlib.core import Output, Recipe
from fedlib.paper import paper_of
from fedlib.papers import btfl, comparison
from fedlib.papers.atp import PAPER as ATP
from fedlib.papers.atp import settings as atp
from fedlib.papers.atp import tables as atp_tables
from fedlib.papers.atp.recipes import RECIPES as ATP_RECIPES
from fedlib.papers.btfl import settings as btfl_settings
from fedlib.papers.comparison import grid, significance, tuning
from fedlib.papers.comparison import settings as bench
from fedlib.papers.fedicon import PAPER as FEDICON
from fedlib.papers.fedicon import settings as fedicon
from fedlib.papers.fedthe import PAPER as FEDTHE
from fedlib.papers.fedthe import settings as fedthe
from fedlib.papers.upfl import PAPER as UPFL
from fedlib.papers.upfl import plots as upfl_plots
from fedlib.papers.upfl import settings as upfl
from fedlib.personalize.fine_tune import FineTune
from fedlib.personalize.knn_per import LocalMemory
from fedlib.plots.style import look
from fedlib.protocols import btgfl
from fedlib.published.ledger import ledger
from fedlib.published.reading import summary
from fedlib.results import check_table
from fedlib.study import Study
from fedlib.tools.parameters import PROJECT, declared
from fedlib.train.fedavg import FedAvg
from tests.papers.comparison_cases import rows as compared

PAPERS = {"fedthe": fedthe, "upfl": upfl, "atp": atp, "fedicon": fedicon, "btfl": btfl_settings, "comparison": bench}
COMMON = ("dataset", "methods", "tables", "lr", "rounds", "local_epochs", "batch_size", "seeds", "extra", "start")


@dataclass(frozen=True)
class RunningPrior:
    """The quickstart's."""

    strength: float = 0.5

    def run(self, task, state, personal, stream):
        logits = task.frozen(state, stream)[1]
        seen = torch.arange(1, len(logits) + 1)[:, None]
        return Output(logits + self.strength * (logits.softmax(1).cumsum(0) / seen).log())


MINE = {"Mine": Recipe(FedAvg(weighting="samples"), None, RunningPrior())}
TUNED = {"Tuned": Recipe(FedAvg(weighting="samples"), FineTune(), RunningPrior())}
NORMED = {"Normed": Recipe(FedAvg(weighting="samples"), None, BNAdapt())}
CHECKED = {"Checked": Recipe(FedAvg(weighting="samples"), LocalMemory(), RunningPrior())}


@pytest.fixture(autouse=True)
def no_other(monkeypatch):
    monkeypatch.setattr(extras, "REGISTERED", {})


def parameters(paper, **given):
    """As the notebook declares them, with ``given``."""
    return paper_of(paper).read(notebook(paper, **given))


def notebook(paper, **given):
    """The notebook's variables, with ``given``."""
    return declared(PROJECT / "notebooks" / f"{paper}.ipynb") | {"jobs": 1} | given


def check(table, reasons=()):
    """The table keeps the contract, and ``Mine`` has numbers in it and no published value; the methods of ``reasons`` say why not."""
    check_table(table)
    own = table[table["method"] == "Mine"]
    assert set(own["status"]) == {"stand-in"}
    assert own["mean"].notna().all()
    for method, reason in dict(reasons).items():
        rows = table[table["method"] == method]
        assert set(rows["status"]) == {f"not run: {extras.NEEDS[reason]}"}
        assert rows["mean"].isna().all()
    names = ["Mine", *dict(reasons)]
    assert table.loc[table["method"].isin(names), "published_mean"].isna().all()
    told = summary(table).parts[0].caption.split("not printed in the paper: ")[1]
    assert all(name in told for name in names)
    return own


def test_fedthe(tmp_path):
    small = {"clients": 3, "rounds": 2, "local_epochs": 1, "alphas": [0.1], "curve_points": 1, "cache": str(tmp_path)}
    given = small | {"extra": MINE | TUNED | NORMED, "methods": ["FedAvg", "Mine", "Tuned", "Normed"], "jobs": 1}
    study = Study(FEDTHE, declared(FEDTHE.notebook) | given)
    table = study.frame("T1")
    own = check(table, {"Normed": "batch norm"})
    assert set(own["column"]) == {*fedthe.COLUMNS}
    assert table.loc[(table["method"] == "Tuned") & (table["setting"] == "Dir(0.1)"), "mean"].notna().all()
    assert {"Mine", "Tuned"} <= set(study.frame("F8")["method"])
    assert set(study.frame("F2a")["method"]) == {"Tuned"}
    # What the paper claims, it does not claim of them: a curve that leads is no counterexample.
    curve, own = study.frame("F8"), study.p.own
    best = curve.assign(mean=curve["mean"].where(curve["method"] != "Mine", 99.9))
    without = ledger("fedthe", {}, {"F8": curve[~curve["method"].isin(own)]})
    pd.testing.assert_frame_equal(ledger("fedthe", {}, {"F8": best}, own=own), without)


def test_what_cannot_do_with_batch_norm_runs_where_there_is_none():
    p = parameters("fedicon", extra={"Whole": Recipe(FedAvg(), None, TentAll())})
    assert p.refused("fedicon_cnn_small") == {"Whole": extras.NEEDS["no batch norm"]}
    assert not p.refused("cnn")
    assert list(p.beside("cnn")) == ["Whole"]


def test_upfl(tmp_path):
    small = {"clients": 10, "rounds": 2, "steps": 2, "every": 1, "cache": str(tmp_path), "tables": ["T1", "AF2", "F3"]}
    given = small | {"extra": MINE | TUNED, "methods": ["FedAvg", "Tent", "Mine", "Tuned"]}
    study = Study(UPFL, declared(UPFL.notebook) | {"jobs": 1} | given)
    own = check(study.frame("T1"), {"Tuned": "labels"})
    assert set(own["dataset"]) == {"mnist", "cifar10", "femnist", "cifar100", "fashion_mnist"}
    assert set(own["column"]) == {"validation", "test"}
    curves = study.frame("AF2")
    assert "Mine" in set(curves["method"])
    shown = upfl_plots.learning(curves[curves["round"] == 2])
    assert {line.get_marker() for axis in shown.axes for line in axis.get_lines()} == {look(name).marker for name in curves["method"]}
    assert upfl_plots.colour_of("Mine") == look("Mine").colour
    assert "Mine" in set(study.frame("F3")["method"])


def test_atp(tmp_path):
    small = {"clients": 10, "rounds": 2, "rate_rounds": 1, "images": 400, "targets": 0, "cache": str(tmp_path)}
    chosen = ["NoAdapt", "Mine", "Tuned", "Normed"]
    study = Study(ATP, notebook("atp", extra=MINE | TUNED | NORMED, methods=chosen, **small))
    table = study.frame("T1")
    own = check(table, {"Tuned": "labels"})
    assert len(own) == 3
    assert table.loc[(table["method"] == "Normed"), "mean"].notna().all()
    # They have no part in the studies of ATP, and so are not missing there.
    assert not {"Mine", "Tuned", "Normed"} & set(study.frame("T4")["method"])
    alone = Study(ATP, notebook("atp", extra=TUNED, methods=["Tuned"], **small))
    assert set(alone.frame("T1").query("method == 'Tuned'")["status"]) == {f"not run: {extras.NEEDS['labels']}"}


def test_ranks_of_atp_leave_the_published_methods_places_alone():
    names = [*ATP_RECIPES, "Mine", "Worse"]
    score = {name: 50.0 + i for i, name in enumerate(ATP_RECIPES)} | {"Mine": 60.5, "Worse": 49.5}
    made = pd.DataFrame([{"setting": s, "method": m, "mean": score[m]} for s in ("a", "b", "c") for m in names])
    found = atp_tables.ranks(made.assign(column="test", std=0.0, n=1, units=None)).set_index("method")["mean"]
    assert found[[*ATP_RECIPES]].tolist() == [*range(11, 0, -1)]
    assert found[["Mine", "Worse"]].tolist() == [1, 12]


def test_fedicon(tmp_path):
    small = {"images": 20, "rounds": 2, "classifier_rounds": 1, "local_epochs": 1, "clients": 3, "cache": str(tmp_path)}
    given = small | {"extra": MINE | CHECKED, "methods": ["FedAvg", "Mine", "Checked"]}
    study = Study(FEDICON, declared(FEDICON.notebook) | {"jobs": 1} | given)
    assert set(check(study.frame("T1"), {"Checked": "validation"})["column"]) == set(fedicon.COLUMNS["dataset"])
    check(study.frame("T4"), {"Checked": "validation"})
    third = study.frame("T3")
    check(third)
    assert third.loc[third["method"] == "Checked", "mean"].notna().all()


def test_btfl(tmp_path):
    small = {"clients": 3, "rounds": 2, "local_epochs": 1, "cache": str(tmp_path)}
    study = Study(btfl.PAPER, notebook("btfl", extra=MINE | NORMED, methods=["FedAvg", "Mine", "Normed"], **small))
    own = check(study.frame("T2"), {"Normed": "batch norm"})
    assert set(own["column"]) == {*btgfl.COLUMNS, "avg"}


def test_comparison(tmp_path):
    """A personal part that needs labels has none among new clients, and says so where it used to raise."""
    chosen = ["BRFL", "UPFL new clients", "FedICON covariate"]
    small = {"rounds": 2, "classifier_rounds": 1, "local_epochs": 1, "images": 20, "clients": 4, "population": 10, "protocols": chosen}
    own = {"extra": MINE | TUNED | CHECKED, "methods": ["Mine", "Tuned", "Checked"], "cache": str(tmp_path)}
    study = Study(comparison.PAPER, notebook("comparison", **own, **small))
    heatmap = study.frame("heatmap")
    ran = heatmap[heatmap["mean"].notna()].groupby("method")["protocol"].agg(set)
    assert ran.to_dict() == {
        "FedAvg": {*chosen},
        "Mine": {*chosen},
        "Tuned": {"BRFL", "FedICON covariate"},
        "Checked": {"BRFL", "FedICON covariate"},
    }
    assert heatmap.loc[heatmap["mean"].notna(), "gain"].notna().all()
    new = (heatmap["protocol"] == "UPFL new clients") & (heatmap["method"] == "Tuned")
    assert set(heatmap.loc[new, "status"]) == {f"not run: {extras.NEEDS['labels']}"}
    coverage = comparison.coverage(study.p)
    assert coverage.loc["Mine"].eq("runs").all()
    assert coverage.loc["Checked", "FedICON domain"] == "runs"


def test_comparison_from_a_trained_federation(tmp_path):
    """What starts from plain FedAvg runs beside the run's own methods and is tested with them; another training is refused alone."""
    small = {"rounds": 2, "classifier_rounds": 1, "local_epochs": 1, "clients": 4, "protocols": ["BRFL"], "tables": ["heatmap"]}
    first = Study(
        comparison.PAPER, notebook("comparison", methods=["T3A"], cache=str(tmp_path / "a"), output=str(tmp_path / "run"), **small)
    )
    first.show("heatmap")
    first.finish()
    export(tmp_path / "run", tmp_path / "a")
    own = {"Mine": Recipe(FedAvg(), None, RunningPrior()), "Foreign": Recipe(FedAvg(lr=0.001), None, RunningPrior())}
    given = {"start": str(tmp_path / "run"), "extra": own, "cache": str(tmp_path / "b")}
    study = Study(comparison.PAPER, notebook("comparison", **given))
    table, was = (s.frame("heatmap").query("protocol == 'BRFL'").set_index(["method", "column"]) for s in (study, first))
    assert table.loc["T3A", "mean"].tolist() == was.loc["T3A", "mean"].tolist()
    assert table.loc["Mine", "gain"].notna().all()
    assert set(study.numbers("tests")["method"]) == {"T3A", "Mine"}
    assert study.runs("heatmap")["trained"].str.endswith("/run").all()
    assert table.loc["Foreign", "status"].str.contains("not run: Foreign cannot start from .*/run: it holds no training").all()
    # Half of FedICON's candidates would have to be trained.
    assert tuning.grids(replace(study.p, methods=["T3A", "FedICON"], extra=None), "BRFL")[False].keys() == {"T3A"}


def test_the_comparison_ranks_own_methods_and_counts_cut_ones_against_the_cut_baseline():
    full = compared({"FedAvg": 50, "Tent": 60, "Mine": 70}, clients=40).assign(cut=False)
    few = compared({"FedAvg:cut": 55, "Slow": 58}, clients=40, n=2).assign(cut=True)
    ranks = significance.places(full)
    assert ranks.loc[ranks["method"] == "Mine", "place"].eq(0).all()
    gains = grid.gains(pd.concat([full, few])).groupby("method")["accuracy"].mean()
    assert gains[["Mine", "Slow"]].tolist() == [20, 3]


ASKED = {
    "fedthe": lambda p: p.recipes(),
    "upfl": lambda p: p.recipes("mnist"),
    "atp": lambda p: p.recipes(),
    "fedicon": lambda p: p.recipes("digits5", ["FedAvg", "Mine", "Balanced", "Slow"]),
    "btfl": lambda p: p.recipes(),
    "comparison": lambda p: p.recipes("BRFL"),
}


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("paper", PAPERS)
def test_who_starts_from_plain_fedavg_starts_from_the_papers_own(paper, weighting):
    """One training for both, however the papers weigh clients, so that they are compared on the same model; what is not plain stays."""
    trainings = {"Mine": FedAvg(weighting=weighting), "Slow": FedAvg(weighting=weighting, lr=0.001)}
    trainings["Balanced"] = FedAvg("balanced_softmax", weighting)
    p = parameters(paper, extra={name: Recipe(train, None, RunningPrior()) for name, train in trainings.items()})
    found = ASKED[paper](p)
    plain = found["NoAdapt" if paper == "atp" else "FedAvg"].train
    assert found["Mine"].train == plain
    assert found["Balanced"].train == replace(plain, loss="balanced_softmax")
    assert found["Slow"].train == trainings["Slow"]


def test_own_methods_may_be_asked_for_by_name():
    extras.register("Mine", MINE["Mine"])
    for paper in PAPERS:
        p = parameters(paper, methods=["Mine"])
        assert p.own == ["Mine"]
        assert p.facts()["extra"]["Mine"].startswith("Recipe(")
        with pytest.raises(ValueError, match=r"unknown method 'Mien'\. Did you mean 'Mine'"):
            parameters(paper, methods=["Mien"])
        with pytest.raises(ValueError, match="your methods: no file"):
            parameters(paper, extra="nowhere.py:RECIPES")
        with pytest.raises(ValueError, match="'FedAvg' is a method of"):
            parameters(paper, extra={"FedAvg": MINE["Mine"]})
    assert parameters("fedthe", extra=MINE | TUNED, methods=["FedAvg", *TUNED]).own == [*TUNED]
    with pytest.raises(ValueError, match=r"names none of those that extra gives \(Tuned\): add one, or leave extra out"):
        parameters("fedthe", extra=TUNED, methods=["FedAvg", "Mine"])


def test_their_results_have_a_folder_of_their_own():
    plain, own, other = (FEDTHE.folder(parameters("fedthe", extra=extra)) for extra in (None, MINE, TUNED))
    assert plain.parent.name == "smoke"
    assert own.parent.name.startswith("smoke-extra-")
    assert own != other


PLAIN_CLASS = """
from fedlib import Output, Recipe
from fedlib.train.fedavg import FedAvg

class Halved:
    def run(self, task, state, personal, stream):
        return Output(0.5 * task.frozen(state, stream)[1])

RECIPES = {"Mine": Recipe(FedAvg(), None, Halved())}
"""


def test_a_plain_class_has_one_folder_and_every_edit_of_it_an_identity(tmp_path):
    """Its repr holds an address: launcher, kernel and every run wrote to another folder, and an edit kept the identity of a dataclass."""
    path, facts, folders = tmp_path / "own_method.py", [], []
    for code in (PLAIN_CLASS, PLAIN_CLASS, PLAIN_CLASS.replace("0.5", "0.25")):
        path.write_text(code)
        p = parameters("fedthe", extra=f"{path}:RECIPES", methods=["Mine"])
        facts.append(p.facts()["extra"])
        folders.append(FEDTHE.folder(p))
    assert facts[0] == facts[1] != facts[2]
    assert folders[0] == folders[1] == folders[2]


@pytest.mark.parametrize("paper", PAPERS)
def test_the_common_parameters(paper):
    """The same names in every notebook, and the same words for the same thing."""
    about = {name: entry["help"] for name, entry in papermill.inspect_notebook(PROJECT / "notebooks" / f"{paper}.ipynb").items()}
    assert not {*COMMON} - {*about}
    first = papermill.inspect_notebook(PROJECT / "notebooks/fedthe.ipynb")
    for name in ("methods", "seeds", "batch_size", "extra", "start"):
        assert about[name] == first[name]["help"]
    assert about["lr"].startswith("step size of local training")
    assert about["tables"].startswith("list of")
    assert parameters(paper, lr=0.3).lr == 0.3
    for wrong in ({"lr": 0.0}, {"batch_size": 0}):
        with pytest.raises(ValueError, match=f"parameter {next(iter(wrong))} must be"):
            parameters(paper, **wrong)


def phases(paper, **given):
    """The local phases of a paper's main setting."""
    p = parameters(paper, **given)
    settings = {
        "fedthe": lambda: fedthe.setting(p, "Dir(0.1)"),
        "upfl": lambda: upfl.setting(p, "cifar10", "pathological"),
        "atp": lambda: p.settings()[0],
        "fedicon": lambda: fedicon.covariate(p)[0],
        "btfl": lambda: btfl_settings.setting(p, 0.1),
        "comparison": lambda: p.setting("BRFL"),
    }
    return settings[paper]().schedule, p.changed(PAPERS[paper].PROFILES)


@pytest.mark.parametrize("paper", PAPERS)
def test_rate_and_batch_size_act_on_local_training_and_count_as_changed(paper):
    usual, before = phases(paper)
    schedule, changed = phases(paper, lr=0.321, batch_size=7)
    assert (schedule.local.lr, schedule.local.batch_size) == (0.321, 7)
    assert usual.local.lr != 0.321
    assert {"lr", "batch_size"} <= set(changed)
    assert "batch_size" not in before
    if paper != "atp":
        assert (schedule.personal.lr, schedule.personal.batch_size) == (0.321, 7)


def test_networks_that_adam_trains_keep_its_rate():
    p = parameters("fedthe", lr=0.3, batch_size=8)
    cct = fedthe.setting(p, "Dir(0.1)", model="cct4").schedule
    assert (cct.local.lr, cct.local.batch_size) == (0.001, 8)
