"""What a study does for every paper, on the made-up sixth one and made-up rows."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from fedlib import extras
from fedlib import study as studies
from fedlib.adapt.bn_adapt import BNAdapt
from fedlib.core import Recipe
from fedlib.paper import Block, Exhibit, paper_in
from fedlib.results import check_table
from fedlib.results.record import strangers
from fedlib.stages.checks import NotKept
from fedlib.start import NotHeld
from fedlib.study import Study
from fedlib.tools import parameters
from fedlib.tools.parameters import declared
from fedlib.train.fedavg import FedAvg
from tests.noise import COLUMNS, Digits, bare, rows, setting
from tests.tiny import Protocol

SIXTH = paper_in(Path(__file__).with_name("sixth"))
FEDAVG = {"FedAvg": Recipe(FedAvg())}


@pytest.fixture(autouse=True)
def asked(monkeypatch, tmp_path):
    """What is run, by call: labels, methods, seeds. Images called "absent" are; results go to a folder of the test's own."""
    calls = []

    def run(settings, recipes, seeds, *, request, **execution):
        if absent := [s.protocol.name for s in settings if s.protocol.name == "absent"]:
            raise FileNotFoundError(f"data set {absent[0]!r}: not in {execution['root']}")
        calls.append(([s.label for s in settings], list(recipes), list(seeds)))
        return rows(settings, recipes, seeds, request.rounds)

    monkeypatch.setattr(studies, "run", run)
    # What is made up here need not go together.
    monkeypatch.setattr(studies, "check_run", lambda *_: None)
    monkeypatch.setattr(extras, "REGISTERED", {})
    monkeypatch.setattr(parameters, "PROJECT", tmp_path)
    return calls


def exhibit(name="T1", blocks=lambda p: [Block([setting()], p.recipes())], **fields):
    return Exhibit(name, f"Table {name}", blocks, SIXTH.exhibit("T1").reduce, **fields)


@pytest.mark.parametrize("batch", [True, False])
def test_a_run_is_checked_at_its_first_cell_and_in_a_batch_before_it(monkeypatch, batch):
    checked = []
    monkeypatch.setattr(studies, "check_run", lambda paper, p: checked.append(paper.name))
    if batch:
        monkeypatch.setenv("FEDLIB_PROGRESS", "progress.log")
    else:
        monkeypatch.delenv("FEDLIB_PROGRESS", raising=False)
    study(exhibit())
    assert checked == ([] if batch else ["sixth"])


def study(*exhibits, **given):
    """The sixth paper, or one like it with other exhibits, whose own setting is made of noise."""
    paper = replace(SIXTH, setting=lambda p: setting(), exhibits=exhibits or tuple(noisy(e) for e in SIXTH.exhibits))
    return Study(paper, declared(SIXTH.notebook) | {"jobs": 1} | given)


def noisy(e):
    """The exhibit on noise instead of digits."""
    return replace(e, blocks=lambda p: [replace(block, settings=[setting()]) for block in e.blocks(p)])


def test_rows_that_exhibits_share_are_run_once(asked):
    few = exhibit("T1", lambda p: [Block([setting()], {"FedAvg": p.recipes()["FedAvg"]})])
    more = exhibit("more", lambda p: [Block([setting(), setting("Dir(1.0)")], p.recipes())])
    s = study(few, more, exhibit("same", more.blocks))
    s.frame("T1")
    wide, again = s.frame("more"), s.frame("same")
    assert asked == [
        (["Dir(0.1)"], ["FedAvg"], [0]),
        (["Dir(0.1)"], ["RunningPrior"], [0]),
        (["Dir(1.0)"], ["FedAvg", "RunningPrior"], [0]),
    ]
    # In the order of settings and methods, whoever was run first.
    first = wide[wide["column"] == "original"]
    assert first[["setting", "method", "mean"]].to_numpy().tolist() == [
        [label, method, value] for label in ("Dir(0.1)", "Dir(1.0)") for method, value in (("FedAvg", 60.5), ("RunningPrior", 65.5))
    ]
    pd.testing.assert_frame_equal(wide.drop(columns="units"), again.drop(columns="units"))


