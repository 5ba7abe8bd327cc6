"""Local training of many clients through one function.

``chunk_size`` 1 trains client after client without vmap (the CPU default for convolutions); larger chunks stack the clients, map the
loss over them with ``torch.func.vmap`` and take one ordinary backward of the summed losses, which gives every client its own gradient.
Clients of a chunk are sorted by their number of steps, longest first, and at each step only the prefix that still trains is touched.
All draws depend on (seed, client, round) alone, so chunking and order change nothing but floating-point rounding; only the dropout masks
of a stack are drawn jointly, from the generator of its first client. Clients trained one by one may share several processes, with the same
bits.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedlib.core import Client, Local, Samples, State, Task
from fedlib.models.net import moving_names, norm_layers, training
from fedlib.stages.optim import Optimizer
from fedlib.stages.stacks import in_stacks
from fedlib.stages.workers import shared
from fedlib.tools.seeding import default_draws
from fedlib.train.forms import Replayed, formed

Batch = tuple[Tensor, Tensor, Tensor]
Loss = Callable[[State, Batch, State], Tensor]


@dataclass(frozen=True)
class Step:
    """One minibatch: sample indices [b], the augmentation drawn for it, and the epoch of the phase that it belongs to."""

    index: Tensor
    draws: Tensor
    epoch: int = 0


def plan(n: int, local: Local, task: Task, generator: torch.Generator, augment: bool = True) -> list[Step]:
    """Minibatches of one phase over ``n`` samples: fresh permutation per epoch, the last batch short or left out (``Local.smallest``)."""
    if n == 0:
        raise ValueError("a client without training samples cannot train: use fewer clients or a larger data set")
    steps: list[Step] = []
    per_epoch = _per_epoch(n, local)
    epochs = local.epochs if local.steps is None else -(-local.steps // per_epoch)
    for epoch in range(epochs):
        for index in torch.randperm(n, generator=generator).split(local.batch_size)[:per_epoch]:
            draws = task.transform.draws(len(index), generator) if augment else torch.empty(0, 3, dtype=torch.int64)
            steps.append(Step(index, draws, epoch))
    return steps if local.steps is None else steps[: local.steps]


@contextlib.contextmanager
def layer_draws(generator: torch.Generator) -> Iterator[None]:
    """Let layers that draw from torch's default generator (dropout) follow ``generator``; the default's own state stays as it was."""
    with default_draws(int(torch.randint(2**62, (), generator=generator))):
        yield


def round_plan(client: Client, task: Task, round: int) -> list[Step]:
    """Minibatches of ``client``'s local training in ``round`` = 1, 2, ...: drawn for the round, or, where the schedule's epochs are
    ``continued``, the next ones of a data loader that started in round 1 (which are found without replaying it)."""
    local, n = task.schedule.local, len(client.train)
    if not local.continued:
        return plan(n, local, task, task.generator("local", client.id, round))
    epoch = replace(local, epochs=1, steps=None)
    per_epoch = _per_epoch(n, local)
    count = local.epochs * per_epoch if local.steps is None else local.steps
    first = (round - 1) * count
    epochs = range(first // per_epoch, -(-(first + count) // per_epoch))
    steps = [step for e in epochs for step in plan(n, epoch, task, task.generator("epoch", client.id, e))]
    return steps[first % per_epoch :][:count]


def _per_epoch(n: int, local: Local) -> int:
    """Minibatches of one pass over ``n`` >= 1 samples."""
    full, rest = divmod(n, local.batch_size)
    return full + (rest >= local.smallest or full == 0)


def seen(clients: Sequence[Client], local: Local) -> int:
    """Images in the minibatches of a phase of all ``clients``, at most."""
    return sum(local.epochs * len(c.train) if local.steps is None else local.steps * local.batch_size for c in clients)


def batch_of(task: Task, samples: Samples, step: Step) -> tuple[Tensor, Tensor]:
    """Network inputs and labels of one planned minibatch."""
    images, labels = _augmented(task, samples, step)
    return task.inputs(images), labels


def _augmented(task: Task, samples: Samples, step: Step) -> tuple[Tensor, Tensor]:
    # Not blocking: a copy that waits for the device would stop the host at every step.
    index = step.index.to(samples.images.device, non_blocking=True)
    return task.transform.augmented(samples.images[index], step.draws), samples.labels[index]


def train(
    task: Task,
    loss: Loss,
    states: State | Sequence[State],
    samples: Sequence[Samples],
    *,
    local: Local,
    generators: Sequence[torch.Generator],
    plans: Sequence[list[Step]] | None = None,
    trainable: Callable[[str], bool] = lambda name: True,
    weight_decayed: Callable[[str], bool] = lambda name: True,
    constants: Sequence[State] | None = None,
) -> list[State]:
    """Train one state per client and return the results in the order of ``samples``; the given states are left untouched.

    loss(state, (inputs, labels, weights), constants) -> scalar of one client, weights [b] summing to one; states: the common start or
    one per client; trainable, weight_decayed: which names move, and which of them feel weight decay (of those on which the network lets
    it act; buffers never do either); constants: per-client tensors that the loss reads (class counts, anchors); plans: minibatches in
    place of those that the generators would draw. Batch-norm buffers in the states follow the batches.
    """
    if plans is None:
        plans = [plan(len(s), local, task, g) for s, g in zip(samples, generators, strict=True)]
    states = [states] * len(samples) if isinstance(states, dict) else list(states)
    constants = [{}] * len(samples) if constants is None else list(constants)
    loss = formed(task, loss)
    order = sorted(range(len(samples)), key=lambda k: -len(plans[k]))
    # A stack has one rate, and clients with unequal parts reach a milestone at different steps.
    single = local.milestone is not None or bool(norm_layers(task.model))
    chunk_size = 1 if single else task.chunk_size

    @functools.cache
    def layer_seed(k: int) -> int:
        """Of the draws of layers, such as dropout, in a chunk whose first client is ``k``: the same when it is tried again with fewer."""
        return int(torch.randint(2**62, (), generator=generators[k]))

    def call(chunk: Sequence[int]) -> tuple:
        own = ([x[k] for k in chunk] for x in (states, samples, plans, constants))
        return (task, loss, local, trainable, weight_decayed, layer_seed(chunk[0]), *own)

    images = sum(len(step.index) for steps in plans for step in steps)
    if chunk_size == 1:
        trained = dict(zip(order, shared(_train_chunk, [call([k]) for k in order], task.processes, images), strict=True))
        return [state for k in range(len(order)) for state in trained[k]]
    return in_stacks(order, chunk_size, lambda chunk: _train_chunk(*call(chunk)))


def train_cohort(
    task: Task, loss: Loss, states: State | Sequence[State], cohort: Sequence[Client], round: int, *, lr: float | None = None, **options
) -> list[State]:
    """The local training of one federated round: ``train`` on the cohort's training parts with the schedule's local phase.

    lr: rate of the method in round 1 (None: the schedule's); it decays as the schedule says. options: further arguments of ``train``.
    """
    local = task.schedule.local.at(round, lr)
    plans = [round_plan(client, task, round) for client in cohort] if local.continued else None
    generators = [task.generator("local", client.id, round) for client in cohort]
    return train(task, loss, states, [client.train for client in cohort], local=local, generators=generators, plans=plans, **options)


def clone(task: Task, tensor: Tensor) -> Tensor:
    """A copy to train on; convolution weights channels-last on a CPU, where that is 1.1-1.6 times faster, and where it was asked for."""
    if tensor.dim() == 4 and (tensor.device.type == "cpu" or "channels_last" in task.options):
        return tensor.detach().clone(memory_format=torch.channels_last)
    return tensor.detach().clone()


def clipped(gradients: list[Tensor], limit: float | None, stacked: bool = False) -> list[Tensor]:
    """Gradients scaled down to the joint norm ``limit``, per client where they are stacked along the first dimension."""
    if limit is None:
        return gradients
    norm = sum(g.reshape(len(g) if stacked else 1, -1).square().sum(-1) for g in gradients).sqrt()
    factor = (limit / (norm + 1e-6)).clamp(max=1)
    return [g * (factor.view(-1, *[1] * (g.dim() - 1)) if stacked else factor[0]) for g in gradients]


def _train_chunk(task, loss, local, trainable, weight_decayed, draws: int, states, *rest) -> list[State]:
    """One chunk of clients. draws: seed of what layers draw from torch's default generator, whose own state stays as it was."""
    with training(task.model), default_draws(draws):
        return (_train_stack if len(states) > 1 else _train_one)(task, loss, local, trainable, weight_decayed, states, *rest)


def _train_one(task, loss, local, trainable, weight_decayed, states, samples, plans, constants) -> list[State]:
    state = {name: clone(task, tensor) for name, tensor in states[0].items()}
    names = moving_names(task.model, state, trainable)
    leaves = [state[name].requires_grad_() for name in names]
    optimizer = Optimizer(local, leaves, [weight_decayed(name) and task.model.feels_decay(name) for name in names])

    def advance(inputs: Tensor, labels: Tensor, epoch: int = 0) -> None:
        weights = torch.full((len(labels),), 1 / len(labels), dtype=inputs.dtype, device=inputs.device)
        value = loss(state, (inputs, labels, weights), constants[0])
        gradients = clipped(list(torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)), local.clip)
        optimizer.step(leaves, gradients, epoch=epoch)

    # A graph keeps the rate that it was recorded with, and Adam counts its steps on the host.
    constant = local.optimizer == "sgd" and local.milestone is None
    replayed = Replayed(advance) if "graph" in task.options and constant else None
    for step in plans[0]:
        batch = batch_of(task, samples[0], step)
        if replayed is None:
            advance(*batch, step.epoch)
        else:
            replayed(*batch)
    return [{name: tensor.detach() for name, tensor in state.items()}]


