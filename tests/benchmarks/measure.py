"""How the benchmarks measure: one thread, CPU seconds, variants interleaved, the fastest repeat of each.

CPU seconds do not count the time that other processes hold the core, so ratios survive a busy machine; its caches and memory are
still shared, which the load average beside every result tells.
"""

import ctypes
import gc
import os
import platform
import random
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch


def fastest(variants: Mapping[str, Callable[[], object]], repeats: int = 4) -> dict[str, float]:
    """CPU seconds of the fastest of ``repeats`` runs of each variant; every repeat runs all of them once, in random order."""
    seconds = dict.fromkeys(variants, float("inf"))
    for _ in range(repeats):
        for name in random.sample(list(variants), len(variants)):
            start = time.process_time()
            variants[name]()
            seconds[name] = min(seconds[name], time.process_time() - start)
    return seconds


def compared(case: str, seconds: Mapping[str, float], *, per: str, works: Mapping[str, float] | float = 1.0) -> list[dict]:
    """One row per variant: seconds for one unit of work (``per``), and how many times as fast as the first variant it is.

    works: units that a run of a variant did, one number for all or one each.
    """
    units = works if isinstance(works, Mapping) else dict.fromkeys(seconds, works)
    each = {name: value / units[name] for name, value in seconds.items()}
    plain = next(iter(each.values()))
    return [{"case": case, "variant": name, "seconds": value, "per": per, "ratio": plain / value} for name, value in each.items()]


def exponent(sizes: Sequence[float], values: Sequence[float], last: int = 3) -> float:
    """Slope of log value over log size, least squares over the ``last`` sizes, where constants weigh least; NaN unless all are positive."""
    sizes, values = np.asarray(sizes[-last:], float), np.asarray(values[-last:], float)
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0]) if len(values) > 1 and (values > 0).all() else float("nan")


def peak_mib(work: Callable[[], object]) -> float:
    """MiB by which ``work`` raises the resident memory of this process at its peak (Linux)."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    kept = work()
    peak = _status("VmHWM")
    del kept
    return max(0, peak - before) / 1024


def _status(field: str) -> int:
    """Kibibytes of one line of /proc/self/status."""
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{field}:"))


def peak_gflops(size: int = 1024) -> float:
    """Billions of operations a second of a float32 matrix product on one thread: what the core can do at best."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    return 2 * size**3 / fastest({"product": lambda: a @ b}, repeats=40)["product"] / 1e9


def machine() -> dict[str, str | int | float]:
    """Where and when: the columns that every result carries."""
    names = (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cpu": next(names, platform.machine()),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
