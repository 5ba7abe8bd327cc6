"""What starts from a trained federation is what training would have given, and whatever is not there is refused by name."""

import json
import shutil
from dataclasses import dataclass, replace

import pytest
import torch

import fedlib
from fedlib import experiment, start
from fedlib.adapt.fedthe import FedTHE
from fedlib.adapt.mixture import HeadSum
from fedlib.cache import manifest
from fedlib.commands import export
from fedlib.common import PLACES, Common
from fedlib.core import FINAL, RECEIVED, Local, Recipe, Schedule
from fedlib.paper import paper_of
from fedlib.personalize.ditto import Ditto
from fedlib.personalize.fedrod import FedRoD
from fedlib.personalize.fine_tune import FineTune
from fedlib.personalize.head import PersonalHead
from fedlib.plain import rebuilt
from fedlib.published import PAPERS
from fedlib.results.record import remembered_in, write_run
from fedlib.setting import Request, Setting
from fedlib.start import MANIFEST, NotHeld, pretrained
from fedlib.tools.parameters import PROJECT, declared
from fedlib.train.fedavg import FedAvg
from tests import tiny
from tests.trust.job import assert_same_rows

LOCAL = Local(lr=0.05, batch_size=4, epochs=1)
SETTING = Setting("here", tiny.Protocol(), "mlp_small", Schedule(rounds=3, local=LOCAL, personal=LOCAL))
CE, BSM = FedAvg(), FedAvg(loss="balanced_softmax")
RECIPES = {
    "plain": Recipe(CE),
    "tuned": Recipe(CE, FineTune()),
    "ditto": Recipe(CE, Ditto()),
    "fedthe": Recipe(BSM, PersonalHead(), FedTHE()),
}


def finished(folder, *, setting=SETTING, recipes=RECIPES, seeds=(0,), request=None, more=None, limit=export.LIMIT):
    """The trained federations of a finished run, whose cache and results lie in ``folder``."""
    accounts = []
    for methods, asked in ((recipes, request or Request()), (more or {}, Request())):
        if methods:
            with remembered_in(accounts):
                experiment.run([setting], methods, seeds, request=asked, cache=str(folder / "cache"))
    facts = {"device": "cpu", "duration_seconds": 1, "cache_hits": 0, "parameters": {"rounds": setting.schedule.rounds}}
    write_run(folder / "run", profile="paper", seeds=seeds, accounts=accounts, **facts)
    return export.export(folder / "run", folder / "cache", limit)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    return finished(folder), experiment.run([SETTING], RECIPES, [0], cache=str(folder / "cache"))


@pytest.fixture
def no_training(monkeypatch):
    def update(*_, **__):
        pytest.fail("a federated training was started")

    monkeypatch.setattr(FedAvg, "update", update)
    for method in (Ditto, PersonalHead):
        monkeypatch.setattr(method, "fit", update)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_everything_after_training_runs_without_it_and_is_the_same(made, no_training, tmp_path, n_jobs):
    begun, trained = made
    ours = experiment.run([SETTING], RECIPES, [0], cache=str(tmp_path), start=begun, n_jobs=n_jobs)
    assert_same_rows(ours, trained)
    assert ours["train_cached"].all()
    assert not list(tmp_path.glob("train/*/*.safetensors"))
    assert experiment.run([SETTING], RECIPES, [0], cache=str(tmp_path), start=begun)["cached"].all()


def test_what_is_computed_from_it_is_kept_under_the_trainings_own_key(made, no_training, tmp_path):
    begun, _ = made
    experiment.run([SETTING], RECIPES, [0], cache=str(tmp_path), start=begun)
    theirs = begun.folder.parent.parent / "cache"
    for stage in ("adapt", "personalize"):
        assert {p.name for p in (tmp_path / stage).glob("*")} <= {p.name for p in (theirs / stage).glob("*")}


def test_under_other_versions_the_results_get_keys_of_their_own(made, no_training, tmp_path, monkeypatch):
    begun, trained = made
    theirs = {p.name for p in (begun.folder.parent.parent / "cache" / "adapt").glob("*")}
    monkeypatch.setattr(manifest.torch, "__version__", "9.9.9")
    assert_same_rows(experiment.run([SETTING], RECIPES, [0], cache=str(tmp_path), start=begun), trained)
    assert not theirs & {p.name for p in (tmp_path / "adapt").glob("*")}


