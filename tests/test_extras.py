"""Methods of one's own: where they may come from, what is refused, and that they are the same in every process."""

import math
import os
import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
import torch

import fedlib
from fedlib import experiment, extras
from fedlib.adapt.bn_adapt import BNAdapt
from fedlib.adapt.whole_client import TentAll
from fedlib.cache.identity import name_of
from fedlib.cache.store import describe, key_of
from fedlib.core import NoAdapt, Output, Recipe
from fedlib.experiment import run
from fedlib.extras import checked, gather, read, register
from fedlib.personalize.confusion import Confusion
from fedlib.personalize.fine_tune import FineTune
from fedlib.personalize.knn_per import LocalMemory
from fedlib.personalize.rates import Rates
from fedlib.personalize.select import Select, Selected
from fedlib.protocols.brfl import BRFL
from fedlib.protocols.ttpfl import TTPFL
from fedlib.tools.parameters import PROJECT
from fedlib.train.fedavg import FedAvg
from fedlib.train.fedtta import FedTTA
from tests import tiny
from tests.trust import job

SOURCE = '''
"""A method in a file of the user's."""
from dataclasses import dataclass

import torch

import fedlib

SHARPNESS = 2.0


def sharpened(logits):
    return SHARPNESS * logits


@dataclass(frozen=True)
class RunningPrior:
    strength: float = 0.5

    def run(self, task, state, personal, stream):
        logits = sharpened(task.frozen(state, stream)[1])
        seen = torch.arange(1, len(logits) + 1)[:, None]
        return fedlib.Output(logits + self.strength * (logits.softmax(1).cumsum(0) / seen).log())


TRAIN = fedlib.recipes_of("fedthe", "FedAvg")["FedAvg"].train
RECIPES = {"RunningPrior": fedlib.Recipe(TRAIN, None, RunningPrior())}
NUMBER = 3
NONE_YET = {}
'''


@dataclass(frozen=True)
class Halved:
    def run(self, task, state, personal, stream):
        return Output(task.frozen(state, stream)[1] / 2)


MINE = Recipe(FedAvg(), None, Halved())


@pytest.fixture(autouse=True)
def no_other(monkeypatch):
    monkeypatch.setattr(extras, "REGISTERED", {})


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A file beside which the notebook runs."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "my_methods.py"
    path.write_text(SOURCE)
    return path


def test_a_registered_method_is_gathered_and_replaced_by_its_next_version():
    fedlib.register("Mine", MINE)
    assert gather(None) == {"Mine": extras.Extra(MINE)}
    better = replace(MINE, adapt=NoAdapt())
    register("Mine", better)
    assert gather(None)["Mine"].recipe == better


@pytest.mark.parametrize("name", ["FedAvg", "NoAdapt", "FedTTA++", "FedICON-us", "BTFL (code)", "FedAvg:cut", "kNN-Per (oracle)"])
def test_a_name_that_a_paper_uses_is_refused(name):
    with pytest.raises(ValueError, match=r"already: choose another name, such as '.* \(own\)'"):
        register(name, MINE)
    assert not extras.REGISTERED


@pytest.mark.parametrize(
    ("name", "recipe", "message"),
    [
        ("", MINE, "must be a non-empty string"),
        (3, MINE, "must be a non-empty string"),
        ("_mine", MINE, "may not begin with an underscore, as legends leave it out: take 'mine'"),
        ("Mine", Halved(), "is of type Halved, not a recipe: write fedlib.Recipe"),
        ("Mine", None, "is of type NoneType, not a recipe"),
        ("Mine", Recipe(FedAvg(), None, Halved), r"stage adapt is the class Halved; write Halved\(\)"),
        ("Mine", Recipe(FedAvg(), Halved()), "its stage personalize, of type Halved, needs a method init and fit"),
        ("Mine", Recipe(FedAvg(), None, object()), "its stage adapt, of type object, needs a method run"),
    ],
)
def test_what_is_no_recipe_is_refused(name, recipe, message):
    with pytest.raises(ValueError, match=message):
        register(name, recipe)
    with pytest.raises(ValueError, match=message):
        gather({name: recipe})