@pytest.mark.parametrize(
    "other", [{"request": {"rounds": (1, 2)}}, {"seeds": [7]}, {"recipes": {"FedAvg": Recipe(FedAvg(weighting="samples"))}}]
)
def test_what_differs_is_run_apart(asked, other):
    block = Block([setting()], FEDAVG)
    study(exhibit("a", lambda p: [block]), exhibit("b", lambda p: [replace(block, **other)])).rows([block, replace(block, **other)])
    assert len(asked) == 2


def test_objects_that_look_alike_are_not_taken_for_each_other(asked):
    digits, other = (Block([bare("here", name)], FEDAVG) for name in ("digits", "digits5"))
    found, _ = study().rows([digits, other, digits])
    assert found["dataset"].drop_duplicates().tolist() == ["digits", "digits5"]
    assert len(asked) == 2


def test_absent_images_are_a_reason_where_they_are_optional_and_an_error_elsewhere(tmp_path):
    def blocks(optional):
        return lambda p: [Block([setting(name="absent")], FEDAVG, optional=optional)]

    picture = exhibit("F1", blocks(True), draw=lambda *_, **__: pytest.fail("nothing to draw"))
    s = study(exhibit("T1", blocks(True)), picture, exhibit("T2", blocks(False)), data_root=str(tmp_path / "x"), output=str(tmp_path / "o"))
    reason = "not run: data set 'absent': not in data_root"
    assert set(s.frame("T1")["status"]) == {reason}
    assert [s.show(name) for name in ("T1", "F1")] == [reason] * 2
    assert s.runs("F1") == reason
    with pytest.raises(FileNotFoundError, match="'absent'"):
        s.frame("T2")


@pytest.mark.parametrize(
    ("error", "why"), [(FloatingPointError("not finite"), "diverged: not finite"), (NotHeld("held by nobody"), "held by nobody")]
)
def test_a_method_that_diverges_or_cannot_start_leaves_the_others_of_an_optional_block(monkeypatch, asked, error, why):
    """Its cells say why, in every exhibit that has it; it is tried once, alone."""
    run, tried = studies.run, []

    def sometimes(settings, recipes, seeds, **how):
        tried.append(list(recipes))
        if "RunningPrior" in recipes:
            raise error
        return run(settings, recipes, seeds, **how)

    monkeypatch.setattr(studies, "run", sometimes)
    table = lambda name, optional: exhibit(name, lambda p: [Block([setting()], p.recipes(), optional=optional)])  # noqa: E731
    s = study(table("T1", True), table("again", True))
    frame = s.frame("T1").set_index("method")
    assert frame.loc["FedAvg", "mean"].tolist() == [60.5, 50.5]
    assert set(frame.loc["RunningPrior", "status"]) == {f"not run: {why}"}
    assert set(s.frame("again")["method"]) == {"FedAvg"}
    assert tried == [["FedAvg", "RunningPrior"], ["FedAvg"], ["RunningPrior"]]
    s.clients()
    s.finish()


def test_a_block_that_is_not_optional_stops_where_a_method_diverges(monkeypatch, asked):
    monkeypatch.setattr(studies, "run", raising(FloatingPointError("not finite")))
    with pytest.raises(FloatingPointError, match="not finite"):
        study(exhibit("T1", lambda p: [Block([setting()], p.recipes())])).frame("T1")


def test_a_table_that_needs_another_schedule_than_the_trained_one_says_so(monkeypatch, asked, tmp_path):
    """Though nothing in it is optional, as with tables = "all" most are not what was asked for; the notebook goes on to its end."""
    monkeypatch.setattr(studies, "run", raising(NotHeld("held by nobody")))
    s = study(exhibit("T1", lambda p: [Block([setting()], p.recipes())]), output=str(tmp_path / "o"))
    assert set(s.frame("T1")["status"]) == {"not run: held by nobody"}
    assert s.show("T1") == "not run: held by nobody"
    s.finish()
    assert (tmp_path / "o" / "run.json").exists()


def raising(error):
    """A run that ends with ``error``."""

    def run(*args, **how):
        raise error

    return run


def without_mine(monkeypatch, error):
    """Let ``error`` stop whatever runs with the method Mine."""
    run = studies.run

    def sometimes(settings, recipes, seeds, **how):
        if "Mine" in recipes:
            raise error
        return run(settings, recipes, seeds, **how)

    monkeypatch.setattr(studies, "run", sometimes)