def test_further_methods_personal_parts_and_single_streams(made, tmp_path, monkeypatch):
    begun, _ = made
    further = {"halfway": Recipe(BSM, PersonalHead(), FedTHE(weighting="half"))}
    trained = experiment.run([SETTING], further, [0], cache=None)
    assert_same_rows(experiment.run([SETTING], further, [0], cache=None, start=begun), trained)
    parts = [experiment.personal_parts([SETTING], further, [0], cache=None, start=s) for s in (begun, None)]
    assert all(torch.equal(t, parts[1][key][n]) for key, part in parts[0].items() for n, t in part.items())
    _, ours = experiment.look(SETTING, further["halfway"], 0, "original", cache=None, start=begun)
    _, theirs = experiment.look(SETTING, further["halfway"], 0, "original", cache=None)
    assert all(torch.equal(ours[lane].scores, theirs[lane].scores) for lane in theirs)


def test_a_part_that_carries_little_is_made_again_in_one_phase(tmp_path, monkeypatch):
    recipes = {"fedrod": Recipe(BSM, FedRoD(), HeadSum())}
    trained = experiment.run([SETTING], recipes, [0], cache=str(tmp_path / "cache"))
    monkeypatch.setattr(export, "SMALL", 10_000)
    begun = finished(tmp_path, recipes=recipes)
    assert [part["name"] for part in begun.manifest["parts"]] == ["carried-00003"]
    phases, fit = [], FedRoD.fit
    monkeypatch.setattr(FedRoD, "fit", lambda self, *a: phases.append(a[-1]) or fit(self, *a))
    assert_same_rows(experiment.run([SETTING], recipes, [0], cache=str(tmp_path / "other"), start=begun), trained)
    assert phases == [3]


def with_schedule(**changes):
    return replace(SETTING, schedule=replace(SETTING.schedule, **changes))


