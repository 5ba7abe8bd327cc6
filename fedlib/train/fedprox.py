"""FedProx (Li et al., MLSys 2020), a baseline of UPFL: local training that stays near the received model.

Local loss: cross-entropy + mu / 2 ||w - w_received||^2 over all parameters. The server takes the size-weighted mean. State: the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fedlib.core import Client, Server, State, Task
from fedlib.models import state_of
from fedlib.train.fedavg import mean, model_loss, sizes
from fedlib.train.local import train_cohort


@dataclass(frozen=True)
class FedProx:
    """mu: strength of the pull, at least 0 (0 is FedAvg); lr: local rate in round 1, None for the schedule's."""

    mu: float = 0.001
    lr: float | None = None
    version: int = 1

    def __post_init__(self):
        if self.mu < 0:
            raise ValueError(f"mu must be at least 0, got {self.mu}")

    def init(self, task: Task, clients: Sequence[Client]) -> Server:
        return {"model": state_of(task.model)}

    def update(self, task: Task, server: Server, cohort: Sequence[Client], round: int) -> list[State]:
        received, plain = server["model"], model_loss(task, "cross_entropy")
        names = [name for name, _ in task.model.named_parameters()]

        def loss(state, batch, constants):
            return plain(state, batch, constants) + self.mu / 2 * sum((state[n] - received[n]).square().sum() for n in names)

        return train_cohort(task, loss, received, cohort, round, lr=self.lr)

    def aggregate(self, task: Task, server: Server, messages: list[State], cohort: Sequence[Client], round: int) -> Server:
        return server | {"model": mean(messages, sizes(cohort))}
