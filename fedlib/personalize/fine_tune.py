"""FedAvg+FT: fine-tune all of the received model on the client's labelled data. Nothing persists from round to round.

Source: FedTHE section 4 and appendix D (one epoch, cross-entropy, same optimiser as local training, fresh at every phase).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fedlib.clients import Client
from fedlib.task import State, Task
from fedlib.train.fedavg import model_loss
from fedlib.train.local import train


@dataclass(frozen=True)
class FineTune:
    """The personal part is the whole tuned model, ``model.<name>`` [clients, ...]."""

    persistent: bool = False
    version: int = 1

    def init(self, task: Task, clients: Sequence[Client]) -> State:
        return {}

    def fit(self, task: Task, received: Sequence[State], clients: Sequence[Client], personal: State, round: int) -> State:
        tuned = train(
            task,
            model_loss(task, "cross_entropy"),
            received,
            [client.train for client in clients],
            local=task.schedule.personal,
            generators=[task.generator("personal", client.id, round) for client in clients],
        )
        return {f"model.{name}": torch.stack([state[name] for state in tuned]) for name in tuned[0]}
