"""TTT's personal side (Sun et al., ICML 2020): the received model tuned together with a head that predicts how an image was turned.

FedTHE (C.2). Each round, from the received model: one epoch on cross-entropy of the classes plus cross-entropy of the rotation, the
latter on the same batch with every image turned counter-clockwise by a random multiple of 90 degrees, all parameters and the rotation head.
State: the rotation head, with bias and without weight decay, which also spares what the network says. The test-time side is
``fedlib.adapt.ttt``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.func import functional_call
from torch.nn import functional

from fedlib.augment.views import rotations
from fedlib.core import Client, Samples, State, Task
from fedlib.models import build_linear
from fedlib.models.net import training
from fedlib.stages.optim import Optimizer
from fedlib.stages.workers import shared
from fedlib.states import network_of, part, stacked
from fedlib.train.local import batch_of, clipped, clone, layer_draws, plan, seen
from fedlib.train.losses import cross_entropy

TURNS = 4
HEAD = ("rotation.weight", "rotation.bias")


@dataclass(frozen=True)
class JointRotation:
    """Personal part: the tuned model ``model.<name>``, ``rotation.weight`` [clients, 4, d] and ``rotation.bias`` [clients, 4]."""

    persistent: ClassVar[bool] = True
    version: int = 2
    carries: ClassVar[tuple[str, ...]] = ("rotation.",)
    needs_square: ClassVar[bool] = True

    def init(self, task: Task, clients: Sequence[Client]) -> State:
        heads = [build_linear(task.model, TURNS, task.seed, "rotation head", client.id) for client in clients]
        return stacked(heads, prefix="rotation.")

    def fit(self, task: Task, received: Sequence[State], clients: Sequence[Client], personal: State, round: int) -> State:
        starts = [received[k] | {name: personal[name][k] for name in HEAD} for k in range(len(clients))]
        generators = [task.generator("personal", client.id, round) for client in clients]
        calls = [(task, start, client.train, g) for start, client, g in zip(starts, clients, generators, strict=True)]
        tuned = shared(_fit_one, calls, task.processes, seen(clients, task.schedule.personal))
        return {name if name in HEAD else f"model.{name}": torch.stack([state[name] for state in tuned]) for name in tuned[0]}


def _fit_one(task: Task, start: State, samples: Samples, generator: torch.Generator) -> State:
    local = task.schedule.personal
    state = {name: clone(task, tensor) for name, tensor in start.items()}
    names = [*(name for name, _ in task.model.named_parameters()), *HEAD]
    leaves = [state[name].requires_grad_() for name in names]
    optimizer = Optimizer(local, leaves, [name not in HEAD and task.model.feels_decay(name) for name in names])
    steps = plan(len(samples), local, task, generator)
    with training(task.model), layer_draws(generator):
        for step in steps:
            inputs, labels = batch_of(task, samples, step)
            turns = torch.randint(TURNS, (len(labels),), generator=generator).to(labels.device, non_blocking=True)
            loss = cross_entropy(functional_call(task.model, network_of(state), (inputs,)), labels)
            loss = loss + cross_entropy(rotation_logits(task, state, rotations(inputs, turns)), turns)
            optimizer.step(leaves, clipped(list(torch.autograd.grad(loss, leaves)), local.clip), epoch=step.epoch)
    return {name: tensor.detach() for name, tensor in state.items()}


def rotation_logits(task: Task, state: State, inputs: torch.Tensor) -> torch.Tensor:
    """Scores [n, 4] of the four turns for network inputs [n, C, S, S]; ``state`` holds the extractor and the rotation head."""
    features = functional_call(task.model.extractor, part(state, "extractor."), (inputs,))
    return functional.linear(features, state["rotation.weight"], state["rotation.bias"])