def test_a_plain_class_will_do():
    """What ``fedlib.run`` takes, the notebooks take: a class as in the README's first experiment, whose attributes stand for the fields."""

    class Plain:
        def __init__(self, factor):
            self.factor = factor

        def run(self, task, state, personal, stream):
            return Output(self.factor * task.frozen(state, stream)[1])

    register("Mine", Recipe(FedAvg(), None, Plain(1)))
    assert list(gather(None)) == ["Mine"]
    assert describe(Plain(1)) == describe(Plain(1)) != describe(Plain(2))


def test_two_methods_of_one_name_are_refused():
    register("Mine", MINE)
    assert list(gather({"Mine": MINE})) == ["Mine"]
    with pytest.raises(ValueError, match="'Mine' is registered, and extra gives another"):
        gather({"Mine": replace(MINE, adapt=NoAdapt())})


@pytest.mark.parametrize(
    ("recipe", "needs"),
    [
        (MINE, ()),
        (Recipe(FedAvg(), FineTune()), ("labels",)),
        (Recipe(FedAvg(), LocalMemory()), ("labels", "validation")),
        (Recipe(FedAvg(), Confusion()), ("validation",)),
        (Recipe(FedAvg(), Rates()), ("validation",)),
        (Recipe(FedAvg(), None, BNAdapt()), ("batch norm",)),
        (Recipe(FedTTA(), None, TentAll()), ("no batch norm",)),
        (Recipe(FedAvg(), Select((BNAdapt(),)), Selected((BNAdapt(),))), ("validation", "batch norm")),
    ],
)
def test_a_recipe_tells_what_it_needs(recipe, needs):
    assert checked("Mine", recipe).needs == needs


def test_needs_can_be_given():
    assert checked("Mine", MINE, ["validation"]).needs == ("validation",)
    assert checked("Mine", Recipe(FedAvg(), FineTune()), []).needs == ()
    with pytest.raises(ValueError, match=r"unknown need of 'Mine' 'label'\. Did you mean 'labels'"):
        register("Mine", MINE, needs=["label"])
    lacking = checked("Mine", MINE, ["labels"])
    assert lacking.lacks(("validation",)) == extras.NEEDS["labels"]
    assert lacking.lacks(("labels",)) is None


@pytest.mark.parametrize("form", ["my_methods.py", "path", "my_methods"])
def test_a_file_or_a_module_by_name(source, form, monkeypatch):
    monkeypatch.syspath_prepend(str(source.parent))
    place = str(source) if form == "path" else form
    assert list(gather(f"{place}:RECIPES")) == ["RunningPrior"]
    sys.modules.pop("my_methods", None)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("my_methods.py", "must be 'my_methods:RECIPES' or 'path/to/file.py:RECIPES'"),
        (":RECIPES", "must be 'my_methods:RECIPES'"),
        ("my_method.py:RECIPES", r"no file .*my_method\.py.*Did you mean '.*my_methods\.py'"),
        ("my_methods.py:RECIPE", r"unknown dictionary of recipes in my_methods\.py 'RECIPE'\. Did you mean 'RECIPES'"),
        ("my_methods.py:NUMBER", "is a int: a dictionary of recipes by name is expected"),
        ("my_methods.py:NONE_YET", "is empty: put a recipe into it, or leave the parameter extra out"),
        ("my_metods:RECIPES", "no module 'my_metods'. Did you mean 'my_methods'"),
        ("nothing.like.it:RECIPES", r"no module 'nothing.like.it'\. Give the path of its file"),
        ("broken.py:RECIPES", "broken.py cannot be read: ModuleNotFoundError: No module named 'helpers_of_mine'"),
    ],
)
def test_what_cannot_be_found_is_named_with_the_closest(source, where, message):
    (source.parent / "broken.py").write_text("import helpers_of_mine\n")
    with pytest.raises(ValueError, match=message):
        gather(where)


