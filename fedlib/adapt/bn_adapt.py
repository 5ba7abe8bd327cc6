"""BN-Adapt (Schneider et al., NeurIPS 2020) as ATP compares with it: batch norm on a mixture of running and batch statistics.

Every layer normalises with r running + (1 - r) batch, r = N / (N + B), mean and unbiased variance of its input in the same pass, so that
layers upstream are already adapted. No gradient, nothing carried from batch to batch.

Paper and code: B is the nominal batch size, also for a short last batch (code). The code leaves the first batch norm of ResNet-50
on its running statistics; ``stem=False`` does so for any network.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fedlib.adapt.batchwise import batches, moments
from fedlib.core import Output, State, Stream, Task
from fedlib.models import norm_layers
from fedlib.models.net import fast
from fedlib.states import overlay


@dataclass(frozen=True)
class BNAdapt:
    """batch_size: B; prior: N, the number of images that the running statistics are worth (0: batch statistics only); stem: whether the
    first batch-norm layer takes part."""

    batch_size: int = 20
    prior: int = 16
    stem: bool = True
    version: int = 2
    needs_batch_norm: ClassVar[bool] = True

    def check_network(self, model: nn.Module) -> None:
        """Raise ValueError for batch norm without running statistics, which there are none to mix with."""
        if bare := [name for name, layer in norm_layers(model).items() if layer.running_mean is None]:
            raise ValueError(f"BN-Adapt mixes running and batch statistics, and batch norm {bare[0]!r} keeps no running ones")

    def __post_init__(self):
        if self.prior < 0:
            raise ValueError(f"BN-Adapt: prior must be 0 or more, got {self.prior}")

    @torch.no_grad()
    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        state, share = fast(overlay(state, personal)), self.prior / (self.prior + self.batch_size)
        with mixed_statistics(task.model, share, list(norm_layers(task.model))[0 if self.stem else 1 :]):
            return Output(torch.cat([functional_call(task.model, state, (x,)) for x in batches(task, stream, self.batch_size)]))


@contextmanager
def mixed_statistics(model: nn.Module, share: float, layers: list[str]) -> Iterator[None]:
    """The named batch-norm layers normalise with ``share`` of their running and 1 - ``share`` of their input's moments."""

    def mix(name: str, layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        mean, variance = moments(inputs[0], name)
        mean, variance = torch.lerp(mean, layer.running_mean, share), torch.lerp(variance, layer.running_var, share)
        return functional.batch_norm(inputs[0], mean, variance, layer.weight, layer.bias, False, 0.0, layer.eps)

    hooks = [model.get_submodule(name).register_forward_hook(partial(mix, name)) for name in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
