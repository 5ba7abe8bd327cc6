"""Whole streams on a GPU: FedTHE, BTFL and T3A by length; MEMO and FedTHE+ by how many samples' views make one batch."""

import time
from collections.abc import Sequence
from pathlib import Path

import torch

from fedlib.adapt import btfl, fedthe, t3a
from fedlib.adapt.fedthe_plus import FedTHEPlus
from fedlib.adapt.memo import MEMO
from fedlib.core import Stream, Task
from fedlib.models import state_of
from tests.benchmarks.streams import CLASSES, ENTROPIES, draws, tables
from tests.gpu.local import task_of
from tests.gpu.measure import Bench, gap
from tests.oracles import btfl as btfl_oracle
from tests.oracles import fedthe as fedthe_oracle
from tests.oracles import t3a as t3a_oracle

PREFIX = 48  # samples on which a loop over them is asked


def solvers(n: int, device: str, dtype: torch.dtype) -> dict:
    """name -> function that solves a stream of ``n`` samples on the device, the weights or scores [n, ...] that are compared."""
    inputs = [tensor.to(device) for tensor in draws(n, dtype)]
    own, heads = [table.to(device) for table in tables(dtype)], draws(CLASSES, dtype)[0].to(device)
    return {
        "FedTHE": lambda: fedthe.ensemble(*inputs, history_rule="inclusive")[0],
        "BTFL": lambda: btfl.interpolate(*inputs[:3], *own, **ENTROPIES)[0],
        "T3A": lambda: t3a.predict(inputs[0], heads, filter_k=50),
    }


def loops(n: int) -> dict:
    """The same as loops over the first ``n`` samples, in float64: nothing in a stream depends on what comes after it."""
    inputs, own, heads = draws(n, torch.float64), tables(torch.float64), draws(CLASSES, torch.float64)[0]
    arrays = [tensor.numpy() for tensor in (*inputs[:3], *own)]
    return {
        "FedTHE": lambda: fedthe_oracle.ensemble(*inputs, history_rule="inclusive", batch_size=1)[0],
        "BTFL": lambda: torch.as_tensor(btfl_oracle.interpolate(*arrays, **ENTROPIES)[0]),
        "T3A": lambda: torch.as_tensor(t3a_oracle.predict(inputs[0].numpy(), heads.numpy(), filter_k=50)),
    }


def measure_solvers(bench: Bench, lengths: Sequence[int] = (1000, 10_000, 100_000)) -> None:
    for name in ("FedTHE", "BTFL", "T3A"):
        for n in lengths:
            case = {"part": "stream", "network": name, "size": n}
            for device in dict.fromkeys(("cpu", bench.device)):
                bench.add(
                    case | {"variant": f"whole stream, {device}"},
                    solvers(n, device, torch.float32)[name],
                    lambda d=device, m=name: gap(solvers(PREFIX, d, torch.float64)[m](), loops(PREFIX)[m]()),
                    # Adam divides by the root of its second moment, which amplifies rounding where a gradient almost vanishes.
                    1e-5,
                    works=n,
                )


def measure_views(bench: Bench, n: int = 64, stacks: Sequence[int] = (1, 8, 32, 64)) -> None:
    """On the CNN; alone, a sample's views are one batch."""
    pixels = torch.randint(0, 256, (n, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8).to(bench.device)

    def scores(adapter, stack: int, dtype: torch.dtype, length: int) -> torch.Tensor:
        task = task_of("cnn", bench.device, dtype, stack)
        return adapter.run(task, state_of(task.model), personal(task), Stream(pixels[:length], "original", 0)).scores

    for adapter in (MEMO(base="global"), FedTHEPlus()):
        for stack in stacks:
            bench.add(
                {"part": "views", "network": type(adapter).__name__, "size": n, "variant": f"{stack} at once"},
                lambda a=adapter, s=stack: scores(a, s, torch.float32, n),
                lambda a=adapter, s=stack: gap(scores(a, min(s, 3), torch.float64, 4), scores(a, 1, torch.float64, 4)),
                1e-8,
                works=n,
                repeats=1,
            )


def personal(task: Task) -> dict[str, torch.Tensor]:
    """A client's head and descriptors as FedTHE's personal part has them."""
    weight = state_of(task.model)["head.weight"]
    return {"model.head.weight": weight.flip(0), "descriptor": weight[0].abs(), "shared.descriptor": weight[1].abs()}


def main(device: str, until: float, out: Path, tiny: bool) -> None:
    torch.set_num_threads(1)
    bench = Bench(device, time.monotonic() + until, out)
    measure_solvers(bench, (100,) if tiny else (1000, 10_000, 100_000))
    measure_views(bench, **({"n": 2, "stacks": (1, 2)} if tiny else {}))
