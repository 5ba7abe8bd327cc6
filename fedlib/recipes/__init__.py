"""Named methods: which training, which personal part, which adaptation. One table per paper; a new method is one line in it."""

from dataclasses import dataclass

from fedlib.adapt.none import NoAdapt
from fedlib.adapt.output import Adapter
from fedlib.federation import TrainMethod
from fedlib.personalize.output import Personalizer


@dataclass(frozen=True)
class Recipe:
    """The three stages of a named method with their hyperparameters. costly: adapts sample by sample with gradients, so that notebooks
    may cut its streams (and then say so)."""

    train: TrainMethod
    personalize: Personalizer | None = None
    adapt: Adapter = NoAdapt()
    costly: bool = False