@pytest.mark.parametrize(
    ("error", "why"),
    [(NotKept("save_every=2 skips some"), "save_every=2 skips some"), (FloatingPointError("not finite"), "diverged: not finite")],
)
def test_an_own_method_that_cannot_run_leaves_the_others_theirs(monkeypatch, asked, error, why):
    without_mine(monkeypatch, error)
    table = exhibit("T1", lambda p: [Block([setting()], p.recipes())])
    frame = study(table, extra={"Mine": FEDAVG["FedAvg"]}).frame("T1").set_index("method")
    assert set(frame.loc["Mine", "status"]) == {f"not run: {why}"}
    assert frame.loc["FedAvg", "mean"].notna().all()
    published = Block([setting()], {"Mine": FEDAVG["FedAvg"]})
    with pytest.raises(type(error)):
        study(exhibit("T2", lambda p: [published])).rows([published])


def test_an_own_method_that_diverges_says_so_in_its_setting(monkeypatch, asked):
    without_mine(monkeypatch, FloatingPointError("not finite"))
    table = exhibit("T1", lambda p: [Block([setting(label)], p.recipes(), optional=True) for label in ("Dir(0.1)", "not in print")])
    mine = study(table, extra={"Mine": FEDAVG["FedAvg"]}).frame("T1").query("method == 'Mine'")
    assert mine[["setting", "column", "status"]].to_numpy().tolist() == [
        ["Dir(0.1)", column, "not run: diverged: not finite"] for column in COLUMNS
    ]


def test_an_own_method_that_diverges_says_so_where_settings_are_printed_as_columns(monkeypatch, asked):
    def never(settings, recipes, seeds, **how):
        raise FloatingPointError("not finite")

    monkeypatch.setattr(studies, "run", never)
    table = exhibit("T1", lambda p: [Block([setting(COLUMNS[0])], p.recipes(), optional=True)])
    mine = study(table, extra={"Mine": FEDAVG["FedAvg"]}).frame("T1").query("method == 'Mine'")
    assert {*mine["column"]} == {COLUMNS[0]}
    assert {*mine["status"]} == {"not run: diverged: not finite"}


def test_one_of_many_that_diverges_costs_few_runs(monkeypatch):
    tried = []

    def run(settings, recipes, seeds, **how):
        tried.append(len(recipes))
        if "m5" in recipes:
            raise FloatingPointError("not finite")
        return list(recipes)

    monkeypatch.setattr(studies, "run", run)
    recipes = {f"m{i}": Recipe(FedAvg()) for i in range(64)}
    found = study()._run(Block([setting()], recipes, optional=True), [setting()], tuple(recipes))
    assert [name for names, _ in found for name in names] == list(recipes)
    assert {names: told for names, told in found if isinstance(told, str)} == {("m5",): "diverged: not finite"}
    assert len(tried) == 13


def test_one_that_the_error_names_is_left_out_at_once(monkeypatch):
    tried = []

    def run(settings, recipes, seeds, **how):
        tried.append(list(recipes))
        for name in ("m2", "m5"):
            if name in recipes:
                error = FloatingPointError("not finite")
                error.method = name
                raise error
        return "rows"

    monkeypatch.setattr(studies, "run", run)
    recipes = {f"m{i}": Recipe(FedAvg()) for i in range(8)}
    found = study()._run(Block([setting()], recipes, optional=True), [setting()], tuple(recipes))
    rest = [name for name in recipes if name not in ("m2", "m5")]
    assert found == [(["m2"], "diverged: not finite"), (["m5"], "diverged: not finite"), (rest, "rows")]
    assert tried == [list(recipes), [name for name in recipes if name != "m2"], rest]


def test_an_exhibit_may_be_made_of_others_that_are_not_asked_for(asked, tmp_path):
    best = Exhibit("best", "The best", numbers=lambda s: s.numbers("T1").nlargest(1, "mean"))
    s = study(exhibit("T1"), best, tables=["best"], output=str(tmp_path))
    assert s.frame("best")["mean"].tolist() == [65.5]
    assert s.frame("T1")["mean"].isna().all()
    s.show("best")
    assert [path.name for path in tmp_path.iterdir()] == ["best.csv"]
    assert len(asked) == 1


