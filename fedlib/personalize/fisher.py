"""EATA's importance of every batch-norm parameter (Niu et al., ICML 2022, section 3.3): the diagonal of the Fisher information.

Mean over batches of the squared gradient of the cross-entropy against the network's own answers, on clean images, with the statistics of
the batch: here the client's training images, whose labels are not read. The square follows the mean over a batch, as in EATA's code.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.func import functional_call

from fedlib.adapt.batchwise import batch_statistics, batches
from fedlib.adapt.tent import affine, check_affine
from fedlib.core import Client, Personalizer, State, Stream, Task
from fedlib.personalize.fine_tune import FineTune
from fedlib.states import check_once, overlay, slice_of, stacked
from fedlib.train.losses import cross_entropy


@dataclass(frozen=True)
class WithFisher:
    """The personal part of ``base`` and ``fisher.<name>`` [clients, ...] for the weights and biases of all batch-norm layers.

    images: how many are read at most; batch_size: images whose gradients are averaged before the square (a last one joins those before).
    """

    base: Personalizer = FineTune()
    images: int = 2000
    batch_size: int = 64
    persistent: ClassVar[bool] = False
    version: int = 2
    needs_batch_norm: ClassVar[bool] = True
    check_network = staticmethod(check_affine)

    def __post_init__(self):
        check_once(self.base)

    def init(self, task: Task, clients: Sequence[Client]) -> State:
        return self.base.init(task, clients)

    def fit(self, task: Task, received: Sequence[State], clients: Sequence[Client], personal: State, round: int) -> State:
        own = self.base.fit(task, received, clients, personal, round)
        tuned = [overlay(state, slice_of(own, k)) for k, state in enumerate(received)]
        rows = [self._fisher(task, state, client, round) for state, client in zip(tuned, clients, strict=True)]
        return own | stacked(rows, prefix="fisher.")

    def _fisher(self, task: Task, state: State, client: Client, round: int) -> State:
        order = torch.randperm(len(client.train), generator=task.generator("fisher", client.id, round))[: self.images]
        images = client.train.images[order.to(client.train.images.device)]
        parts = list(batches(task, Stream(images, "", client.id), self.batch_size))
        state = {name: tensor.detach().clone() for name, tensor in state.items()}
        names = affine(task.model)
        leaves = [state[name].requires_grad_() for name in names]
        total = [torch.zeros_like(leaf, requires_grad=False) for leaf in leaves]
        with batch_statistics(task.model):
            for inputs in parts:
                logits = functional_call(task.model, state, (inputs,))
                gradients = torch.autograd.grad(cross_entropy(logits, logits.argmax(1)), leaves)
                total = [sum_ + gradient.square() / len(parts) for sum_, gradient in zip(total, gradients, strict=True)]
        return dict(zip(names, total, strict=True))
