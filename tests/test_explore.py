from dataclasses import dataclass, replace

import pytest
import torch

from fedlib import experiment
from fedlib.adapt.fedadg import FedADGPredict
from fedlib.adapt.fedthe import FedTHE
from fedlib.adapt.knn_per import KNNPer
from fedlib.adapt.memo import MEMO
from fedlib.core import Benchmark, Local, Output, Recipe, Schedule
from fedlib.explore import Cases, stages
from fedlib.personalize.fine_tune import FineTune
from fedlib.personalize.head import PersonalHead
from fedlib.personalize.knn_per import LocalMemory
from fedlib.setting import Request, Setting
from fedlib.train.fedadg import FedADG
from fedlib.train.fedavg import FedAvg
from tests import tiny

LOCAL = Local(lr=0.05, batch_size=4, epochs=1)
SETTING = Setting("here", tiny.Protocol(), "mlp", Schedule(rounds=2, local=LOCAL, personal=LOCAL))
CE = FedAvg()
RECIPES = {
    "FedAvg": Recipe(CE),
    "FedAvg+FT": Recipe(CE, FineTune()),
    "kNN-Per": Recipe(CE, LocalMemory(), KNNPer()),
    "MEMO": Recipe(CE, FineTune(), MEMO(views=2, steps=1), costly=True),
    "FedTHE": Recipe(CE, PersonalHead(), FedTHE()),
}


@dataclass(frozen=True)
class Parted:
    """Three clients, the first of which lacks the column ``corrupted`` and the last of which the column ``original``."""

    def build(self, seed: int, root: str | None = None) -> Benchmark:
        whole = tiny.Protocol().build(seed)
        first, middle, last = whole.clients
        first = replace(first, tests={"original": first.tests["original"]})
        last = replace(last, tests={"corrupted": last.tests["corrupted"]}, about="fog 3")
        return replace(whole, clients=(first, middle, last))


@pytest.fixture
def cases(tmp_path):
    return Cases([SETTING], RECIPES, [0], Request(costly_samples=2), str(tmp_path))


@pytest.mark.parametrize(
    ("method", "names"),
    [
        ("FedAvg", ["FedAvg"]),
        ("FedAvg+FT", ["received model", "FedAvg+FT"]),
        ("MEMO", ["received model", "personal model", "MEMO"]),
    ],
)
def test_the_stages_of_a_recipe_are_recipes_and_none_comes_twice(method, names):
    steps = stages(method, RECIPES[method])
    assert list(steps) == names
    assert steps[method] == RECIPES[method]
    assert not any(step.costly for name, step in steps.items() if name != method)


def test_the_two_heads_and_their_weight_make_the_scores_of_fedthe(cases):
    # A head without bias, as FedTHE has.
    seen = replace(cases, settings=[replace(SETTING, model="resnet20gn")]).streams("here", 0, "FedTHE", "original")[1]
    assert list(seen.stages) == ["global head", "personal head", "FedTHE"]
    shared, own, blend = (output.scores for output in seen.stages.values())
    e = seen.stages["FedTHE"].extras["weight"][:, None]
    assert not torch.equal(shared, own)
    torch.testing.assert_close(blend, e * shared + (1 - e) * own)


def test_a_personal_part_that_leaves_the_model_as_it_is_is_no_stage(cases):
    assert list(cases.streams("here", 0, "kNN-Per", "original")[0].stages) == ["received model", "kNN-Per"]


def test_a_training_that_changes_the_network_has_no_stage_before_its_adaptation(tmp_path):
    recipe = Recipe(FedADG(widths=(8, 4), features=6), None, FedADGPredict(6))
    cases = Cases([SETTING], {"FedADG": recipe}, [0], cache=str(tmp_path))
    assert list(cases.streams("here", 0, "FedADG", "original")[0].stages) == ["FedADG"]


def test_the_accuracy_of_what_is_seen_is_that_of_the_table(cases):
    rows = experiment.run([SETTING], RECIPES, [0], request=cases.request, cache=cases.cache)
    for method in RECIPES:
        of_method = rows.query("method == @method and column == 'corrupted' and draw == 0").set_index("client")
        for client, seen in cases.streams("here", 0, method, "corrupted").items():
            right = seen.stages[method].scores.argmax(1) == seen.samples.labels
            assert of_method["accuracy"][client] == 100 * right.double().mean().item()
            assert of_method["n"][client] == len(seen.samples)
    assert len(cases.streams("here", 0, "MEMO", "original")[0].samples) == 2


def test_clients_without_the_column_are_left_out(tmp_path):
    cases = Cases([replace(SETTING, protocol=Parted())], RECIPES, [0], cache=str(tmp_path))
    assert cases.columns() == ["original", "corrupted"]
    assert list(cases.streams("here", 0, "FedAvg", "original")) == [0, 1]
    seen = cases.streams("here", 0, "FedAvg", "corrupted")
    assert list(seen) == [1, 2]
    assert seen[2].where == "here, seed 0, corrupted, client 2 (fog 3)"


@dataclass
class Unhashable:
    """As a user may write it: an ordinary dataclass has no hash."""

    version: int = 1

    def run(self, task, state, personal, stream):
        return Output(task.frozen(state, stream)[1])


def test_a_users_method_needs_no_hash(tmp_path):
    mine = {"mine": Recipe(CE, None, Unhashable())}
    cases = Cases([SETTING], mine, [0], Request(costly_samples=2), str(tmp_path))
    assert list(cases.streams("here", 0, "mine", "original")[0].stages) == ["personal model", "mine"]


def test_the_columns_asked_for(cases):
    assert replace(cases, request=Request(columns=("corrupted",))).columns() == ["corrupted"]
