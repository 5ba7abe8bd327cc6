"""How long an adapter takes on one stream, and how much memory."""

import itertools
import os
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from fedlib.core import Adapter, Client, Recipe, State, Stream, Task
from fedlib.stages.boundary import called
from fedlib.states import slice_of


def untrained(recipe: Recipe, task: Task, clients: Sequence[Client], who: str) -> tuple[State, State]:
    """A recipe's model before any training, and what the first of ``clients`` makes of it in one phase: its personal part, {} without
    one. who: named where a user's method fails."""
    with called(recipe.train, who) as train:
        model = train.init(task, clients)["model"]
    if recipe.personalize is None:
        return model, {}
    with called(recipe.personalize, who) as personal:
        return model, slice_of(personal.fit(task, [model] * len(clients), clients, personal.init(task, clients), 1), 0)


def seconds_per_1000(
    adapter: Adapter, task: Task, state: State, personal: State, images: Tensor, *, repeats: int = 3, warm_up: int = 64
) -> list[float]:
    """Seconds per 1,000 samples of each repeat: forward pass, adaptation and prediction of ``images`` uint8 [n, C, H, W], on their device.

    warm_up: images of an untimed run before. Raises ValueError without images or repeats.
    """
    if not len(images) or repeats < 1:
        raise ValueError(f"nothing to time: {len(images)} images, {repeats} repeats")
    seconds = []
    for repeat in range(repeats + 1):
        # A stream of its own, so that no pass over another one is reused.
        stream = Stream(images if repeat else images[:warm_up], "timing", 0)
        _synchronise(images.device)
        start = time.perf_counter()
        adapter.run(task, state, personal, stream)
        _synchronise(images.device)
        seconds.append((time.perf_counter() - start) * 1000 / len(stream))
    return seconds[1:]


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory(adapter: Adapter, task: Task, state: State, personal: State, images: Tensor) -> int:
    """The most bytes that are held at one time while ``adapter`` runs on a stream of ``images``, beside what was held before."""
    stream = Stream(images, "memory", 0)
    if images.device.type == "cuda":
        _synchronise(images.device)
        torch.cuda.reset_peak_memory_stats(images.device)
        before = torch.cuda.memory_allocated(images.device)
        adapter.run(task, state, personal, stream)
        return torch.cuda.max_memory_allocated(images.device) - before
    # Where there is no GPU it would say so at every first use.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    # torch.profiler around it loads a compiler and makes a Python object of every operation: seconds, where this reads bytes alone.
    with torch.autograd.profiler.profile(use_cpu=True, profile_memory=True) as seen:
        adapter.run(task, state, personal, stream)
    events = [event for event in seen.kineto_results.events() if event.name() == "[memory]"]
    changes = (event.nbytes() for event in sorted(events, key=lambda event: event.start_ns()))
    return max(itertools.accumulate(changes, initial=0))
