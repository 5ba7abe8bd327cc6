"""Processes that end with the one they work for.

A killed process cannot end its workers, and a worker in the middle of a training does not notice: it would train on, holding the cache's
locks. So every worker asks once a second who its parent is. Kernels that Jupyter starts do the same by themselves.
"""

import multiprocessing
import os
import threading
import time

SECONDS = 1.0
_watched = threading.Event()


def follow(parent: int) -> None:
    """In a worker process of joblib, end the process within two seconds of the end of ``parent``, its parent; elsewhere do nothing.

    Not the kernel's ``PR_SET_PDEATHSIG``, which fires when the *thread* that started the worker ends, and exists on Linux only.
    """
    if not type(multiprocessing.current_process()).__module__.startswith("joblib.externals.loky") or _watched.is_set():
        return
    _watched.set()
    if os.getppid() != parent:
        _end()
    threading.Thread(target=_watch, args=(parent,), daemon=True, name="fedlib-lifeline").start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(SECONDS)
    _end()


def _end() -> None:
    # Nothing can be left half done: files are renamed when they are whole, and the system frees the locks.
    os._exit(1)
