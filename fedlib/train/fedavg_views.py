"""FedAvg on the crops and jitter that FedICON sees: how much of FedICON's lead is due to its augmentation, and how much to its loss.

As FedAvg with cross-entropy, averaged by training-set size, but that every image of a minibatch is replaced by one random view
(``fedlib.augment.views.contrastive_views``) in place of the data set's own augmentation. State: the model. Not in the paper, whose
baselines' augmentation is open; FedICON's loss takes two views of an image, cross-entropy one, so that both take the same number of steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedlib.augment.views import CONTRASTIVE
from fedlib.core import Client, Server, State, Task
from fedlib.models import state_of
from fedlib.tools.names import check_name
from fedlib.train.contrastive import OneView
from fedlib.train.fedavg import mean, model_loss, sizes
from fedlib.train.local import train_cohort


@dataclass(frozen=True)
class FedAvgViews:
    """views: kind of data, which decides the views (``contrastive_views``)."""

    views: str = "digits"
    version: int = 1

    def __post_init__(self):
        check_name(self.views, CONTRASTIVE, "kind of contrastive views")

    def init(self, task: Task, clients: Sequence[Client]) -> Server:
        return {"model": state_of(task.model)}

    def update(self, task: Task, server: Server, cohort: Sequence[Client], round: int) -> list[State]:
        seen = replace(task, transform=OneView(task.transform.mean, task.transform.std, kind=self.views))
        return train_cohort(seen, model_loss(seen, "cross_entropy"), server["model"], cohort, round)

    def aggregate(self, task: Task, server: Server, messages: list[State], cohort: Sequence[Client], round: int) -> Server:
        return server | {"model": mean(messages, sizes(cohort))}
