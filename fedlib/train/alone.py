"""Local: every client trains by itself, nothing is shared (the baseline of the same name in FedICON's tables).

As many rounds and local epochs as the federated methods take, the optimiser fresh in every round as theirs is. State: every client's own
model (``fedlib.train.stay``). A client that takes no part has none: it gets the mean of models that were never brought together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedlib.core import Client, Server, State, Task
from fedlib.train import stay
from fedlib.train.fedavg import model_loss, sizes
from fedlib.train.local import train_cohort


@dataclass(frozen=True)
class Alone:
    version: int = 1
    whole_run: ClassVar[bool] = True

    def init(self, task: Task, clients: Sequence[Client]) -> Server:
        return stay.start(task, clients, lambda name: True)

    def update(self, task: Task, server: Server, cohort: Sequence[Client], round: int) -> list[State]:
        return train_cohort(task, model_loss(task, "cross_entropy"), stay.models(server, cohort), cohort, round)

    def aggregate(self, task: Task, server: Server, messages: list[State], cohort: Sequence[Client], round: int) -> Server:
        return stay.average(server, messages, cohort, sizes(cohort))
