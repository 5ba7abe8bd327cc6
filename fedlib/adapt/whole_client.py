"""Gradient steps of a whole network on all of a client's unlabelled images at once, as UPFL's methods take them.

The images are cut into batches of the training's size in one shuffled order; the loss of a step is the mean of a loss on each batch's
logits, over batches alike (FedTTA) or by their numbers of images (Tent). One step is w - lr (clip(gradient) + weight_decay w), with the
clip and weight decay of the schedule's local phase. The rate is that of the last finished training round, as in UPFL's code. Nothing is
carried from client to client.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import functional_call

from fedlib.adapt.batchwise import entropy as entropy_in_nats
from fedlib.core import Output, State, Stream, Task
from fedlib.states import network_of, overlay
from fedlib.tools.names import check_name
from fedlib.train.local import clipped

BITS = math.log2(math.e)
MEANS = ("batches", "images")


def entropy(logits: Tensor) -> Tensor:
    """Mean entropy in bits of the class probabilities: logits [n, C] -> scalar."""
    return entropy_in_nats(logits) * BITS


def walk(
    task: Task,
    network: State,
    stream: Stream,
    loss: Callable[[Tensor], Tensor],
    *,
    lr: float,
    steps: int | None = None,
    batch_size: int | None = None,
    over: str = "batches",
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Steps from ``network`` on the stream's images, ``steps`` of them (None: endless): yields what holds before each, and after the last.

    That is the logits [n, C] in stream order, the loss and the prediction entropy (scalars; the entropy a mean over batches). loss(logits
    of a batch) -> scalar; over: what the loss is averaged over, one of ``MEANS``; batch_size: None for that of local training.
    """
    check_name(over, MEANS, "mean")
    local = task.schedule.local
    lr = local.decayed(lr, max(task.round - 1, 1))
    order = torch.randperm(len(stream), generator=task.generator("whole client", stream.client, stream.column, stream.draw))
    device = stream.images.device
    batches, back = order.to(device).split(batch_size or local.batch_size), order.argsort().to(device)
    names = list(network)
    for step in count():
        leaves = [network[name].detach().requires_grad_() for name in names]
        totals, logits, parts = [torch.zeros_like(leaf) for leaf in leaves], [], []
        for batch in batches:
            with torch.set_grad_enabled(step != steps):
                logits.append(functional_call(task.model, dict(zip(names, leaves, strict=True)), (task.inputs(stream.images[batch]),)))
                parts.append(loss(logits[-1]) * (1 / len(batches) if over == "batches" else len(batch) / len(stream)))
            if step != steps:
                torch._foreach_add_(totals, torch.autograd.grad(parts[-1], leaves))
            logits[-1], parts[-1] = logits[-1].detach(), parts[-1].detach()
        yield torch.cat(logits)[back], sum(parts), torch.stack([entropy(batch) for batch in logits]).mean()
        if step == steps:
            return
        moves = [g + local.weight_decay * leaf.detach() for g, leaf in zip(clipped(totals, local.clip), leaves, strict=True)]
        network = {name: network[name] - lr * move for name, move in zip(names, moves, strict=True)}


@dataclass(frozen=True)
class TentAll:
    """Tent as UPFL runs it (its section 4.1.2): the networks have no normalisation layer, so that entropy moves all weights.

    One step on the prediction entropy in bits, its mean over all of a client's images, then predict them all. The paper says no more than
    "Tent"; step count, entropy in bits, clip and weight decay are those of the public code's Tent for networks of unequal size. lr: rate in
    round 1, which decays as the schedule's; steps: on the whole client.
    """

    lr: float = 0.1
    steps: int = 1
    version: int = 2
    refuses_batch_norm: ClassVar[bool] = True

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        network = network_of(overlay(state, personal))
        *_, (logits, _, _) = walk(task, network, stream, entropy, lr=self.lr, steps=self.steps, over="images")
        return Output(logits)
