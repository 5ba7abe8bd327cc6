"""FedTHE's personal side: a linear head on the frozen received extractor, and mean-feature descriptors (Algorithm 1).

Each round: one epoch of cross-entropy on the head alone, over features of the augmented training images under the *received* extractor;
the head persists. The local descriptor is the mean of the features met in the last epoch (augmented, training mode); the global one is the
server's mean of the clients' descriptors.

Paper and code: in the code the global descriptor is one round old (it was computed with the previous extractor) and a vector of ones in
round 1; the paper implies the same extractor. ``sync_descriptor`` selects the latter. The head has no bias (code), and its rate does not
fall at a ``milestone``: the code's schedule stays with the optimiser that the head's own one replaced.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.func import functional_call
from torch.nn import functional

from fedlib.core import Client, Samples, State, Task
from fedlib.models import build_head
from fedlib.models.net import training
from fedlib.stages.optim import Optimizer
from fedlib.states import part
from fedlib.train.local import batch_of, clipped, layer_draws, plan
from fedlib.train.losses import cross_entropy


@dataclass(frozen=True)
class PersonalHead:
    """Personal part: ``model.head.weight`` [clients, C, d], ``descriptor`` [clients, d], ``shared.descriptor`` [d]; where the network's
    head has a bias, ``model.head.bias`` [clients, C], which is zero."""

    sync_descriptor: bool = False
    persistent: ClassVar[bool] = True
    version: int = 2

    def init(self, task: Task, clients: Sequence[Client]) -> State:
        heads = torch.stack([build_head(task.model, task.seed, client.id) for client in clients])
        ones = heads.new_ones(len(clients), heads.shape[-1])
        return whole_head(task, heads) | {"descriptor": ones, "shared.descriptor": ones[0]}

    def fit(self, task: Task, received: Sequence[State], clients: Sequence[Client], personal: State, round: int) -> State:
        heads, descriptors = [], []
        for k, client in enumerate(clients):
            head, features = fit_head(task, received[k], client.train, personal["model.head.weight"][k], client.id, round)
            heads.append(head)
            descriptors.append(sum(batch.sum(0) for batch in features) / sum(map(len, features)))
        local = torch.stack(descriptors)
        return whole_head(task, torch.stack(heads)) | {
            "descriptor": local,
            "shared.descriptor": (local if self.sync_descriptor else personal["descriptor"]).mean(0),
        }


def whole_head(task: Task, weight: torch.Tensor) -> State:
    """Personal heads [clients, C, d] without a bias, as parts of the model: with a bias of zero where the network's head has one, since the
    received model's belongs to another head."""
    bias = {} if task.model.head.bias is None else {"model.head.bias": weight.new_zeros(weight.shape[:2])}
    return {"model.head.weight": weight} | bias


def fit_head(
    task: Task, state: State, samples: Samples, head: torch.Tensor, client: int, round: int
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """One client's head [C, d] after the personal epochs on frozen features, and the features [b, d] of each batch of the last epoch."""
    local = task.schedule.personal
    generator = task.generator("personal", client, round)
    steps = plan(len(samples), local, task, generator)
    if not steps:
        raise ValueError("a personal head needs at least one epoch: set epochs >= 1 in the schedule's personal phase")
    extractor = part(state, "extractor.")
    weight = head.detach().clone().requires_grad_()
    optimizer = Optimizer(local, [weight], [True])
    met = []
    # A frozen extractor keeps its statistics.
    with training(task.model, statistics=False), layer_draws(generator):
        for step in steps:
            inputs, labels = batch_of(task, samples, step)
            with torch.no_grad():
                features = functional_call(task.model.extractor, extractor, (inputs,))
            if step.epoch == steps[-1].epoch:
                met.append(features)
            gradient = torch.autograd.grad(cross_entropy(functional.linear(features, weight), labels), [weight])
            optimizer.step([weight], clipped(list(gradient), local.clip))
    return weight.detach(), met
