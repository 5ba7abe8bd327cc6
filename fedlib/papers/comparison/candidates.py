"""The comparison's tuning: for every method a grid over its own two most sensitive hyperparameters, six candidates each.

Three values of one by two of the other; the method's own values, with which it is compared untuned, come first. Which two: for methods that
take gradient steps at test time their size and, mostly, their number or the batch that a step sees; for the others what their papers vary.
A method of one's own says which in the class attribute ``grid`` of its stages: field -> values beside its own.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from fedlib.core import Recipe
from fedlib.tools.names import check_name

EACH = 6  # candidates of every method


@dataclass(frozen=True)
class Axis:
    """place: a field, as ``stage.field`` or ``stage.part.field``; others: values beside the method's own, or factors on it."""

    place: str
    others: tuple[Any, ...]
    factors: bool = False

    def values(self, recipe: Recipe) -> list[Any]:
        own = value_of(recipe, self.place)
        return [own, *(own * other if self.factors else other for other in self.others)]


def _rate(place: str, factors: tuple[float, ...] = (0.3, 3.0)) -> Axis:
    return Axis(place, factors, factors=True)


def _choice(place: str, *others: Any) -> Axis:
    return Axis(place, others)


_TENT = (_rate("adapt.lr", factors=(0.1, 10.0)), _choice("adapt.batch_size", 64))
_ATP = (_rate("personalize.lr"), _choice("adapt.batch_size", 64))
_TTA = (_rate("train.rates.outer", factors=(0.5, 2.0)), _rate("adapt.lr", factors=(0.5,)))
GRID: dict[str, tuple[Axis, Axis]] = {
    "FedAvg+FT": (_choice("personalize.epochs", 3, 10), _choice("personalize.lr", 0.003)),
    "kNN-Per": (_choice("personalize.k", 5, 30), _choice("personalize.scale", 0.1)),
    "TTT": (_rate("adapt.lr"), _choice("adapt.steps", 3)),
    "MEMO": (_choice("adapt.lr", 1e-4, 5e-3), _choice("adapt.steps", 1)),
    "T3A": (_choice("adapt.filter_k", 5, -1), _choice("adapt.batch_size", 32)),
    "Tent": _TENT,
    "EATA": (_TENT[0], _choice("adapt.margin", 0.8)),
    "EM": (_choice("adapt.iterations", 1, 10), _choice("adapt.batch_size", 200)),
    "BBSE": (_choice("adapt.batch_size", 64, 200), _choice("adapt.confusion", "soft")),
    "FedTHE": (_choice("adapt.beta", 0.1, 1.0), _choice("adapt.alpha", 0.5)),
    "FedTHE+": (_rate("adapt.lr"), _choice("adapt.ensemble.beta", 0.1)),
    "BTFL": (_choice("adapt.cap", 50.0, 300.0), _choice("adapt.kb", 10.0)),
    "ATP-batch": _ATP,
    "ATP-online": _ATP,
    "FedICON": (_rate("train.contrast.lr"), _rate("adapt.contrast.lr", factors=(3.0,))),
    "FedTTA": _TTA,
    "FedTTA++": _TTA,
}


def candidates(method: str, recipe: Recipe) -> dict[str, Recipe]:
    """The grid of ``method`` in words, the recipe as it is first; none for a method without a grid (no adaptation, one's own that names
    none). Raises ValueError for a grid of one's own that names no field of its stage, or makes more or fewer candidates than others."""
    axes = GRID.get(method) or _own_axes(method, recipe)
    if not axes:
        return {}
    found = {words(axes, values): changed(recipe, axes, values) for values in itertools.product(*(axis.values(recipe) for axis in axes))}
    if len(found) != EACH:
        grid = f"{method}: the grid of its stages makes {len(found)} different candidates of the {EACH} that every method has"
        raise ValueError(f"{grid}: give, say, two values beside its own for one hyperparameter and one for another")
    return found


def _own_axes(method: str, recipe: Recipe) -> tuple[Axis, ...]:
    found = []
    for stage in fields(recipe):
        part = getattr(recipe, stage.name)
        grid = getattr(part, "grid", None)
        if not isinstance(grid, Mapping):
            continue
        if not is_dataclass(part):
            raise ValueError(f"{method}: {type(part).__name__} has a grid: make it a frozen dataclass, with its hyperparameters as fields")
        for name, others in grid.items():
            check_name(name, [field.name for field in fields(part)], f"field in the grid of {method!r}")
            found.append(_choice(f"{stage.name}.{name}", *(others if isinstance(others, tuple | list) else (others,))))
    return tuple(found)


def words(axes: tuple[Axis, ...], values: tuple) -> str:
    return ", ".join(f"{axis.place}={_told(value)}" for axis, value in zip(axes, values, strict=True))


def _told(value: Any) -> str:
    if value is None:
        return "as scheduled"
    return f"{value:g}" if isinstance(value, float) else f"{value}"


def changed(recipe: Recipe, axes: tuple[Axis, ...], values: tuple) -> Recipe:
    """``recipe`` with every axis at its value."""
    for axis, value in zip(axes, values, strict=True):
        recipe = with_value(recipe, axis.place, value)
    return recipe


def value_of(recipe: Recipe, place: str) -> Any:
    for name in place.split("."):
        recipe = getattr(recipe, name)
    return recipe


def with_value(part: Any, place: str, value: Any) -> Any:
    """``part`` (a recipe, or a stage of one) with another value in the field ``place``."""
    name, _, rest = place.partition(".")
    return replace(part, **{name: with_value(getattr(part, name), rest, value) if rest else value})