REFUSED = {
    "another rate": ({"settings": [with_schedule(local=replace(LOCAL, lr=0.1))]}, r"local.lr is 0.1, but 0.05 there"),
    "more rounds": ({"settings": [with_schedule(rounds=5)]}, "rounds is 5, but 3 there"),
    "another network": ({"settings": [replace(SETTING, model="mlp")]}, 'model is "mlp", but "mlp_small" there'),
    "other clients": ({"settings": [replace(SETTING, protocol=tiny.Protocol(leaky=True))]}, "clients.leaky is true, but false there"),
    "another seed": ({"seeds": [0, 4]}, "holds seed 0, not 4"),
    "another round": ({"request": Request(rounds=(2,))}, "before rounds 3 of 3, not before 2: ask for these, or train"),
    "the final model": ({"request": Request(rounds=(FINAL,))}, "before rounds 3 of 3, not before 4"),
    "another training": (
        {"recipes": {"x": Recipe(FedAvg(loss="balanced_softmax", version=9))}},
        r"x cannot start .* no training .*, only .*\. fedlib\.pretrained\(",
    ),
    "another part": (
        {"recipes": {"x": Recipe(CE, PersonalHead())}},
        r"no personal part .*PersonalHead.*, which lives through all rounds",
    ),
    "another personal phase": (
        {"settings": [with_schedule(personal=replace(LOCAL, epochs=2))], "recipes": {"d": RECIPES["ditto"]}},
        "holds the personal part Ditto with another schedule",
    ),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_held_is_refused_by_name(made, no_training, changes, message):
    asked = {"settings": [SETTING], "recipes": {"plain": Recipe(CE)}, "seeds": [0], "request": Request(), "cache": None} | changes
    with pytest.raises(NotHeld, match=message):
        experiment.run(asked.pop("settings"), asked.pop("recipes"), asked.pop("seeds"), start=made[0], **asked)


@pytest.fixture
def copied(made, tmp_path):
    """A copy of the trained federations that a test may spoil."""
    return shutil.copytree(made[0].folder, tmp_path / "mine" / "run" / start.FOLDER)


def test_it_is_found_by_the_path_of_its_folder_and_of_the_run(copied, made):
    for path in (copied, copied.parent):
        assert pretrained(str(path)).name == "mine/run"
    assert pretrained(str(copied)).methods == list(RECIPES)
    assert "of mlp_small on noise (stand-in for everything), seed 0, before round 3 of 3: here\n    plain, tuned" in str(made[0])


def test_the_name_of_a_run_that_started_from_one_stands_for_it(copied, tmp_path):
    run = tmp_path / "after" / "run.json"
    run.parent.mkdir()
    for begun_from, name in ((str(copied), "mine/run"), ("digits/fedthe", "digits/fedthe")):
        run.write_text(json.dumps({"parameters": {"start": begun_from}}))
        assert pretrained(str(run.parent)).name == name
    for other in ({"start": None}, {"start": str(run.parent)}, {}):
        run.write_text(json.dumps({"parameters": other}))
        with pytest.raises(ValueError, match="unknown trained federation"):
            pretrained(str(run.parent))


@pytest.fixture(scope="module")
def halves(tmp_path_factory):
    """Two runs of the same clients: one of what starts from plain training, one of the rest, with a second seed and in fewer rounds."""
    first, second, third = (tmp_path_factory.mktemp(name) for name in ("first", "second", "third"))
    fedthe = {"fedthe": RECIPES["fedthe"]}
    short = with_schedule(rounds=2)
    return (
        finished(first, recipes={name: RECIPES[name] for name in ("plain", "tuned")}),
        finished(second, recipes=fedthe, seeds=(0, 1)),
        finished(third, recipes=fedthe, setting=short),
    )


def together(*several):
    return start.TOGETHER.join(str(one.folder) for one in several)


def test_several_are_as_one(halves, made, no_training, tmp_path):
    begun, (_, trained) = pretrained(together(*halves[:2])), made
    assert (begun.methods, begun.seeds) == (["plain", "tuned", "fedthe"], [0, 1])
    recipes = {name: RECIPES[name] for name in begun.methods}
    ours = experiment.run([SETTING], recipes, [0], cache=str(tmp_path), start=begun)
    assert_same_rows(ours, trained[trained["method"].isin(begun.methods)].reset_index(drop=True))
    twice = pretrained(together(made[0], halves[0]))
    assert (twice.methods, twice.seeds, len(twice.federations)) == (made[0].methods, [0], len(made[0].federations))
    assert twice.accuracy.equals(made[0].accuracy)
    with pytest.raises(NotHeld, match=r"plain cannot start .* holds the training .*FedAvg.* with seed 0, not 1"):
        begun.check(recipes, [0, 1])


def test_lists_of_several_are_joined_and_what_contradicts_is_refused(halves):
    def parameters(one, **parameters):
        manifest = one.manifest | {"run": one.manifest["run"] | {"parameters": parameters}}
        return replace(one, manifest=manifest)

    first, second, third = halves
    ours = parameters(first, methods=["a"], tables=["T1"], alphas=[0.1], lr=1)
    joined = start._together(ours, parameters(second, methods=["b"], tables=["T1"], alphas=[0.1, 1.0]))
    assert joined.parameters == {"methods": ["a", "b"], "tables": ["T1"], "alphas": [0.1, 1.0], "lr": 1}
    assert start._together(parameters(first, methods=["a"]), parameters(second, methods=None)).parameters["methods"] is None
    with pytest.raises(ValueError, match="do not go together: their parameter rounds is 3 and 2"):
        pretrained(together(first, third))
    p = Paper(start=together(first, second), seeds=[0], methods=["plain"]).resolved(PROFILES)
    assert p.facts()["start"] == start.TOGETHER.join((first.name, second.name))


def test_an_installed_package_has_it_under_the_same_name(made, monkeypatch, tmp_path):
    shutil.copytree(made[0].folder, tmp_path / "share" / "data" / "run")
    monkeypatch.setattr(start, "HOMES", (tmp_path / "figures", tmp_path / "share"))
    assert pretrained("data/run").name == "data/run"
    assert pretrained("data/run").folder == tmp_path / "share" / "data" / "run"


def test_an_unknown_name_lists_what_there_is(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match=r"unknown trained federation .* 'digits/fedth'. Did you mean 'digits/fedthe'"):
        pretrained("digits/fedth")
    monkeypatch.setattr(start, "HOMES", (tmp_path,))
    with pytest.raises(ValueError, match=r"none at all in .*: clone it, and give the path"):
        pretrained("digits/fedthe")


def test_a_missing_or_damaged_file_is_named_with_the_remedy(copied):
    victim = sorted(copied.glob("*round*"))[0]
    content = bytearray(victim.read_bytes())
    content[-1] ^= 1
    victim.write_bytes(content)
    with pytest.raises(ValueError, match=f"{victim.name} is damaged.*git checkout"):
        pretrained(str(copied))
    victim.unlink()
    with pytest.raises(FileNotFoundError, match=f"{victim.name} is missing: restore it"):
        pretrained(str(copied))


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 1}', "\udcff"])
def test_a_damaged_manifest_is_named(copied, content):
    (copied / MANIFEST).write_text(content, errors="surrogateescape")
    with pytest.raises(ValueError, match=r"manifest.json is damaged"):
        pretrained(str(copied))


