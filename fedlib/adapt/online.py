"""Tent's loop: predict a batch on batch statistics, then one step on its own outputs; the moved tensors are carried over the stream."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.func import functional_call

from fedlib.adapt.batchwise import batch_statistics, batches, fast
from fedlib.core import Local, State, Stream, Task, part
from fedlib.optim import Optimizer


def step_after(
    task: Task,
    state: State,
    stream: Stream,
    names: Sequence[str],
    loss: Callable[[Tensor, Tensor], Tensor | None],
    local: Local,
    penalty: Callable[[State], Tensor | float] = lambda moved: 0.0,
) -> Tensor:
    """Logits [n, C] of a stream, each batch predicted *before* its step.

    names: the tensors of ``state`` that move; loss(features [b, d], logits [b, C]) -> scalar, or None for a batch without a step; local:
    optimiser, rate and batch size; penalty(the moved tensors by name) -> scalar added to the loss. ``state`` itself stays as it is.
    """
    state = fast(state) | {name: state[name].detach().clone() for name in names}
    leaves = [state[name].requires_grad_() for name in names]
    optimizer = Optimizer(local, leaves, [False] * len(leaves))
    results = []
    with batch_statistics(task.model):
        for inputs in batches(task, stream, local.batch_size):
            features = functional_call(task.model.extractor, part(state, "extractor."), (inputs,))
            logits = functional_call(task.model.head, part(state, "head."), (features,))
            results.append(logits.detach())
            value = loss(features, logits)
            if value is not None:
                value = value + penalty(dict(zip(names, leaves, strict=True)))
                optimizer.step(leaves, list(torch.autograd.grad(value, leaves)))
    return torch.cat(results)
