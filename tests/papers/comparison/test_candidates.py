"""The grids of the comparison's tuning: as many candidates for each, the method's own values first."""

import pytest

from fedlib.core import Recipe
from fedlib.papers.comparison import recipes as comparison
from fedlib.papers.comparison.candidates import GRID, candidates, value_of, with_value
from fedlib.papers.fedicon.recipes import FEDAVG

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
