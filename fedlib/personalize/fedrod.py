"""FedRoD (Chen & Chao, ICLR 2022) as FedTHE runs it: a personal head that corrects the logits of a balanced global model.

FedTHE (C.2). Each round, on a copy of the received model with logits g and features z, and on the personal head q: one epoch on
BalancedSoftmax(g) + CE(stop(g) + q(stop(z))), stop meaning that no gradient passes. Prediction: g + q(z) with the tuned copy
(``fedlib.adapt.mixture.HeadSum``). State: q, with bias and without weight decay.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn import functional

from fedlib.core import Client, State, Task
from fedlib.models import build_linear
from fedlib.models.net import features_and_logits
from fedlib.states import stacked
from fedlib.train.fedavg import class_counts
from fedlib.train.local import Loss, train
from fedlib.train.losses import balanced_softmax, cross_entropy


@dataclass(frozen=True)
class FedRoD:
    """Personal part: the tuned copy ``model.<name>`` and the head ``personal_head.weight`` [clients, C, d], ``.bias`` [clients, C]."""

    persistent: ClassVar[bool] = True
    version: int = 1
    carries: ClassVar[tuple[str, ...]] = ("personal_head.",)

    def init(self, task: Task, clients: Sequence[Client]) -> State:
        heads = [build_linear(task.model, task.n_classes, task.seed, "FedRoD head", client.id) for client in clients]
        return stacked(heads, prefix="personal_head.")

    def fit(self, task: Task, received: Sequence[State], clients: Sequence[Client], personal: State, round: int) -> State:
        names = ("personal_head.weight", "personal_head.bias")
        tuned = train(
            task,
            _loss(task),
            [received[k] | {name: personal[name][k] for name in names} for k in range(len(clients))],
            [client.train for client in clients],
            local=task.schedule.personal,
            generators=[task.generator("personal", client.id, round) for client in clients],
            weight_decayed=lambda name: name not in names,
            constants=class_counts(task, clients),
        )
        return {name if name in names else f"model.{name}": torch.stack([state[name] for state in tuned]) for name in tuned[0]}


def _loss(task: Task) -> Loss:
    def loss(state, batch, constants):
        inputs, labels, weights = batch
        features, logits = features_and_logits(task.model, state, inputs)
        correction = functional.linear(features.detach(), state["personal_head.weight"], state["personal_head.bias"])
        balanced = balanced_softmax(logits, labels, constants["class_counts"], weights)
        return balanced + cross_entropy(logits.detach() + correction, labels, weights)

    return loss
