"""How long an adapter takes on one stream."""

import itertools
import os
import time

import torch
from torch import Tensor

from fedlib.core import Adapter, State, Stream, Task


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
    held = itertools.accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns()))
    return max(0, 0, *held)