def test_a_file_of_another_format_is_not_read(copied):
    document = json.loads((copied / MANIFEST).read_text()) | {"format": 7}
    (copied / MANIFEST).write_text(json.dumps(document))
    with pytest.raises(ValueError, match="has format 7, and this version reads 1"):
        pretrained(str(copied))


# The parameters of notebooks.


@dataclass(frozen=True)
class Paper(Common):
    """A paper without parameters of its own."""


PROFILES = {"paper": {"dataset": "digits", "rounds": 9, "seeds": [0, 1, 2], "clients": 5}}


def test_parameters_are_those_of_the_run_where_they_are_left_out(copied):
    p = Paper(start=str(copied), methods=["plain"]).resolved(PROFILES)
    assert (p.profile, p.rounds, p.seeds, p.methods, p.clients) == ("paper", 3, [0], ["plain"], 5)
    assert p.origin == "profile paper, from the trained federation mine/run"
    assert p.facts()["start"] == "mine/run"
    assert p.execution()["start"].name == "mine/run"
    assert p.request(rounds=(1, 2, 3)).rounds == (3,)
    assert p.request(rounds=(FINAL,)).rounds == (FINAL,)
    assert p.request(rounds=(RECEIVED, FINAL)).rounds == (RECEIVED,)
    untouched = Paper(profile="paper").resolved(PROFILES)
    assert (untouched.origin, untouched.facts()["start"], untouched.execution()["start"]) == ("profile paper", None, None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rounds": 4}, "rounds is 4, but mine/run was trained with 3"),
        ({"seeds": [0, 5]}, r"seeds names \[5\]"),
        ({"start": "nowhere"}, "unknown trained"),
        ({"profile": "small"}, "profile is 'small', but mine/run was trained in 'paper': leave it out"),
    ],
)
def test_parameters_that_contradict_it_are_refused(copied, given, message):
    with pytest.raises(ValueError, match=message):
        Paper(**{"start": str(copied)} | given).resolved(PROFILES)


@pytest.mark.parametrize("notebook", [*(f"notebooks/{name}.ipynb" for name in (*PAPERS, "comparison")), "tests/sixth/sixth.ipynb"])
def test_a_notebook_gives_nothing_of_what_is_run(notebook):
    """Its value would count as given, and contradict a run that had another."""
    given = {name for name, value in declared(PROJECT / notebook).items() if value is not None}
    assert given <= {"profile", *PLACES}
    assert "profile" in given


def test_a_value_that_the_profile_has_anyhow_contradicts_a_run_that_had_another():
    paper = paper_of("fedthe")
    given = declared(paper.notebook) | {"start": "cifar10-jpeg/fedthe-resplit"}
    assert paper.read(given).split == "resplit"
    with pytest.raises(ValueError, match="split is 'fixed', but cifar10-jpeg/fedthe-resplit was trained with 'resplit'"):
        paper.read(given | {"split": "fixed"})


