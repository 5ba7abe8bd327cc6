"""Tent (Wang et al., ICLR 2021): entropy moves the weights and biases of batch norm, on batch statistics.

Per batch: predict with the moments of the batch in every batch-norm layer, then one optimiser step on the mean softmax entropy. The answer
is what was predicted *before* the step, as in the authors' code. Carried over the stream: the weights and biases, and Adam's moments.

Only two-dimensional batch norm moves (the authors' code, ATP); a one-dimensional layer also normalises with its batch, its weights fixed.
ATP takes plain SGD with a rate from validation, FedICON Adam at 1e-3 in batches of 32.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from fedlib.adapt.batchwise import entropy, step_after
from fedlib.core import Local, Output, State, Stream, Task
from fedlib.models import norm_layers
from fedlib.states import overlay
from fedlib.tools.names import check_name


def affine(model: nn.Module) -> list[str]:
    """Names of the weights and biases of all two-dimensional batch-norm layers that have them."""
    layers = [name for name, layer in norm_layers(model).items() if isinstance(layer, nn.BatchNorm2d) and layer.weight is not None]
    return [f"{layer}.{tensor}" for layer in layers for tensor in ("weight", "bias")]


def check_affine(model: nn.Module) -> None:
    """Raise ValueError for a network in which nothing would move: without two-dimensional batch norm that has weights."""
    if not affine(model):
        raise ValueError(
            "only two-dimensional batch norm moves at test time, and this network has none with weights: take shallow_cnn or fedicon_cnn"
        )


@dataclass(frozen=True)
class Tent:
    """lr: step size; batch_size: images per step; optimizer: ``sgd`` (no momentum) or ``adam``, both without weight decay."""

    lr: float = 1e-3
    batch_size: int = 20
    optimizer: str = "sgd"
    version: int = 1
    needs_batch_norm: ClassVar[bool] = True
    check_network = staticmethod(check_affine)

    def __post_init__(self):
        check_name(self.optimizer, ("sgd", "adam"), "optimizer")

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        names = affine(task.model)
        local = Local(self.optimizer, self.lr, weight_decay=0.0, batch_size=self.batch_size)
        return Output(step_after(task, overlay(state, personal), stream, names, lambda features, logits: entropy(logits), local))
