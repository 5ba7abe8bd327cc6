"""FedAvg+FT: fine-tune all of the received model on the client's labelled data. Nothing persists from round to round.

Source: FedTHE section 4 and appendix C (one epoch, cross-entropy, same optimiser as local training, fresh at every phase). Table 13 also
fine-tunes with Balanced Softmax.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from fedlib.core import Client, State, Task
from fedlib.states import stacked
from fedlib.tools.names import check_name
from fedlib.train.fedavg import class_counts, model_loss
from fedlib.train.local import train


@dataclass(frozen=True)
class FineTune:
    """The personal part is the whole tuned model, ``model.<name>`` [clients, ...]. loss: ``cross_entropy`` or ``balanced_softmax``; lr,
    epochs: of the tuning, None for the schedule's."""

    loss: str = "cross_entropy"
    lr: float | None = None
    epochs: int | None = None
    persistent: ClassVar[bool] = False
    version: int = 1

    def __post_init__(self):
        check_name(self.loss, ("cross_entropy", "balanced_softmax"), "loss")

    def init(self, task: Task, clients: Sequence[Client]) -> State:
        return {}

    def fit(self, task: Task, received: Sequence[State], clients: Sequence[Client], personal: State, round: int) -> State:
        changed = {name: value for name in ("lr", "epochs") if (value := getattr(self, name)) is not None}
        if self.epochs is not None:
            changed["steps"] = None
        tuned = train(
            task,
            model_loss(task, self.loss),
            received,
            [client.train for client in clients],
            local=replace(task.schedule.personal, **changed),
            generators=[task.generator("personal", client.id, round) for client in clients],
            constants=class_counts(task, clients) if self.loss == "balanced_softmax" else None,
        )
        return stacked(tuned)
