"""What methods that adapt batch by batch share: the batches of a stream, batch norm on batch statistics, entropy, and Tent's loop."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fedlib.core import Local, State, Stream, Task
from fedlib.models.net import fast, features_and_logits, norm_layers
from fedlib.stages.optim import Optimizer


def batches(task: Task, stream: Stream, size: int) -> Iterator[Tensor]:
    """Network inputs of consecutive batches of ``size`` images. A last batch of one image joins the one before, because the variance of
    a single value is undefined. ValueError unless ``size`` is at least 1."""
    if size < 1:
        raise ValueError(f"batches must hold at least 1 image, got batch_size={size}")
    parts = list(stream.images.split(size))
    if size > 1 and len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return (task.inputs(part) for part in parts)


def entropies(log_probabilities: Tensor) -> Tensor:
    """Entropy (nats) of every row: log-probabilities [..., C] -> [...]."""
    return -(log_probabilities.exp() * log_probabilities).sum(-1)


def entropy(logits: Tensor) -> Tensor:
    """Mean entropy (nats) of the class probabilities: logits [n, C] -> scalar."""
    return entropies(logits.log_softmax(-1)).mean()


def check_variance(inputs: Tensor, layer: str) -> None:
    """Raise ValueError where a batch-norm layer's ``inputs`` [n, channels, ...] have one value per channel, and so no variance."""
    if inputs.numel() < 2 * inputs.shape[1]:
        raise ValueError(
            f"batch variance undefined: layer {layer!r} gets one value per channel; use batches and streams of at least 2 images"
        )


def moments(inputs: Tensor, layer: str) -> tuple[Tensor, Tensor]:
    """Mean and unbiased variance [channels] of a batch-norm layer's ``inputs`` [n, channels, ...]; ValueError as ``check_variance``."""
    check_variance(inputs, layer)
    values = inputs.transpose(0, 1).flatten(1)
    return values.mean(1), values.var(1)


@contextmanager
def batch_statistics(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, except that every batch-norm layer normalises with the (biased) moments of its batch and leaves its running
    statistics alone. ValueError for a network without batch norm."""
    layers = norm_layers(model)
    if not layers:
        raise ValueError(f"batch statistics need batch norm, and {type(model).__name__} has none: choose a network with batch norm")
    checks = [layer.register_forward_pre_hook(lambda _, given, name=name: check_variance(given[0], name)) for name, layer in layers.items()]
    for layer in layers.values():
        layer.training, layer.track_running_stats = True, False
    try:
        yield
    finally:
        for layer, check in zip(layers.values(), checks, strict=True):
            layer.training, layer.track_running_stats = False, True
            check.remove()


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
            features, logits = features_and_logits(task.model, state, inputs)
            results.append(logits.detach())
            value = loss(features, logits)
            if value is not None:
                value = value + penalty(dict(zip(names, leaves, strict=True)))
                optimizer.step(leaves, list(torch.autograd.grad(value, leaves)))
    return torch.cat(results)
