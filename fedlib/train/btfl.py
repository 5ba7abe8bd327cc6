"""BTFL's global training: FedAvg on cross-entropy plus an L1 penalty on the features, which makes the binary codes sparse.

Loss of a batch: cross-entropy + feature_l1 / 32 * sum of |f_ij| over its samples and features. State and messages: the model alone.

Paper and code: the penalty is in the code only, and divides by 32 whatever the batch, so that it counts four-fold at a batch of 128.
Without the penalty this is ``fedlib.train.fedavg.FedAvg``, which then serves BTFL as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fedlib.core import Client, Server, State, Task
from fedlib.models import state_of
from fedlib.models.net import features_and_logits
from fedlib.train.fedavg import mean
from fedlib.train.local import train_cohort
from fedlib.train.losses import cross_entropy

DIVISOR = 32


@dataclass(frozen=True)
class SparseFedAvg:
    """feature_l1: factor of the penalty; the published scripts set 1e-3 (CNN) and 1e-4 (CCT, ImageNet-32)."""

    feature_l1: float = 1e-3
    version: int = 1

    def __post_init__(self):
        if self.feature_l1 <= 0:
            raise ValueError(f"feature_l1 must be positive, got {self.feature_l1}: use FedAvg where there is no penalty")

    def init(self, task: Task, clients: Sequence[Client]) -> Server:
        return {"model": state_of(task.model)}

    def update(self, task: Task, server: Server, cohort: Sequence[Client], round: int) -> list[State]:
        """Local training of the cohort from the received model; one message (a model state) per client."""

        def loss(state: State, batch: tuple[torch.Tensor, ...], constants: State) -> torch.Tensor:
            inputs, labels, weights = batch
            features, logits = features_and_logits(task.model, state, inputs)
            # Rows that pad a short batch of a stack have weight zero.
            size = ((weights > 0).to(features.dtype)[:, None] * features.abs()).sum()
            return cross_entropy(logits, labels, weights) + self.feature_l1 / DIVISOR * size

        return train_cohort(task, loss, server["model"], cohort, round)

    def aggregate(self, task: Task, server: Server, messages: list[State], cohort: Sequence[Client], round: int) -> Server:
        return server | {"model": mean(messages, [1.0] * len(cohort))}
