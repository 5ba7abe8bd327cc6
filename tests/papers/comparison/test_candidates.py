"""The grids of the comparison's tuning: as many candidates for each, the method's own values first."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from fedlib.core import NoAdapt, Recipe
from fedlib.papers.comparison import recipes as comparison
from fedlib.papers.comparison.candidates import GRID, candidates, value_of, with_value
from fedlib.papers.fedicon.recipes import FEDAVG
from tests.papers.comparison_cases import parameters

TABLE = comparison.recipes() | comparison.without_batch_norm("digits")
NEW = comparison.recipes(labelled=False)


def test_every_method_has_a_grid_but_those_that_do_not_adapt():
    assert set(GRID) == set(TABLE) - {comparison.NONE, comparison.CUT, comparison.PLAIN, comparison.HEAD}


@pytest.mark.parametrize("method", GRID)
def test_six_different_candidates_the_methods_own_first(method):
    for recipe in (table[method] for table in (TABLE, NEW) if method in table):
        found = list(candidates(method, recipe).values())
        assert len(found) == len(set(found)) == 6
        assert found[0] == recipe


@pytest.mark.parametrize("method", GRID)
def test_nothing_but_the_two_hyperparameters_differs(method):
    recipe = TABLE[method]
    for candidate in candidates(method, recipe).values():
        for axis in GRID[method]:
            candidate = with_value(candidate, axis.place, value_of(recipe, axis.place))
        assert candidate == recipe


def test_words_tell_candidates_apart():
    words = list(candidates("Tent", TABLE["Tent"]))
    assert words[:2] == ["adapt.lr=0.001, adapt.batch_size=32", "adapt.lr=0.001, adapt.batch_size=64"]
    assert "adapt.lr=0.0001, adapt.batch_size=32" in words
    assert "adapt.lr=0.01, adapt.batch_size=64" in words
    assert next(iter(candidates("FedAvg+FT", TABLE["FedAvg+FT"]))) == "personalize.epochs=as scheduled, personalize.lr=as scheduled"


def test_a_method_without_a_grid_has_no_candidates():
    assert candidates("Mine", Recipe(FEDAVG)) == {}


@dataclass(frozen=True)
class Mine(NoAdapt):
    memory: float = 0.9
    rate: float = 0.1
    grid: ClassVar[dict] = {"memory": (0.5, 0.99), "rate": 0.3}


def mine(**grid):
    return Recipe(FEDAVG, adapt=type("Own", (Mine,), {"grid": grid})())


def test_a_method_of_ones_own_says_what_is_tuned():
    found = candidates("Mine", Recipe(FEDAVG, adapt=Mine()))
    assert [(recipe.adapt.memory, recipe.adapt.rate) for recipe in found.values()] == [
        (0.9, 0.1), (0.9, 0.3), (0.5, 0.1), (0.5, 0.3), (0.99, 0.1), (0.99, 0.3)
    ]  # fmt: skip
    assert "adapt.memory=0.99, adapt.rate=0.3" in found


@pytest.mark.parametrize("grid", [{"memory": (0.5, 0.99)}, {"memory": (0.5, 0.9), "rate": (0.3,)}, {"memory": (0.5, 0.99), "rate": (1, 2)}])
def test_it_has_as_many_candidates_as_the_others(grid):
    with pytest.raises(ValueError, match=r"Mine: the grid of its stages makes [349] different candidates of the 6 that"):
        candidates("Mine", mine(**grid))


def test_it_tunes_what_its_stages_have():
    with pytest.raises(ValueError, match=r"unknown field in the grid of 'Mine' 'memry'\. Did you mean 'memory'"):
        candidates("Mine", mine(memry=(0.5, 0.99), rate=(0.3,)))


def test_a_stage_without_fields_cannot_be_tuned():
    plain = type("Plain", (), {"grid": {"memory": (0.5, 0.99)}})()
    with pytest.raises(ValueError, match="Mine: Plain has a grid: make it a frozen dataclass"):
        candidates("Mine", Recipe(FEDAVG, adapt=plain))


def test_a_grid_may_be_something_else():
    assert candidates("Mine", Recipe(FEDAVG, adapt=type("Own", (Mine,), {"grid": 8})())) == {}


def test_close_values_are_two_candidates():
    assert len(candidates("Mine", mine(memory=(0.9001, 0.9002), rate=(0.3,)))) == 6


def test_a_wrong_grid_is_refused_before_any_work():
    with pytest.raises(ValueError, match="Mine: the grid of its stages makes 1 different candidate"):
        parameters(extra={"Mine": mine(memory=())})
