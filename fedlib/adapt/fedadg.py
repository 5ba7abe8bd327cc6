"""FedADG at test time: no adaptation, but the layer that training put before the head (``fedlib.train.fedadg``); nothing is carried."""

from dataclasses import dataclass, replace
from typing import ClassVar

from fedlib.core import Output, State, Stream, Task
from fedlib.states import overlay
from fedlib.train.fedadg import with_features


@dataclass(frozen=True)
class FedADGPredict:
    """features: as in the training, None for none."""

    features: int | None = None
    version: int = 1
    own_network: ClassVar[bool] = True

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        return Output(replace(task, model=with_features(task, self.features)).predict(overlay(state, personal), stream.images)[1])
