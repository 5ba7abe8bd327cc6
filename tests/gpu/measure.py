"""How the GPU's measurements are made: wall clock with the device idle before and after, variants checked before they are timed."""

import csv
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from fedlib.tools.files import atomic


def seconds(work: Callable[[], object], device: str, repeats: int = 3) -> float:
    """Of the fastest of ``repeats`` runs, after one that makes handles, caches and compiled code."""

    def once() -> float:
        idle(device)
        start = time.perf_counter()
        work()
        idle(device)
        return time.perf_counter() - start

    once()
    return min(once() for _ in range(repeats))


def idle(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


@dataclass
class Bench:
    """Variants of one computation, each a row: compared with the plain form before it is timed, and left out, saying why, where it cannot
    run, where it computes something else, and where the time is over (``deadline``, of time.monotonic)."""

    device: str
    deadline: float
    out: Path
    rows: list[dict] = field(default_factory=list)

    def add(
        self,
        case: Mapping[str, object],
        work: Callable[[], object] | None,
        difference: Callable[[], float],
        tolerance: float,
        *,
        works: float = 1.0,
        reason: str = "",
        repeats: int = 3,
    ) -> float | None:
        """Time ``work``, which does ``works`` units, once ``difference()`` from the plain form is at most ``tolerance``; None: not run.

        reason: why it is not run here ("": it is). Rows of one (part, network, size) are compared with the first of them that ran.
        """
        row = dict(case) | {"seconds": "", "units_per_second": "", "ratio": "", "difference": "", "tolerance": tolerance, "status": "ok"}
        self.rows.append(row)
        if not reason and time.monotonic() > self.deadline:
            reason = "out of time"
        try:
            if not reason:
                row["difference"] = difference()
                # A NaN is no agreement.
                if not row["difference"] <= tolerance:
                    reason = "differs from the plain form"
        except Exception as error:  # a variant that fails says so in its row, and the others go on
            reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:150] if str(error).strip() else ''}"
        if not reason:
            try:
                row["seconds"] = seconds(work, self.device, repeats)
                row["units_per_second"] = works / row["seconds"]
                first = next(r for r in self.rows if r["units_per_second"] and same(r, row))
                row["ratio"] = row["units_per_second"] / first["units_per_second"]
            except Exception as error:
                reason = f"{type(error).__name__}: {str(error)[:150]}"
        row["status"] = f"not run: {reason}" if reason else "ok"
        write(self.out, self.rows)
        print(*(f"{value:.4g}" if isinstance(value, float) else value for value in row.values()), sep="  ", flush=True)
        return row["seconds"] or None


def same(first: Mapping, second: Mapping) -> bool:
    return all(first[name] == second[name] for name in ("part", "network", "size"))


def write(path: Path, rows: Sequence[Mapping]) -> None:
    """A CSV file of rows with the same fields."""
    with atomic(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: f"{v:.4g}" if isinstance(v, float) else v for name, v in row.items()} for row in rows)


def gap(ours, theirs) -> float:
    """Largest difference between two tensors, or two lists of states, relative to the largest entry of the second."""
    pairs = [(ours, theirs)] if isinstance(ours, torch.Tensor) else [(a[n], b[n]) for a, b in zip(ours, theirs, strict=True) for n in b]
    size = max(1e-12, *(b.abs().max().item() for _, b in pairs), 0.0)
    worst = [(a.to("cpu", torch.float64) - b.to("cpu", torch.float64)).abs().max().item() for a, b in pairs]
    return float("nan") if any(w != w for w in worst) else max(worst) / size
