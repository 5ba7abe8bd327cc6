"""FedICON's training (NeurIPS 2023, section 4.1): an encoder that clients train contrastively, then a linear classifier on it.

All rounds but the last ``classifier_rounds``: every client minimises the supervised contrastive loss over the encoder (at the rate of
``contrast``), the server averages encoders by training-set size, batch-norm statistics included. Last rounds: the encoder is frozen,
clients train the classifier by cross-entropy on features of their plain images, the server averages classifiers. State: the model.

Paper and code: "multiple" classifier rounds are five in the authors' related code (default). Batch norm is in evaluation mode while the
encoder is frozen, and the classifier sees no augmentation; both are choices of this kit. ``supervised=False`` is FedICON-us, whose encoder
sees no label; ``share=False`` trains every client alone (the ablation without sharing).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.func import functional_call

from fedlib.core import Client, Local, Samples, Schedule, Server, State, Task
from fedlib.stages.optim import Optimizer
from fedlib.states import part
from fedlib.train import stay
from fedlib.train.contrastive import Contrast
from fedlib.train.fedavg import sizes
from fedlib.train.local import clipped, plan
from fedlib.train.losses import cross_entropy


@dataclass(frozen=True)
class FedICON:
    """contrast: of the encoder; classifier_rounds: at the end, at the schedule's rate."""

    contrast: Contrast = Contrast()
    supervised: bool = True
    classifier_rounds: int = 5
    share: bool = True
    version: int = 2
    whole_run: ClassVar[bool] = True

    def check_schedule(self, schedule: Schedule) -> None:
        """Raise ValueError where no round is left for the encoder."""
        if not 1 <= self.classifier_rounds < schedule.rounds:
            raise ValueError(
                f"FedICON needs more rounds than its {self.classifier_rounds} classifier rounds, got {schedule.rounds}: "
                "take more rounds or fewer classifier_rounds"
            )

    def init(self, task: Task, clients: Sequence[Client]) -> Server:
        return stay.start(task, clients, lambda name: not self.share)

    def update(self, task: Task, server: Server, cohort: Sequence[Client], round: int) -> list[State]:
        local, states = task.schedule.local, stay.models(server, cohort)
        generators = [task.generator("local", client.id, round) for client in cohort]
        samples = [client.train for client in cohort]
        if round <= task.schedule.rounds - self.classifier_rounds:
            local = local.at(round, self.contrast.lr)
            return self.contrast.train(task, states, samples, local=local, generators=generators, supervised=self.supervised)
        return [fit_classifier(task, *each, local.at(round), g) for *each, g in zip(states, samples, generators, strict=True)]

    def aggregate(self, task: Task, server: Server, messages: list[State], cohort: Sequence[Client], round: int) -> Server:
        return stay.average(server, messages, cohort, sizes(cohort))


def fit_classifier(task: Task, state: State, samples: Samples, local: Local, generator: torch.Generator) -> State:
    """``state`` with its head trained for a phase ``local`` on the features of ``samples`` under the frozen encoder, which is run once."""
    features, _ = task.predict(state, samples.images)
    head = {name: tensor.detach().clone().requires_grad_() for name, tensor in part(state, "head.").items()}
    leaves = list(head.values())
    optimizer = Optimizer(local, leaves, [True] * len(leaves))
    for step in plan(len(samples), local, task, generator, augment=False):
        index = step.index.to(features.device, non_blocking=True)
        loss = cross_entropy(functional_call(task.model.head, head, (features[index],)), samples.labels[index])
        optimizer.step(leaves, clipped(list(torch.autograd.grad(loss, leaves)), local.clip), epoch=step.epoch)
    return state | {f"head.{name}": tensor.detach() for name, tensor in head.items()}
