"""The clients of one round in several processes, for a training that has more cores than one."""

import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence

import torch
from joblib import Parallel, delayed
from joblib.externals.loky import get_reusable_executor

from fedlib.tools.lifeline import follow

# Images in all minibatches together; below, sending the clients to processes takes about as long as training them.
WORTH = 20_000
_started = threading.Event()


def in_workers(function: Callable, calls: Sequence[tuple], processes: int) -> list:
    """``[function(*call) for call in calls]``, the first calls first, in worker processes with as many threads as this one has.

    The workers are kept from one call of this function to the next, and end with this process. A process that may not start any, such as
    a worker of Dask's, does everything itself.
    """
    if multiprocessing.current_process().daemon:
        return [function(*call) for call in calls]
    jobs = [delayed(_one)(os.getpid(), torch.get_num_threads(), function, *call) for call in calls]
    _started.set()
    return Parallel(n_jobs=min(processes, len(jobs)), backend="loky")(jobs)


def shared(function: Callable, calls: Sequence[tuple], processes: int, images: int) -> list:
    """``[function(*call) for call in calls]``, in ``in_workers`` where there are processes to share it and ``images`` enough to do so."""
    if processes > 1 and len(calls) > 1 and images >= WORTH:
        return in_workers(function, calls, processes)
    return [function(*call) for call in calls]


def end_workers() -> None:
    """End the workers that this process has started, if any, as a worker process does before its own end, which leaves no time for it."""
    if _started.is_set():
        get_reusable_executor(reuse=True).shutdown(wait=True)
        _started.clear()


def _one(parent: int, threads: int, function: Callable, *arguments):
    follow(parent)
    torch.set_num_threads(threads)
    return function(*arguments)
