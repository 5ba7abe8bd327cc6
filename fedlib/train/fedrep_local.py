"""FedRep (Collins et al., ICML 2021) as its own paper has it: the heads never leave their clients.

Each round, every client trains its own head for the local epochs with the received body fixed, then the body for one epoch with that head
fixed; the server averages the bodies by training-set size. State: the body and every client's head (``fedlib.train.stay``).
``fedlib.train.fedrep`` is FedTHE's variant, which averages the heads too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from fedlib.core import Client, Server, State, Task
from fedlib.train import stay
from fedlib.train.fedavg import sizes
from fedlib.train.fedrep import PHASES, alternate


@dataclass(frozen=True)
class FedRepLocal:
    version: int = 1
    whole_run: ClassVar[bool] = True

    def init(self, task: Task, clients: Sequence[Client]) -> Server:
        return stay.start(task, clients, lambda name: name.startswith("head."))

    def update(self, task: Task, server: Server, cohort: Sequence[Client], round: int) -> list[State]:
        local = task.schedule.local.at(round)
        states = alternate(task, stay.models(server, cohort), cohort, local, "local", round, PHASES[:1])
        return alternate(task, states, cohort, replace(local, epochs=1, steps=None), "local", round, PHASES[1:])

    def aggregate(self, task: Task, server: Server, messages: list[State], cohort: Sequence[Client], round: int) -> Server:
        return stay.average(server, messages, cohort, sizes(cohort))
