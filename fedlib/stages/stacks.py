"""Many clients or samples in stacks as large as the device's memory allows."""

from collections.abc import Callable

import torch


def in_stacks(n: int, size: int, run: Callable[[int, int], None]) -> None:
    """``run(start, stop)`` over consecutive parts of ``range(n)``, at most ``size`` long.

    A part that does not fit the memory of a GPU is halved, for itself and for what comes after it. Raises torch.OutOfMemoryError where
    not even one fits.
    """
    start = 0
    while start < n:
        stop = min(start + size, n)
        if _fits(run, start, stop):
            start = stop
        else:
            size = (stop - start) // 2


def _fits(run: Callable[[int, int], None], start: int, stop: int) -> bool:
    try:
        run(start, stop)
    except torch.OutOfMemoryError:
        if stop - start == 1:
            raise
    else:
        return True
    # Outside of the handler, whose traceback would keep what the failed attempt holds.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return False
