"""Ditto (Li et al., ICML 2021): a personal model trained every round, held near the received one by a proximal term.

FedTHE (C.1, C.2): one epoch per round on cross-entropy + strength / 2 ||v - w||^2, w the model received in the round, no weight decay.
State: v, which starts as the first received model.

Paper and code: FedTHE's code adds the proximal gradient where the next step erases it, so that its Ditto is purely local training; the
published numbers fit that (default). ``prox=True`` is the method.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torch.func import functional_call

from fedlib.core import Client, State, Task
from fedlib.models import state_of
from fedlib.states import part, slice_of, stacked
from fedlib.train.local import Loss, train
from fedlib.train.losses import cross_entropy


@dataclass(frozen=True)
class Ditto:
    """Personal part: the whole model, ``model.<name>`` [clients, ...]. prox: whether the proximal term acts; strength: its factor;
    weight_decay: of the personal training."""

    prox: bool = False
    strength: float = 1.0
    weight_decay: float = 0.0
    persistent: ClassVar[bool] = True
    version: int = 1

    def __post_init__(self):
        if self.strength < 0 or self.weight_decay < 0:
            raise ValueError(f"out of range: {self} (strength >= 0, weight_decay >= 0)")

    def init(self, task: Task, clients: Sequence[Client]) -> State:
        return stacked([state_of(task.model)] * len(clients))

    def fit(self, task: Task, received: Sequence[State], clients: Sequence[Client], personal: State, round: int) -> State:
        tuned = train(
            task,
            self._loss(task),
            [part(slice_of(personal, k), "model.") for k in range(len(clients))],
            [client.train for client in clients],
            local=replace(task.schedule.personal, weight_decay=self.weight_decay),
            generators=[task.generator("personal", client.id, round) for client in clients],
            constants=list(received) if self.prox else None,
        )
        return stacked(tuned)

    def _loss(self, task: Task) -> Loss:
        parameters = [name for name, _ in task.model.named_parameters()]

        def loss(state, batch, received):
            inputs, labels, weights = batch
            value = cross_entropy(functional_call(task.model, state, (inputs,)), labels, weights)
            if self.prox:
                value = value + self.strength / 2 * sum((state[name] - received[name]).square().sum() for name in parameters)
            return value

        return loss