def test_an_edited_file_is_read_anew_and_known_by_what_it_does(source):
    first = gather("my_methods.py:RECIPES")["RunningPrior"].recipe.adapt
    assert gather("my_methods.py:RECIPES")["RunningPrior"].recipe.adapt == first
    source.write_text(SOURCE + "\n# a remark\n")
    same = gather("my_methods.py:RECIPES")["RunningPrior"].recipe.adapt
    assert type(same) is not type(first)
    assert name_of(type(same)) == name_of(type(first))
    source.write_text(SOURCE.replace("SHARPNESS = 2.0", "SHARPNESS = 3.0"))
    edited = gather("my_methods.py:RECIPES")["RunningPrior"].recipe.adapt
    assert name_of(type(edited)) != name_of(type(first))


def test_a_class_from_a_file_has_one_identity_wherever_the_file_lies(source, tmp_path):
    here = name_of(type(read("my_methods.py:RECIPES")["RunningPrior"].adapt))
    other = tmp_path / "elsewhere" / "my_methods.py"
    other.parent.mkdir()
    other.write_text(SOURCE)
    code = "import sys; from fedlib.extras import read; from fedlib.cache.identity import name_of\n"
    code += "print(name_of(type(read(sys.argv[1] + ':RECIPES')['RunningPrior'].adapt)))"
    there = subprocess.run([sys.executable, "-c", code, str(other)], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == here
    assert here.startswith("own_my_methods.RunningPrior#")


def test_processes_run_a_method_from_a_file_and_cache_it_under_the_same_key(source, tmp_path):
    """Two trainings in two processes; a run in this one finds all of it."""
    recipes = {"FedAvg": Recipe(FedAvg()), **read("my_methods.py:RECIPES")}
    again = {"Prox": Recipe(FedAvg(weighting="samples"), None, recipes["RunningPrior"].adapt)}
    asked = {"settings": [job.SETTING], "recipes": recipes | again, "seeds": [0, 1], "cache": str(tmp_path / "cache")}
    parallel, alone = run(**asked, n_jobs=2), run(**asked)
    assert not parallel["cached"].any()
    assert alone["cached"].all()
    both = [frame.drop(columns=["cached", "train_cached", "seconds"]) for frame in (parallel, alone)]
    pd.testing.assert_frame_equal(*both)
    mean = alone.groupby("method")["loss"].mean()
    assert mean["RunningPrior"] != mean["FedAvg"]


CELLS = """
from dataclasses import dataclass

import torch

import fedlib
from fedlib.train.fedavg import FedAvg
from tests import tiny
from tests import tiny
from tests.trust import job

SHARPNESS = 2.0


def sharpened(logits):
    return SHARPNESS * logits


@dataclass(frozen=True)
class Prior:
    def run(self, task, state, personal, stream):
        logits = sharpened(task.frozen(state, stream)[1])
        return fedlib.Output(logits + logits.softmax(1).cumsum(0).log())


@dataclass(frozen=True)
class Slow(FedAvg):
    def aggregate(self, task, server, messages, cohort, round):
        after = super().aggregate(task, server, messages, cohort, round)["model"]
        return server | {"model": {name: sharpened(t + after[name]) / 4 for name, t in server["model"].items()}}


@dataclass(frozen=True)
class Heads:
    persistent = False
    version: int = 1

    def init(self, task, clients):
        return {"model.head.weight": torch.stack([task.model.head.weight.detach()] * len(clients))}

    def fit(self, task, received, clients, personal, round):
        return {"model.head.weight": torch.stack([sharpened(state["head.weight"]) for state in received])}


@dataclass(frozen=True)
class Two:
    def build(self, seed, root=None):
        return tiny.Protocol(brightness=int(SHARPNESS)).build(seed, root)


class Small(fedlib.Net):
    def __init__(self, in_shape, n_classes):
        super().__init__(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 4), torch.nn.Tanh()), torch.nn.Linear(4, n_classes))


settings = [fedlib.Setting("own", Two(), Small, job.SETTING.schedule)]
recipes = {"prior": fedlib.Recipe(FedAvg(), None, Prior()), "own": fedlib.Recipe(Slow(), Heads(), Prior())}
compared = ["method", "seed", "column", "client", "accuracy", "loss"]
for SHARPNESS in (2.0, 3.0):
    shared = fedlib.run(settings, recipes, [0, 1], cache=CACHE, n_jobs=2)
    alone, again = (fedlib.run(settings, recipes, [0, 1], cache=cache) for cache in (None, CACHE))
    assert not shared["cached"].any() and again["cached"].all(), "one key in every process, another for another constant"
    assert shared[compared].equals(alone[compared])
"""


def test_what_a_notebooks_cell_defines_runs_in_processes(tmp_path):
    """Method, training, personal part, clients and network of ``__main__``, as cells leave them; a constant changes in between."""
    code = f"CACHE = {str(tmp_path)!r}\n{CELLS}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=PROJECT)
    assert done.returncode == 0, done.stderr


class Tiny(fedlib.Net):
    """A network of one's own."""

    def __init__(self, in_shape, n_classes):
        extractor = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(math.prod(in_shape), 4), torch.nn.Tanh())
        super().__init__(extractor, torch.nn.Linear(4, n_classes))


