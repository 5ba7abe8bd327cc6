"""Per-sample test-time tuning: from the same parameters, a few steps on augmented views of one image, predict it, restore.

Samples do not interact, unless the optimiser's moments are carried on from one to the next, so ``task.chunk_size`` of them are tuned as one
stack; 1 tunes them one by one without vmap.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedlib.augment.augmix import views as augmix_views
from fedlib.core import Local, State, Stream, Task
from fedlib.models.net import moving_names
from fedlib.stages.optim import Optimizer
from fedlib.stages.stacks import each_row, in_stacks

# Samples whose views are made in one call.
AHEAD = 4


def tune_each(
    task: Task,
    state: State,
    stream: Stream,
    loss: Callable[[State, Tensor, State], Tensor],
    predict: Callable[[State, Tensor, State], Tensor],
    *,
    local: Local,
    steps: int,
    views: int,
    head_steps: int = 0,
    carry: bool = False,
    constants: State | None = None,
    augment: Callable[[Tensor, int, Sequence[torch.Generator]], Tensor] | None = None,
) -> Tensor:
    """Class scores [n, C] of a stream.

    loss(state, views [V, C, H, W], constants of the sample) -> scalar; predict(state, image [C, H, W], constants) -> scores [C];
    head_steps: steps on ``head.<name>`` alone that come first; carry: whether momentum and Adam's moments, which start at zero with the
    stream, go on from sample to sample (plain SGD has none to keep); constants: tensors [n, ...], one row per sample; augment(images
    uint8 [n, C, H, W], n_views, one generator per image) -> network inputs [n, n_views, C, H, W], None for AugMix; it is asked for the
    views of all steps at once. Every step has fresh ones, drawn from a generator of the sample.
    """
    augment = augment or _augmix(task)
    names = moving_names(task.model, state)
    fixed = {name: tensor for name, tensor in state.items() if name not in names}
    constants = constants or {}
    phases = ((head_steps, [name for name in names if name.startswith("head.")]), (steps, names))
    carried = carry and (local.momentum > 0 or local.optimizer == "adam")
    ahead = (0, torch.empty(0))

    def optimizers(stack: State) -> list[Optimizer]:
        return [Optimizer(local, [stack[name] for name in moving], [task.model.feels_decay(n) for n in moving]) for _, moving in phases]

    kept = optimizers({name: state[name].detach()[None] for name in names}) if carried else None

    def views_of(start: int, stop: int) -> Tensor:
        """The views of all steps, and of the next few samples where stacks are small: a call costs more than its views."""
        nonlocal ahead
        if not ahead[0] <= start < stop <= ahead[0] + len(ahead[1]):
            rows = range(start, min(max(stop, start + AHEAD), len(stream)))
            generators = [task.generator("views", stream.client, stream.column, stream.draw, i) for i in rows]
            ahead = start, augment(stream.images[start : rows.stop], (head_steps + steps) * views, generators).to(task.dtype)
        return ahead[1][start - ahead[0] : stop - ahead[0]]

    def run(rows: Sequence[int]) -> Tensor:
        start, stop = rows[0], rows[-1] + 1
        images, fresh = stream.images[start:stop], iter(views_of(start, stop).split(views, dim=1))
        batch_constants = {name: tensor[start:stop] for name, tensor in constants.items()}
        stack = {name: _copies(state[name], len(images)) for name in names}
        for (count, moving), optimizer in zip(phases, kept or optimizers(stack), strict=True):
            for _ in range(count):
                leaves = {name: stack[name].detach().requires_grad_() for name in moving}
                values = _each(loss, stack | leaves, fixed, next(fresh), batch_constants)
                gradients = torch.autograd.grad(values.sum(), list(leaves.values()), allow_unused=True, materialize_grads=True)
                optimizer.step([stack[name] for name in moving], list(gradients))
        with torch.no_grad():
            return _each(predict, stack, fixed, task.inputs(images), batch_constants)

    scores = in_stacks(range(len(stream)), 1 if carried else task.chunk_size, run)
    return torch.stack(scores) if scores else torch.zeros(0, task.n_classes, dtype=task.dtype, device=stream.images.device)


def _augmix(task: Task) -> Callable:
    how = task.transform
    return lambda images, n, draws: augmix_views(images, n, draws, mean=how.mean, std=how.std, pad=how.pad, flip=how.flip)


def _copies(tensor: Tensor, n: int) -> Tensor:
    """``n`` copies along a new first dimension; a single convolution weight channels-last on a CPU, where that is faster."""
    if n == 1 and tensor.dim() == 4 and tensor.device.type == "cpu":
        return tensor.detach().clone(memory_format=torch.channels_last)[None]
    return torch.stack([tensor.detach()] * n)


def _each(function: Callable, stack: State, buffers: State, inputs: Tensor, constants: State) -> Tensor:
    """``function`` for every row of the stack, the buffers shared."""
    return each_row(lambda state, x, c: function(state | buffers, x, c), stack, inputs, constants)
