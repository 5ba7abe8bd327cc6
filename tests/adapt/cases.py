"""A trained-looking batch-norm network of toy size and a stream for it, in float64."""

import torch

from fedlib.core import Stream
from fedlib.models import state_of
from tests import tiny


def case(n: int = 11, classes_seed: int = 0):
    """Task, state with uneven batch norm, and a stream of ``n`` images."""
    task = tiny.task("batchnorm")
    state, draws = state_of(task.model), torch.Generator().manual_seed(classes_seed)
    for name, tensor in state.items():
        if "running_var" in name:
            tensor.uniform_(0.3, 1.5, generator=draws)
        elif tensor.is_floating_point():
            tensor.add_(torch.randn(tensor.shape, generator=draws, dtype=tensor.dtype) / 2)
    return task, state, Stream(tiny.samples(n, 7).images, "test", 3)