def test_below_a_picture_stands_what_its_page_shows(tmp_path):
    """Its options may be taken from the study."""
    drawn = []

    def draw(numbers, *, title, clients):
        drawn.append(clients)
        return plt.figure()

    picture = {"draw": draw, "options": lambda s: {"clients": s.p.clients}, "page": lambda s, numbers: numbers.tail(1)[["mean"]]}
    s = study(exhibit("more", **picture), output=str(tmp_path))
    told, table = s.show("more").parts
    assert told.startswith("Table more\ndigits")
    assert table["mean"].tolist() == [55.5]
    assert drawn == [4]


def test_a_study_says_why_it_has_no_numbers():
    nothing = Exhibit("none", "Nothing", lambda p: [Block([setting()], FEDAVG)], lambda p, rows: rows.head(0))
    assert study(nothing).show("none") == "not run: left out by the parameters"
    assert study(replace(nothing, reasons=lambda p: {"": "fewer than two blocks"})).show("none") == "not run: fewer than two blocks"


def test_a_table_of_which_nothing_was_run_is_filed_with_its_reasons(tmp_path):
    s = study(exhibit("T1", lambda p: [Block([], {}, absent="switched off by a parameter")]), output=str(tmp_path))
    assert s.show("T1") == "not run: switched off by a parameter"
    assert set(pd.read_csv(tmp_path / "T1.csv")["status"]) == {"not run: switched off by a parameter"}
    assert (tmp_path / "T1.tex").exists()


def test_reasons_belong_to_their_block():
    blocks = [Block([setting()], FEDAVG, model="mlp"), Block([], {}, absent="no such network here", model="cnn")]
    found, reasons = study().rows(blocks)
    assert reasons == {"cnn": "no such network here"}
    assert set(found["printed_model"]) == {"mlp"}
    table = study(exhibit("T1", lambda p: blocks)).frame("T1")
    assert set(table.loc[table["method"] == "RunningPrior", "status"]) == {"not run: left out by the parameters"}
    given = exhibit("T1", lambda p: blocks, reasons=lambda p: {"RunningPrior": "takes too long here"})
    assert set(study(given).frame("T1")["status"]) == {"stand-in", "not run: takes too long here"}


def test_own_methods_stand_beside_the_prints_and_refused_ones_say_why():
    own = {"Mine": Recipe(FedAvg(weighting="samples")), "Normed": Recipe(FedAvg(), None, BNAdapt())}
    twice = exhibit("T1", lambda p: [Block([setting()], FEDAVG), Block([setting()], p.recipes())])
    for table in (study(extra=own).frame("T1"), study(twice, extra=own).frame("T1")):
        check_table(table)
        assert table.loc[table["method"] == "Mine", "mean"].notna().tolist() == [True, True]
        assert table.loc[table["method"] == "Normed", "status"].tolist() == [f"not run: {extras.NEEDS['batch norm']}"] * 2
        assert table.loc[table["method"].isin(own), "published_mean"].isna().all()
    assert not set(own) & set(study(extra=own, methods=["FedAvg", "Mine"]).frame("T1")["method"]) - {"Mine"}
    with pytest.raises(ValueError, match=r"'RunningPrior' is a method of sixth already: choose another name"):
        study(extra={"RunningPrior": own["Mine"]})


def test_a_table_shows_what_the_print_has_and_further_methods_that_it_names():
    more = {"FedAvg (code)": Recipe(FedAvg(weighting="samples")), "hidden": Recipe(FedAvg())}
    blocks = lambda p: [Block([setting(), setting("Dir(5.0)")], p.recipes() | more)]  # noqa: E731
    table = study(exhibit("T1", blocks, further=("FedAvg (code)",))).frame("T1")
    assert table["method"].drop_duplicates().tolist() == ["FedAvg", "RunningPrior", "FedAvg (code)"]
    assert set(table["setting"]) == {"Dir(0.1)"}
    assert table["n"].tolist() == [20] * 6


def test_what_is_not_asked_for_is_neither_run_nor_written(asked, tmp_path):
    s = study(tables=["F1"], output=str(tmp_path))
    assert set(s.frame("T1")["status"]) == {"not run: not asked for"}
    assert s.show("T1") == s.runs("T1") == studies.NOT_HERE
    assert asked == []
    assert list(tmp_path.iterdir()) == []
    timed = Exhibit("T1", "Times", numbers=lambda s: pytest.fail("it was measured"))
    assert set(study(timed, exhibit("T2"), tables=["T2"]).frame("T1")["status"]) == {"not run: not asked for"}


