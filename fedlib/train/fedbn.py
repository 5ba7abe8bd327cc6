"""FedBN (Li et al., ICLR 2021): FedAvg in which batch norm stays with the clients.

Weights, biases and running statistics of all batch-norm layers are the client's own; the rest is averaged. State: the model and every
client's normalisation (``fedlib.train.stay``).

Paper and code: FedBN weighs clients equally, its domains being of equal size; FedICON weighs by training-set size (here, and the same thing
there).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedlib.core import Client, Server, State, Task
from fedlib.models import norm_layers
from fedlib.train import stay
from fedlib.train.fedavg import model_loss, sizes
from fedlib.train.local import train_cohort


@dataclass(frozen=True)
class FedBN:
    version: int = 1
    whole_run: ClassVar[bool] = True
    needs_batch_norm: ClassVar[bool] = True

    def init(self, task: Task, clients: Sequence[Client]) -> Server:
        layers = tuple(f"{layer}." for layer in norm_layers(task.model))
        return stay.start(task, clients, lambda name: name.startswith(layers))

    def update(self, task: Task, server: Server, cohort: Sequence[Client], round: int) -> list[State]:
        return train_cohort(task, model_loss(task, "cross_entropy"), stay.models(server, cohort), cohort, round)

    def aggregate(self, task: Task, server: Server, messages: list[State], cohort: Sequence[Client], round: int) -> Server:
        return stay.average(server, messages, cohort, sizes(cohort))
