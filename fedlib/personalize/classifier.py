"""FedICON's personal side: each client trains its own copy of the received classifier on the frozen encoder (section 4.1).

Nothing persists from round to round. With ``memory`` the client also keeps that many of its training images, without labels, for online
adaptation; clients with fewer decide for all, so that the parts stack.

Paper and code: the number of epochs is open in the paper; five, as in the authors' related code.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from fedlib.core import Client, State, Task
from fedlib.states import stacked
from fedlib.train.fedicon import fit_classifier


@dataclass(frozen=True)
class OwnClassifier:
    """Personal part: ``model.head.<name>`` [clients, ...] and, where ``memory`` is not 0, ``memory`` uint8 [clients, m, C, H, W]."""

    epochs: int = 5
    memory: int = 0
    persistent: ClassVar[bool] = False
    version: int = 1

    def init(self, task: Task, clients: Sequence[Client]) -> State:
        return {}

    def fit(self, task: Task, received: Sequence[State], clients: Sequence[Client], personal: State, round: int) -> State:
        local = replace(task.schedule.personal, epochs=self.epochs, steps=None)
        fitted = [
            fit_classifier(task, state, client.train, local, task.generator("personal", client.id, round))
            for state, client in zip(received, clients, strict=True)
        ]
        return stacked(fitted, "head.") | ({"memory": self._memory(task, clients)} if self.memory else {})

    def _memory(self, task: Task, clients: Sequence[Client]) -> torch.Tensor:
        size = min(self.memory, *(len(client.train) for client in clients))
        order = [torch.randperm(len(c.train), generator=task.generator("memory", c.id))[:size] for c in clients]
        return torch.stack([c.train.images[index.to(c.train.images.device)] for c, index in zip(clients, order, strict=True)])