def test_a_figure_with_nothing_to_compare_is_not_drawn(tmp_path):
    several, one = (study(rounds=n, output=str(tmp_path)) for n in (3, 1))
    assert several.show("F1").startswith("Figure 1: accuracy by round\n")
    assert {path.name for path in tmp_path.iterdir()} == {"F1.csv", "F1.png", "F1.svg"}
    assert pd.read_csv(tmp_path / "F1.csv")["round"].unique().tolist() == [1, 2, 3]
    told = one.show("F1")
    assert told == "Figure 1: accuracy by round: not drawn, since it compares several values of round and only round 1 was run."
    assert list(tmp_path.iterdir()) == []


def test_what_was_asked_for_by_name_and_not_made_is_recorded(tmp_path):
    """Of all that could be asked for, some need more than is at hand: nobody asked for that by name."""
    absent = exhibit("T1", lambda p: [Block([setting(name="absent")], p.recipes(), optional=True)])
    for folder, tables, lacking in (("both", ["T1", "F1"], ["T1", "F1"]), ("one", ["F1"], ["F1"]), ("any", "all", [])):
        s = study(absent, noisy(SIXTH.exhibit("F1")), rounds=1, tables=tables, output=str(tmp_path / folder))
        for name in ("T1", "F1"):
            s.show(name)
        s.finish()
        told = json.loads((tmp_path / folder / "run.json").read_text()).get("not_made", {})
        assert sorted(told) == sorted(lacking)
        assert told.get("T1", "not run: data set 'absent'").startswith("not run: data set 'absent'")


def test_captions_name_what_stands_in(monkeypatch, tmp_path):
    about = study().about(study().paper.exhibit("T1"))
    assert about == "digits (stand-in), mlp, 3 clients, 2 rounds x 5 epochs, 1 seed, profile smoke"
    real = lambda p: [Block([setting(name="cifar10", n_clients=4)], FEDAVG)]  # noqa: E731
    s = study(exhibit("T1", real), seeds=[0, 1], output=str(tmp_path))
    assert s.about(s.paper.exhibit("T1")) == "cifar10, mlp, 4 clients, 2 rounds x 5 epochs, 2 seeds, profile smoke"

    def shifted(p, rows):
        return SIXTH.exhibit("T1").reduce(p, rows.assign(stand_in=rows["column"] == "corrupted"))

    s = study(replace(exhibit("T1", real), reduce=shifted))
    assert s.about(s.paper.exhibit("T1")).startswith("cifar10 (corrupted: stand-in), mlp")
    s = study(exhibit("T1", said=lambda p: f"on {p.clients} clocks"))
    assert s.about(s.paper.exhibit("T1")) == "on 4 clocks"
    found, reasons = s.rows(s.blocks("T1"))
    monkeypatch.setattr(s, "rows", lambda blocks: (found.assign(stand_in=found["column"] == "corrupted"), reasons))
    assert s.about(s.paper.exhibit("T1")) == "on 4 clocks (corrupted: stand-in)"


def test_captions_tell_of_what_ran_alone():
    blocks = [Block([setting()], FEDAVG), Block([setting(name="absent", n_clients=9)], FEDAVG, optional=True, dataset="far away")]
    s = study(exhibit("T1", lambda p: blocks))
    assert "3 clients" in s.about(s.paper.exhibit("T1"))


def test_a_study_without_print_is_filed_and_shown_wide(tmp_path, capsys):
    s = study(exhibit("more"), output=str(tmp_path))
    (shown,) = s.show("more").parts
    assert shown.to_dict("index") == {
        ("FedAvg", "Dir(0.1)"): {"original": 60.5, "corrupted": 50.5},
        ("RunningPrior", "Dir(0.1)"): {"original": 65.5, "corrupted": 55.5},
    }
    assert capsys.readouterr().out.startswith("Table more: digits (stand-in), mlp")
    assert pd.read_csv(tmp_path / "more.csv")["mean"].tolist() == [60.5, 50.5, 65.5, 55.5]