def test_a_network_of_ones_own_is_cached_by_what_it_is(tmp_path):
    asked = {"recipes": {"FedAvg": Recipe(FedAvg())}, "seeds": [0, 1], "cache": str(tmp_path)}
    setting = replace(job.SETTING, model=Tiny)
    first, again = run([setting], **asked, n_jobs=2), run([setting], **asked)
    assert not first["train_cached"].any()
    assert again["cached"].all()
    assert set(again["model"]) == {"Tiny"}
    # The same name, and another network.
    other = type("Tiny", (Tiny,), {"__module__": "__main__", "forward": lambda self, images: self.head(self.extractor(images)) * 2})
    assert key_of({"model": other}) != key_of({"model": Tiny})
    with pytest.raises(ValueError, match="network Halved must be a subclass"):
        run([replace(setting, model=Halved)], **asked)


SIZE = 3


@dataclass(frozen=True)
class Sized:
    """Clients whose images a constant beside the class determines."""

    def build(self, seed, root=None):
        return tiny.Protocol(brightness=SIZE).build(seed, root)


def test_clients_are_built_anew_when_a_constant_of_theirs_changes(monkeypatch):
    before = experiment.benchmark_of(Sized(), 0, None)
    assert experiment.benchmark_of(Sized(), 0, None) is before
    monkeypatch.setattr(sys.modules[__name__], "SIZE", 5)
    assert experiment.benchmark_of(Sized(), 0, None) is not before


@pytest.mark.parametrize("clients", [lambda path: BRFL(path, n_clients=2), lambda path: TTPFL(path, "feature", n_clients=4)])
def test_clients_are_built_anew_when_ones_images_are_replaced(tmp_path, clients):
    def write(seed):
        rng = np.random.default_rng(seed)
        parts = {"train": 400, "test": 100}
        arrays = {f"x_{part}": rng.integers(0, 256, (n, 8, 8, 1), np.uint8) for part, n in parts.items()}
        np.savez(tmp_path / "mine.npz", **arrays, **{f"y_{part}": np.arange(n) % 4 for part, n in parts.items()})
        os.utime(tmp_path / "mine.npz", (seed, seed))

    def images():
        return experiment.benchmark_of(clients(str(tmp_path / "mine.npz")), 0, None).clients[0].train.images

    write(1)
    before = images()
    assert images() is before
    write(2)
    assert not torch.equal(images(), before)
