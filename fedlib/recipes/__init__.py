"""Named methods: which training, which personal part, which adaptation. One table per paper; a new method is one line in it."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from fedlib.adapt.none import NoAdapt
from fedlib.adapt.output import Adapter, Output
from fedlib.federation import TrainMethod
from fedlib.personalize.output import Personalizer


class Oracle(Protocol):
    """A choice that needs the labels of a test, made where scores meet labels: such a recipe is an upper bound, no method.

    ``choose`` reads a client's output on the test ``column`` and its labels, ``scores`` gives the class scores [n, C] of any output of that
    client under the choice.
    """

    column: str

    def choose(self, output: Output, labels: Tensor) -> float: ...

    def scores(self, output: Output, choice: float) -> Tensor: ...


@dataclass(frozen=True)
class Recipe:
    """The three stages of a named method with their hyperparameters. costly: adapts sample by sample with gradients, so that notebooks
    may cut its streams (and then say so); oracle: what is chosen with labels of the test, if anything."""

    train: TrainMethod
    personalize: Personalizer | None = None
    adapt: Adapter = NoAdapt()
    costly: bool = False
    oracle: Oracle | None = None