def test_claims_judge_what_was_not_shown(tmp_path, asked):
    """On two seeds that agree the lead of 5 points is beyond its margin; a table that is not asked for gives no number."""
    study(seeds=[0, 1], output=str(tmp_path)).claims()
    claim = pd.read_csv(tmp_path / "claims.csv").iloc[0]
    assert (claim["ours"], len(asked)) == ("holds", 1)
    assert claim["verdict"] == "holds on digits (stand-in, 2 seeds)"
    study(tables=["F1"], output=str(tmp_path)).claims()
    assert pd.read_csv(tmp_path / "claims.csv")["ours"].tolist() == ["not run"]


def test_run_json_comes_last_and_lists_what_was_written(tmp_path):
    s = study(output=str(tmp_path), rounds=2)
    counts = s.clients()
    assert counts.to_dict("list") == {"original": [7, 7, 7], "corrupted": [6, 6, 6]}
    for name in ("T1", "F1"):
        s.show(name)
    s.claims()
    assert not (tmp_path / "run.json").exists()
    assert "The results are in .," in s.finish()  # which is the project here
    run = json.loads((tmp_path / "run.json").read_text())
    written = {path.name for path in tmp_path.iterdir()} - {"run.json", "federations.json", "index.html"}
    assert set(run["files"]) == written >= {"T1.csv", "F1.png", "claims.csv", "clients.png"}
    assert strangers(tmp_path) == []
    assert "T1.csv" in (tmp_path / "index.html").read_text()
    assert (run["dataset"], run["parameters"]["rounds"], run["profile"]) == ("digits", 2, "smoke")
    # Two methods, two columns, two clients; one round for the table, two for the figure.
    assert run["cache_hits"] == 8 + 16
    s.show("T1")
    assert not (tmp_path / "run.json").exists()


def test_the_clients_are_built_once(monkeypatch):
    built = []
    monkeypatch.setattr(Digits, "build", lambda self, seed, root: built.append(seed) or Protocol.build(self, seed, root))
    s = study(seeds=[3])
    assert s.benchmark is s.benchmark
    assert built == [3]


def test_runs_tell_what_came_from_the_cache():
    runs = study().runs("T1")
    assert runs.loc["FedAvg"].tolist() == ["cached", "cached", 6.0]
    assert runs.loc["RunningPrior", "trained"] == "computed"


def test_one_explores_what_an_exhibit_ran(monkeypatch):
    seen = []
    monkeypatch.setattr("fedlib.plots.explore.show", lambda cases, about: seen.append((cases, about)))
    s = study(exhibit("T1", lambda p: [Block([], {}, absent="nothing here"), Block([setting()], p.recipes())]))
    s.explore("T1")
    (cases, about) = seen[0]
    assert ([s.label for s in cases.settings], list(cases.recipes)) == (["Dir(0.1)"], ["FedAvg", "RunningPrior"])
    assert about.startswith("digits (stand-in)")


def test_a_study_introduces_itself():
    s = study(extra={"A<b>": FEDAVG["FedAvg"]}, methods=["A<b>"])
    assert repr(s).startswith("Study of sixth with Parameters(profile='smoke'")
    assert "A&lt;b&gt;" in s._repr_html_()
    assert "A<b>" not in s._repr_html_()


def test_what_no_paper_can_mean_is_refused():
    with pytest.raises(ValueError, match=r"unknown table, figure or study 'F2'\. Did you mean 'F1'"):
        study().show("F2")
    with pytest.raises(ValueError, match="the numbers of T2 lack n_seeds, run_dataset"):
        study(Exhibit("T2", "Numbers", numbers=lambda s: pd.DataFrame({"mean": [np.pi]}))).show("T2")


def test_an_own_method_is_given_the_reasons_of_the_cells_beside_its_own():
    given = exhibit("T1", lambda p: [Block([setting()], p.recipes())], reasons=lambda p: {COLUMNS[1]: "no such images here"})
    frame = study(given, extra={"Mine": Recipe(FedAvg(weighting="samples"))})
    frame._numbers["T1"] = frame.numbers("T1").query(f"column == '{COLUMNS[0]}'"), {}
    mine = frame.frame("T1").query("method == 'Mine'").set_index("column")["status"]
    assert mine[COLUMNS[1]] == "not run: no such images here"
    assert not mine[COLUMNS[0]].startswith("not run")