def _train_stack(task, loss, local, trainable, weight_decayed, states, samples, plans, constants) -> list[State]:
    stack = {name: torch.stack([s[name] for s in states]).detach() for name in states[0]}
    fixed = {name: torch.stack([c[name] for c in constants]) for name in constants[0]}
    names = moving_names(task.model, stack, trainable)
    optimizer = Optimizer(local, [stack[name] for name in names], [weight_decayed(name) and task.model.feels_decay(name) for name in names])
    mapped = torch.func.vmap(loss, randomness="different")
    for s in range(len(plans[0])):
        rows = sum(len(p) > s for p in plans)
        batch = stacked_batch(task, samples[:rows], [p[s] for p in plans[:rows]])
        leaves = {name: stack[name][:rows].detach().requires_grad_() for name in names}
        values = mapped({name: t[:rows] for name, t in stack.items()} | leaves, batch, {n: t[:rows] for n, t in fixed.items()})
        gradients = torch.autograd.grad(values.sum(), list(leaves.values()), allow_unused=True, materialize_grads=True)
        gradients = clipped(list(gradients), local.clip, stacked=True)
        optimizer.step([stack[name][:rows] for name in names], gradients, rows)
    return [{name: tensor[k].clone() for name, tensor in stack.items()} for k in range(len(states))]


def stacked_batch(task: Task, samples: Sequence[Samples], steps: Sequence[Step]) -> Batch:
    """Minibatches of several clients, short ones padded by rows of weight zero (exact without batch norm, which never gets here)."""
    pairs = [_augmented(task, s, step) for s, step in zip(samples, steps, strict=True)]
    images, labels = (pad_sequence(parts, batch_first=True) for parts in zip(*pairs, strict=True))
    sizes = torch.tensor([len(step.index) for step in steps])[:, None]
    weights = (torch.arange(labels.shape[1]) < sizes).to(task.dtype) / sizes
    return task.inputs(images), labels, weights.to(labels.device, non_blocking=True)
