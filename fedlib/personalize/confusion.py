"""Confusion counts of the received model on the source clients' validation parts, for BBSE (``fedlib.adapt.bbse``)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn.functional import one_hot

from fedlib.core import Client, State, Task


@dataclass(frozen=True)
class Confusion:
    """Personal part: ``shared.confusion.hard`` and ``shared.confusion.soft`` [C, C], rows predicted (arg max, or softmax), columns true,
    summed over all source clients."""

    persistent: ClassVar[bool] = False
    version: int = 1
    needs = ("validation",)

    def init(self, task: Task, clients: Sequence[Client]) -> State:
        return {}

    def fit(self, task: Task, received: Sequence[State], clients: Sequence[Client], personal: State, round: int) -> State:
        counts = torch.zeros(2, task.n_classes, task.n_classes, dtype=torch.float64, device=received[0]["head.weight"].device)
        for k, client in enumerate(clients):
            if client.source and len(client.val):
                logits = task.predict(received[k], client.val.images)[1].double()
                labels = one_hot(client.val.labels, task.n_classes).double()
                counts[0] += one_hot(logits.argmax(1), task.n_classes).double().T @ labels
                counts[1] += logits.softmax(1).T @ labels
        return {"shared.confusion.hard": counts[0], "shared.confusion.soft": counts[1]}
