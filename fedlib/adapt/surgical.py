"""Surgical fine-tuning (Lee et al., ICLR 2023) as ATP compares with it: entropy moves one block of the network.

Per batch, from the client's model: one plain gradient step on the mean softmax entropy for the weights of one block (its batch-norm weights
included, running statistics untouched), then predict the batch. Evaluation mode throughout; nothing is carried from batch to batch. Which
block is a hyperparameter, chosen on validation data (``fedlib.personalize.select``).

Paper and code: the cited method tunes on labelled target data; ATP's code minimises entropy, one step per batch. The stem of a
residual network is no candidate there.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.func import functional_call

from fedlib.adapt.batchwise import batches, entropy
from fedlib.core import Output, State, Stream, Task
from fedlib.models.net import fast
from fedlib.models.places import places
from fedlib.states import overlay
from fedlib.tools.names import check_name


@dataclass(frozen=True)
class Surgical:
    """block: ``block1`` ... or ``head`` (see ``fedlib.models.places``); lr: step size; batch_size: images per step."""

    block: str = "block1"
    lr: float = 1e-3
    batch_size: int = 20
    version: int = 1

    def check_network(self, model: nn.Module) -> None:
        """Raise ValueError for a block that ``model`` does not have."""
        check_name(self.block, dict.fromkeys(places(model).values()), "block")

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        self.check_network(task.model)
        where, parameters = places(task.model), dict(task.model.named_parameters())
        names = [name for name in parameters if where[name] == self.block]
        state, results = fast(overlay(state, personal)), []
        for inputs in batches(task, stream, self.batch_size):
            leaves = {name: state[name].detach().requires_grad_() for name in names}
            gradients = torch.autograd.grad(entropy(functional_call(task.model, state | leaves, (inputs,))), list(leaves.values()))
            with torch.no_grad():
                moved = {name: leaves[name] - self.lr * gradient for name, gradient in zip(names, gradients, strict=True)}
                results.append(functional_call(task.model, state | moved, (inputs,)))
        return Output(torch.cat(results))
