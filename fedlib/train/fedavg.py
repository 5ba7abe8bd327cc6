"""FedAvg (McMahan et al. 2017) with a choice of loss: cross-entropy, or the Balanced Softmax that FedTHE and FedRoD train with.

Round: every client of the cohort trains a copy of the received model for the local epochs; the server takes the mean of the results.
State: the model. Nothing else travels. FedTHE's code averages uniformly; clients of equal size make that the size-weighted mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.func import functional_call

from fedlib.core import Client, Server, State, Task
from fedlib.models import state_of
from fedlib.tools.names import check_name
from fedlib.train.local import Loss, train_cohort
from fedlib.train.losses import balanced_softmax, cross_entropy


@dataclass(frozen=True)
class FedAvg:
    """loss: ``cross_entropy`` or ``balanced_softmax``; weighting: ``uniform`` or ``samples`` (by training-set size); lr: local rate,
    None for the schedule's."""

    loss: str = "cross_entropy"
    weighting: str = "uniform"
    lr: float | None = None
    version: int = 1

    def __post_init__(self):
        check_name(self.loss, ("cross_entropy", "balanced_softmax"), "loss")
        check_name(self.weighting, ("uniform", "samples"), "weighting")

    def init(self, task: Task, clients: Sequence[Client]) -> Server:
        return {"model": state_of(task.model)}

    def update(self, task: Task, server: Server, cohort: Sequence[Client], round: int) -> list[State]:
        """Local training of the cohort from the received model; one message (a model state) per client."""
        constants = class_counts(task, cohort) if self.loss == "balanced_softmax" else None
        return train_cohort(task, model_loss(task, self.loss), server["model"], cohort, round, lr=self.lr, constants=constants)

    def aggregate(self, task: Task, server: Server, messages: list[State], cohort: Sequence[Client], round: int) -> Server:
        return server | {"model": mean(messages, sizes(cohort) if self.weighting == "samples" else [1.0] * len(cohort))}


def model_loss(task: Task, name: str) -> Loss:
    """The loss of one client's batch as a function of its state, for ``fedlib.train.local.train``."""

    def cross_entropy_loss(state, batch, constants):
        inputs, labels, weights = batch
        return cross_entropy(functional_call(task.model, state, (inputs,)), labels, weights)

    def balanced_softmax_loss(state, batch, constants):
        inputs, labels, weights = batch
        return balanced_softmax(functional_call(task.model, state, (inputs,)), labels, constants["class_counts"], weights)

    return {"cross_entropy": cross_entropy_loss, "balanced_softmax": balanced_softmax_loss}[name]


def class_counts(task: Task, clients: Sequence[Client]) -> list[State]:
    """Raw class counts [C] of every client's training part, as constants of the loss."""
    return [{"class_counts": torch.bincount(client.train.labels, minlength=task.n_classes).to(task.dtype)} for client in clients]


def sizes(cohort: Sequence[Client]) -> list[float]:
    """Number of training samples of every client, the usual weights of an average."""
    return [float(len(client.train)) for client in cohort]


def mean(states: Sequence[State], weights: Sequence[float]) -> State:
    """Weighted mean of states; buffers (batch-norm statistics) included, integer counters taken from the first state."""
    total = sum(weights)
    result = {}
    for name, first in states[0].items():
        if not first.is_floating_point():
            result[name] = first.clone()
            continue
        result[name] = sum(state[name] * (weight / total) for state, weight in zip(states, weights, strict=True)).contiguous()
    return result
