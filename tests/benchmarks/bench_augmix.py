"""Batched AugMix against one PIL view after another, same plan, one thread, repetitions interleaved.

Run from the repository root: python -m tests.benchmarks.bench_augmix
Prints milliseconds per view (median) and the median of the paired ratios. The batched time includes the drawing of the plan.
"""

import statistics
import time

import torch

from fedlib.augment import augmix
from fedlib.seeding import generator
from tests.oracles import augmix as oracle

SAMPLES, VIEWS, REPETITIONS = 32, 32, 7


def timed(work) -> float:
    """Milliseconds per view."""
    start = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - start) / (SAMPLES * VIEWS)


def measure(channels: int, size: int) -> tuple[list[float], list[float]]:
    """Times of both on noise images [SAMPLES, channels, size, size]."""
    images = torch.randint(0, 256, (SAMPLES, channels, size, size), generator=generator(0, "images"), dtype=torch.uint8)
    mean, std = (0.5,) * channels, (0.25,) * channels
    plan = augmix.draw(generator(0, "plan"), SAMPLES, VIEWS)
    copies = images.repeat_interleave(VIEWS, dim=0).numpy()
    batched, loop = [], []
    for repetition in range(REPETITIONS + 1):
        ours = timed(lambda: augmix.views(images, VIEWS, generator(0, "plan"), mean=mean, std=std))
        theirs = timed(lambda: oracle.views(copies, augmix.OPS, plan, mean, std))
        if repetition:  # the first one warms up
            batched.append(ours)
            loop.append(theirs)
    return batched, loop


def main() -> None:
    torch.set_num_threads(1)
    for channels, size in ((1, 16), (3, 32)):
        batched, loop = measure(channels, size)
        ratio = statistics.median(b / a for a, b in zip(batched, loop, strict=True))
        print(
            f"{channels} x {size} x {size}: batched {statistics.median(batched):.4f} ms per view, "
            f"PIL loop {statistics.median(loop):.4f} ms per view, ratio {ratio:.1f}"
        )


if __name__ == "__main__":
    main()