def test_a_path_may_start_at_the_project(tmp_path, monkeypatch):
    """As a notebook's, which runs in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    assert fedlib.pretrained("figures/digits/fedthe").manifest == fedlib.pretrained("digits/fedthe").manifest


# Those that are committed.

FIGURES = PROJECT / "figures"
COMMITTED = sorted(str(path.parent.relative_to(FIGURES)) for path in FIGURES.glob(f"**/{start.FOLDER}/{MANIFEST}"))


def test_the_smallest_of_the_repository_comes_with_an_installed_package():
    assert "digits/fedthe/pretrained" in COMMITTED
    assert '"share/fedlib/pretrained/digits/fedthe" = ["figures/digits/fedthe/pretrained/*"]' in (PROJECT / "pyproject.toml").read_text()


@pytest.mark.parametrize("name", COMMITTED)
def test_all_its_trainings_have_a_setting_of_their_own_name(name):
    """FedTHE's tables ask the same clients for several kinds of tests under one label; FedICON has half the rounds of the others."""
    begun = pretrained(name.removesuffix(f"/{start.FOLDER}"))
    assert {(f["setting"]["label"], f["rounds"]) for f in begun.federations} == {
        (setting.label.removesuffix(f", {setting.schedule.rounds} rounds"), setting.schedule.rounds) for setting in begun.settings
    }
    labels = [setting.label for setting in begun.settings]
    assert len(set(labels)) == len(labels)
    assert begun.settings[0] == rebuilt(begun.federations[0]["setting"])


def test_a_personal_part_goes_on_from_the_latest_file_before_its_round():
    names = ["carried-00004", "carried-00010", "redrawn-00004", "round-00004", "round-00009", "round-00010"]
    assert start.left_before(10, names, "round") == [(9, "round-00009"), (9, "carried-00010"), (4, "round-00004"), (3, "carried-00004")]
    assert start.left_before(5, names, "redrawn") == [(4, "redrawn-00004"), (3, "carried-00004")]
    assert start.left_before(3, names, "round") == []


@pytest.mark.parametrize("name", COMMITTED)
def test_the_recorded_accuracy_is_met(name):
    begun = pretrained(name.removesuffix(f"/{start.FOLDER}"))
    setting, told = begun.settings[0], begun.accuracy
    paper = name.split("/")[1].split("-")[0]
    told = told[(told["setting"] == setting.label) & (told["seed"] == begun.seeds[0])]
    # The comparison's methods have no personal part where clients bring no labels: there they are others than those of this name.
    parts = {n: bool(how["part"]) for f in begun.federations if f["setting"]["label"] == setting.label for n, how in f["measured"].items()}
    named = {n: r for n, r in fedlib.recipes_of(paper).items() if n in set(told["method"]) and not r.costly}
    known = {n: r for n, r in named.items() if bool(r.personalize) == parts[n]}
    # One without and one with a personal part, which is held or fitted again.
    chosen = {bool(r.personalize): n for n, r in reversed(known.items())}.values()
    told = told[told["method"].isin(chosen)]
    request = Request(rounds=(int(told["round"].max()),))
    try:
        rows = experiment.run([setting], {n: known[n] for n in chosen}, begun.seeds[:1], request=request, start=begun, cache=None)
    except NotHeld:
        raise
    except FileNotFoundError as error:
        pytest.skip(f"its images are not here: {error}")
    ours = rows.groupby(["method", "column", "client"])["accuracy"].mean().groupby(["method", "column"]).mean()
    theirs = told[told["round"] == told["round"].max()].set_index(["method", "column"])["accuracy"]
    # The same clients may have been measured on tests of another setting's, too (FedTHE's Table 7).
    theirs = theirs[theirs.index.isin(ours.index)]
    assert {*theirs.index.get_level_values("method")} == {*chosen}
    # To the bit where processor and packages are the same; elsewhere a few images may fall on the other side.
    assert (ours[theirs.index] - theirs).abs().max() < 0.5


@pytest.mark.parametrize("turned", [False, True])
def test_what_was_measured_on_most_images_is_kept(turned):
    made = [{"method": "m", "round": 3, "column": "c", "client": 0, "draw": d, "accuracy": 50.0, "n": 6} for d in (0, 1)]
    one = start.account(SETTING, 0, "key", "noise", {}, made)
    assert one["measured"]["m"]["rounds"] == {"3": {"c": [50.0, 6]}}, "draws are of the same images"
    two = start.account(SETTING, 0, "key", "noise", {}, [row | {"accuracy": 60.0, "n": 12} for row in made])
    (found,) = start.merged([two, one] if turned else [one, two])
    assert found["measured"]["m"]["rounds"]["3"]["c"] == [60.0, 12]
