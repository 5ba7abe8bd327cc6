"""ATP (Bao et al., NeurIPS 2023): test-time adaptation with one learned rate per module, section 4.

A module is one tensor: each weight, each bias, and four per batch-norm layer (running mean, running variance, weight, bias). For a batch
of images every module l has a direction h_l, minus the entropy gradient or, for running statistics, batch minus running value, and
moves to w_l + rate_l h_l. Everything is evaluated in evaluation mode, that is with running statistics. ATP-batch predicts each batch with
its own adapted modules and carries nothing over; ATP-online predicts with their average over the batches so far.

The functions are pure: the module passed in keeps its weights, mode and buffers. ``state`` replaces the module's own tensors.
``directions`` also runs under ``torch.func.vmap`` over batches of images.

Paper and code: the paper averages directions in ATP-online, the code adapted and clamped tensors; the two differ only where a variance
is clamped. ``online_average`` follows the code.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.nn.modules.batchnorm import _BatchNorm

from fedlib.adapt.batchwise import batches, entropy, moments
from fedlib.core import Output, State, Stream, Task
from fedlib.models import norm_layers, state_of
from fedlib.models.net import fast
from fedlib.states import overlay, require

STATISTICS = ("running_mean", "running_var")


def batch_norms(model: nn.Module) -> dict[str, _BatchNorm]:
    """The batch-norm layers by name. ValueError where one lacks running statistics or weight and bias: ATP adapts all four."""
    layers = norm_layers(model)
    for name, layer in layers.items():
        if layer.running_mean is None or layer.weight is None:
            raise ValueError(f"ATP needs batch norm with running statistics and affine weights; layer {name!r} is {layer}")
    return layers


def modules(model: nn.Module) -> list[str]:
    """Names of the tensors that have a rate, depth first in order of registration (ResNet-18: 102, ResNet-50: 267)."""
    norms = batch_norms(model)
    names = []
    for name, layer in model.named_modules():
        own = [*(STATISTICS if name in norms else ()), *(n for n, _ in layer.named_parameters(recurse=False))]
        names += [f"{name}.{tensor}".removeprefix(".") for tensor in own]
    return names


def directions(model: nn.Module, images: Tensor, state: State | None = None) -> State:
    """Direction h_l of every module for a batch of normalised images [B, C, H, W], B at least 2 where a layer sees 1 x 1 maps.

    Weights and biases: minus the gradient of the mean softmax entropy. Running mean and variance: mean and unbiased variance of the
    layer's input over batch and space, minus the running value; the inputs come from the same pass, so upstream layers normalise with
    running statistics. ValueError where a layer gets one value per channel, since its variance is then undefined.
    """
    state = state_of(model) if state is None else state
    names = modules(model)
    weights = {name: state[name] for name in names if not is_statistic(name)}

    def loss(weights: State) -> tuple[Tensor, State]:
        with evaluating(model), recorded(model) as statistics:
            logits = functional_call(model, state | weights, (images,))
        return entropy(logits), statistics

    gradients, statistics = grad(loss, has_aux=True)(weights)
    return {name: statistics[name] - state[name] if is_statistic(name) else -gradients[name] for name in names}


def adapted(model: nn.Module, rates: Tensor, directions: State, state: State | None = None) -> State:
    """The modules moved by ``rates`` [modules] along ``directions``, running variances clamped at 0 from below.

    Evaluate with ``functional_call(model, state | adapted(...), images)``. ValueError where the number of rates is not that of modules.
    """
    state, names = state_of(model) if state is None else state, modules(model)
    if rates.shape != (len(names),):
        raise ValueError(f"rates must have shape [{len(names)}], one per module of the network, got {list(rates.shape)}")
    moved = {name: state[name] + rate * directions[name] for name, rate in zip(names, rates, strict=True)}
    return {name: tensor.clamp(min=0) if name.endswith("running_var") else tensor for name, tensor in moved.items()}


def online_average(previous: State, current: State, k: int) -> State:
    """ATP-online's modules for batch ``k`` = 1, 2, ...: (k-1)/k of the average so far plus 1/k of this batch's adapted modules.

    ``previous`` is not read at k = 1. The average starts anew with every client.
    """
    if k < 1:
        raise ValueError(f"batches are counted from 1, got k = {k}")
    if k == 1:
        return current
    return {name: (k - 1) / k * previous[name] + tensor / k for name, tensor in current.items()}


def is_statistic(name: str) -> bool:
    """Whether the module is a running mean or variance."""
    return name.endswith(STATISTICS)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, and back to every layer's former mode."""
    training = [layer for layer in model.modules() if layer.training]
    model.eval()
    try:
        yield
    finally:
        for layer in training:
            layer.training = True


@contextmanager
def recorded(model: nn.Module) -> Iterator[State]:
    """Puts the input moments of every batch-norm layer that runs into the dictionary, under the names of its running statistics."""
    statistics: State = {}

    def record(name: str, layer: nn.Module, inputs: tuple[Tensor]) -> None:
        statistics[f"{name}.running_mean"], statistics[f"{name}.running_var"] = moments(inputs[0], name)

    hooks = [layer.register_forward_pre_hook(partial(record, name)) for name, layer in batch_norms(model).items()]
    try:
        yield statistics
    finally:
        for hook in hooks:
            hook.remove()


@dataclass(frozen=True)
class ATP:
    """online: ATP-online, otherwise ATP-batch; batch_size: images per step; rates: one per module, None for those that the source clients
    learned (``fedlib.personalize.rates``)."""

    online: bool = False
    batch_size: int = 20
    rates: tuple[float, ...] | None = None
    version: int = 2
    check_network = staticmethod(batch_norms)

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        if self.rates is None:
            require(personal, "ATP", "Rates", "shared.rates")
        state, results, average = fast(overlay(state, personal)), [], {}
        rates = personal["shared.rates"] if self.rates is None else torch.tensor(self.rates, dtype=task.dtype)
        rates = rates.to(stream.images.device, task.dtype)
        for k, inputs in enumerate(batches(task, stream, self.batch_size), start=1):
            moved = adapted(task.model, rates, directions(task.model, inputs, state), state)
            average = online_average(average, moved, k) if self.online else moved
            with torch.no_grad():
                results.append(functional_call(task.model, state | average, (inputs,)))
        return Output(torch.cat(results))


@dataclass(frozen=True)
class ATPGrid:
    """ATP-batch under many vectors of rates at once, for figures: scores [vectors, n, C]. Directions depend on the model and the batch
    alone, so that each vector costs one forward pass.

    rates: the vectors [vectors][modules], None for those that the source clients had before each round of learning and at its end;
    batch_size: images per step.
    """

    rates: tuple[tuple[float, ...], ...] | None = None
    batch_size: int = 20
    version: int = 2
    check_network = staticmethod(batch_norms)

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        if self.rates is None:
            require(personal, "ATP", "Rates", "shared.history")
        state, results = fast(overlay(state, personal)), []
        vectors = personal["shared.history"] if self.rates is None else torch.tensor(self.rates, dtype=task.dtype)
        for inputs in batches(task, stream, self.batch_size):
            steps = directions(task.model, inputs, state)
            with torch.no_grad():
                moved = (adapted(task.model, rates, steps, state) for rates in vectors.to(stream.images.device, task.dtype))
                results.append(torch.stack([functional_call(task.model, state | m, (inputs,)) for m in moved]))
        return Output(torch.cat(results, dim=1))
