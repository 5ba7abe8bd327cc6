"""PFL-Sampled and PFL-Ensemble (UPFL section 4.1.2): personal models of the training clients serve a new client, which has none.

Both read FedPer's state, a body with the heads of all training clients (donors). Sampled: a training client uses its own model, a new one
that of a random donor; here all donors answer, and the accuracy is the mean over them, the expectation of the draw. Ensemble: the mean of
all donors' logits. Nothing is adapted, nothing carried.

Paper and code: the paper's main table gives both methods the same validation cell, so that a training client uses its own model there; in
its drift and concept studies the ensemble is scored on training clients too. ``own`` selects.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedlib.core import Output, State, Stream, Task
from fedlib.train.fedper import DONORS, with_head


@dataclass(frozen=True)
class PFLSampled:
    version: int = 1
    own_network: ClassVar[bool] = True

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        ids = donors(state)
        if stream.client in ids:
            return Output(predictions(task, state, stream, [ids.index(stream.client)])[0])
        return Output(predictions(task, state, stream, range(len(ids))))


@dataclass(frozen=True)
class PFLEnsemble:
    """own: training clients use their own model."""

    own: bool = True
    version: int = 1
    own_network: ClassVar[bool] = True

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        ids = donors(state)
        chosen = [ids.index(stream.client)] if self.own and stream.client in ids else range(len(ids))
        return Output(predictions(task, state, stream, chosen).mean(0))


def donors(state: State) -> list[int]:
    """Ids of the clients whose heads the state holds."""
    if f"{DONORS}id" not in state:
        raise ValueError("PFL-Sampled and PFL-Ensemble need the heads of the training clients: train with fedlib.train.fedper")
    return state[f"{DONORS}id"].tolist()


def predictions(task: Task, state: State, stream: Stream, chosen) -> Tensor:
    """Logits [donors, n, C] of the stream under each chosen donor's model."""
    return torch.stack([task.predict(with_head(state, k), stream.images)[1] for k in chosen])
