"""What an experiment refuses, by name, before any work."""

from dataclasses import replace

import numpy as np
import pytest

from fedlib import experiment
from fedlib.adapt.knn_per import BestMix
from fedlib.core import NoAdapt, Recipe
from fedlib.protocols.brfl import BRFL
from fedlib.protocols.validated import Validated
from fedlib.setting import Request
from fedlib.stages.checks import NotKept
from fedlib.train.fedavg import FedAvg
from fedlib.train.fedbn import FedBN
from fedlib.train.scaffold import SCAFFOLD
from tests.test_experiment import RECIPES, SETTING, run
from tests.trust.job import assert_same_rows


class Rule(NoAdapt):
    def __init__(self, rule, together="one"):
        self.rule, self.together = rule, together


def test_two_settings_of_one_label_are_not_mixed():
    with pytest.raises(ValueError, match="different labels, got here twice"):
        run(None, (SETTING, SETTING))
    with pytest.raises(ValueError, match="different labels, got here twice"):
        experiment.personal_parts((SETTING, SETTING), {"tuned": RECIPES["tuned"]}, (0,), cache=None)


def test_one_recipe_and_personal_parts_are_checked_before_anything_runs():
    with pytest.raises(ValueError, match="is of type int, not a recipe"):
        experiment.look(SETTING, 1, 0, "original", cache=None)
    with pytest.raises(ValueError, match="no rounds were given"):
        experiment.look(SETTING, RECIPES["plain"], 0, "original", request=Request(rounds=()), cache=None)
    with pytest.raises(ValueError, match="plain has no personal part: leave it out"):
        experiment.personal_parts((SETTING,), RECIPES, (0,), cache=None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"seeds": 0}, "seeds must be a list, got 0"),
        ({"seeds": []}, "nothing to run: no seeds were given"),
        ({"settings": SETTING}, "settings must be a list, got Setting"),
        ({"recipes": RECIPES["plain"]}, "recipes must be a dictionary by name, got Recipe"),
        ({"recipes": {}}, "no recipes were given"),
        ({"recipes": {"mine": Recipe(FedAvg(), None, NoAdapt)}}, r"method 'mine': its stage adapt is the class NoAdapt; write NoAdapt\(\)"),
        ({"recipes": {"mine": Recipe(FedAvg(), None, None)}}, "no adaptation is fedlib.NoAdapt"),
        ({"recipes": {"mine": Recipe("FedAvg")}}, "its stage train, of type str, needs a method init and update and aggregate"),
        (
            {"recipes": {"mine": Recipe(FedAvg(), None, Rule(len))}},
            "method 'mine': a cache key cannot hold a builtin_function",
        ),
        ({"recipes": {"mine": Recipe(FedAvg(), None, Rule("", "all"))}}, "unknown value of together of 'mine' 'all'"),
    ],
)
def test_what_is_run_comes_in_lists(given, message):
    with pytest.raises(ValueError, match=message):
        run(None, **given)


def test_an_oracle_needs_its_test():
    oracle = replace(RECIPES["plain"], oracle=BestMix(column="orginal"))
    with pytest.raises(ValueError, match=r"unknown test column, on which mine chooses 'orginal'\. Did you mean 'original'"):
        run(None, recipes={"mine": oracle})


def test_lists_in_a_protocol_are_refused_by_name():
    listed = BRFL("digits", n_clients=4, columns=["original"])
    for protocol, remedy in ((listed, "write columns as tuples"), (Validated(listed), "make it a frozen dataclass, with tuples")):
        with pytest.raises(ValueError, match=rf"{type(protocol).__name__} must not change .*'list'\): {remedy}"):
            run(None, (replace(SETTING, protocol=protocol),))


def test_seeds_may_be_numpys():
    plain = {"plain": RECIPES["plain"]}
    assert_same_rows(run(None, recipes=plain, seeds=np.arange(2)), run(None, recipes=plain, seeds=[0, 1]))


def test_requests_that_ask_for_nothing_are_refused():
    for given, words in (
        ({"costly_samples": 0}, "at least 1, or None"),
        ({"costly_samples": -3}, "got -3"),
        ({"columns": ()}, "None for all"),
    ):
        with pytest.raises(ValueError, match=words):
            Request(**given)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request(columns=("orginal",)), "Did you mean 'original'"),
        (Request(rounds=(9,)), "round 9 is outside"),
        (Request(rounds=(-3,)), "round -3 is outside"),
    ],
)
def test_impossible_requests(request_, words):
    with pytest.raises(ValueError, match=words):
        run(None, request=request_)


def test_what_a_later_setting_or_training_refuses_costs_no_training(monkeypatch):
    monkeypatch.setattr(FedAvg, "update", None)  # a training would stop here with another error
    schedule = replace(SETTING.schedule, local=replace(SETTING.schedule.local, momentum=0.9))
    for settings, train, message in (
        ((SETTING, replace(SETTING, label="with momentum", schedule=schedule)), SCAFFOLD(), "SCAFFOLD reads mean gradients"),
        ((SETTING,), FedBN(), "late: FedBN needs batch norm"),
    ):
        with pytest.raises(ValueError, match=message):
            run(None, settings, {"plain": RECIPES["plain"], "late": Recipe(train)})
    seldom = replace(SETTING, label="seldom", schedule=replace(SETTING.schedule, rounds=3, save_every=2))
    with pytest.raises(NotKept, match="is trained through all rounds"):
        run(None, (SETTING, seldom), {"late": RECIPES["fedthe"]})
