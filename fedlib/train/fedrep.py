"""FedRep (Collins et al., ICML 2021) as FedTHE runs it: each round trains the head first, then the body.

From the received model, every client trains the head for the local epochs with the body fixed, then the body for the local epochs with the
head fixed, and sends both; the server takes the mean. Clients keep their own heads beside it (``fedlib.personalize.fedrep``). State: the
model.

Paper and code: FedRep shares the body only; FedTHE's code averages the heads too. It counts "the last tensor" as the head, which for
networks with a bias there is the bias alone; here the head is always the whole last layer. A fixed body keeps its parameters: batch norm,
which FedTHE's networks lack, is in training mode in both phases, as is usual.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fedlib.core import Client, Local, Server, State, Task
from fedlib.models import state_of
from fedlib.train.fedavg import mean, model_loss
from fedlib.train.local import train

PHASES = ("head.", "extractor.")


@dataclass(frozen=True)
class FedRep:
    version: int = 1

    def init(self, task: Task, clients: Sequence[Client]) -> Server:
        return {"model": state_of(task.model)}

    def update(self, task: Task, server: Server, cohort: Sequence[Client], round: int) -> list[State]:
        return alternate(task, [server["model"]] * len(cohort), cohort, task.schedule.local.at(round), "local", round)

    def aggregate(self, task: Task, server: Server, messages: list[State], cohort: Sequence[Client], round: int) -> Server:
        return server | {"model": mean(messages, [1.0] * len(cohort))}


def alternate(
    task: Task,
    states: Sequence[State],
    clients: Sequence[Client],
    local: Local,
    purpose: str,
    round: int,
    phases: Sequence[str] = PHASES,
) -> list[State]:
    """Each client's state after a phase ``local`` on each of the ``phases``, the head alone and the body alone, cross-entropy."""
    for phase in phases:
        states = train(
            task,
            model_loss(task, "cross_entropy"),
            states,
            [client.train for client in clients],
            local=local,
            generators=[task.generator(purpose, phase, client.id, round) for client in clients],
            trainable=lambda name, phase=phase: name.startswith(phase),
        )
    return states
