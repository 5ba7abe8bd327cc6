"""Local training on a GPU, one by one, in stacks, replayed, compiled, in several processes, against a plain PyTorch loop; the fastest form.

``python -m tests.gpu.local NETWORK --out local-NETWORK.csv``; ``choose`` makes the engine's table from all of them.
"""

import functools
import math
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from joblib import Parallel, delayed
from torch import nn

from fedlib.augment.transform import Transform
from fedlib.core import Local, Samples, Schedule, State, Task
from fedlib.models import build, state_of
from fedlib.train.fedavg import model_loss
from fedlib.train.local import batch_of, plan, train
from tests.gpu.measure import Bench, gap

NETWORKS = {"mlp": (1, 28, 28), "cnn": (3, 32, 32), "shallow_cnn": (3, 32, 32), "resnet20gn": (3, 32, 32)}
# variant -> chunk size, options of the engine, whether it may become the default. Compiled losses start too slowly for a default, as every
# method has its own; bfloat16 changes numbers.
FORMS = {
    "one by one": (1, (), True),
    "stack of 8": (8, (), True),
    "stack of 20": (20, (), True),
    "stack of 100": (100, (), True),
    "CUDA graph": (1, ("graph",), True),
    "channels last": (1, ("channels_last",), True),
    "CUDA graph, channels last": (1, ("graph", "channels_last"), True),
    "bfloat16, channels last": (1, ("channels_last", "bfloat16"), False),
    "stack of 100, bfloat16": (100, ("bfloat16",), False),
    "torch.compile": (1, ("compile",), False),
}
PROCESSES = 4


def task_of(network: str, device: str, dtype: torch.dtype, chunk_size: int = 1, options: Sequence[str] = ()) -> Task:
    shape = NETWORKS[network]
    transform = Transform((0.5,) * shape[0], (0.5,) * shape[0], "sample")
    model = build(network, shape, 10, 0).to(device, dtype)
    return Task(model, transform, 10, Schedule(), 0, chunk_size, dtype, options=tuple(options))


@functools.lru_cache(maxsize=4)
def clients(network: str, device: str, n_clients: int, n: int) -> list[Samples]:
    draws = torch.Generator().manual_seed(0)
    shape = (n_clients, n, *NETWORKS[network])
    pixels = torch.randint(0, 256, shape, generator=draws, dtype=torch.uint8).to(device)
    labels = torch.randint(0, 10, (n_clients, n), generator=draws).to(device)
    return [Samples(images, own) for images, own in zip(pixels, labels, strict=True)]


def plain(network: str, device: str, dtype: torch.dtype, samples: Sequence[Samples], local: Local) -> list[State]:
    """nn.Module and torch.optim, client after client: what one would write without the kit."""
    task, result = task_of(network, device, dtype), []
    model, start = task.model.train(), state_of(task.model)
    if device == "cpu":
        model = model.to(memory_format=torch.channels_last)
    for k, data in enumerate(samples):
        model.load_state_dict(start)
        decay = [[p for name, p in model.named_parameters() if task.model.feels_decay(name) == felt] for felt in (True, False)]
        groups = [{"params": decay[0]}, {"params": decay[1], "weight_decay": 0.0}]
        optimizer = torch.optim.SGD(groups, lr=local.lr, weight_decay=local.weight_decay)
        for step in plan(len(data), local, task, task.generator("bench", k)):
            inputs, labels = batch_of(task, data, step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
        result.append({name: tensor.detach().clone() for name, tensor in model.state_dict().items()})
    return result


def engine(network, device, dtype, samples, local: Local, chunk_size: int, options: Sequence[str] = (), first: int = 0) -> list[State]:
    """The kit's local training. first: number of the first of the clients."""
    task = task_of(network, device, dtype, chunk_size, options)
    generators = [task.generator("bench", first + k) for k in range(len(samples))]
    return train(task, model_loss(task, "cross_entropy"), state_of(task.model), samples, local=local, generators=generators)


def share(network: str, device: str, dtype: torch.dtype, n_clients: int, n: int, local: Local, rows: range) -> list[State]:
    """One process' clients, one by one, and their weights as they go back to the server."""
    torch.set_num_threads(1)
    mine = clients(network, device, n_clients, n)[rows.start : rows.stop]
    return [{k: t.cpu() for k, t in state.items()} for state in engine(network, device, dtype, mine, local, 1, first=rows.start)]


def in_processes(network: str, device: str, dtype: torch.dtype, n_clients: int, n: int, local: Local, processes: int) -> list[State]:
    size = -(-n_clients // processes)
    parts = [range(start, min(start + size, n_clients)) for start in range(0, n_clients, size)]
    found = Parallel(n_jobs=processes)(delayed(share)(network, device, dtype, n_clients, n, local, rows) for rows in parts)
    return [state for part in found for state in part]


def reason(device: str, variant: str, n_clients: int, network: str) -> str:
    """Why a variant is not run here; "" where it is."""
    if device == "cpu" and variant != "one by one" and not variant.startswith("stack"):
        return "it needs a CUDA device"
    if network == "mlp" and "channels last" in variant:
        return "the network has no convolutions"
    if variant.startswith("stack") and network == "shallow_cnn":
        return "networks with batch norm train one by one"
    chunk = FORMS[variant][0] if variant in FORMS else 1
    return "more than there are clients" if chunk > 20 and n_clients <= 20 else ""


def measure(bench: Bench, network: str, cohorts: Sequence[int] = (20, 100), n: int = 320, epochs: int = 3) -> None:
    device, local = bench.device, Local(epochs=epochs)
    # Checked where a graph replays and the last batch is short: six steps of an epoch, two epochs.
    few, short = clients(network, device, 3, 170 if n > 100 else n), Local(epochs=2)
    exact = functools.cache(lambda: plain(network, device, torch.float64, few, short))
    rough = functools.cache(lambda: plain(network, device, torch.float32, few, short))
    for n_clients in cohorts:
        case = {"part": "local", "network": network, "size": n_clients}
        many, works, repeats = clients(network, device, n_clients, n), n_clients * n * epochs, 3 if n_clients <= 20 else 1
        work = functools.partial(plain, network, device, torch.float32, many, local)
        bench.add(case | {"variant": "plain loop"}, work, lambda: 0.0, 0.0, works=works, repeats=repeats)
        for variant, (chunk, options, _) in FORMS.items():
            inexact = "bfloat16" in options or "compile" in options
            dtype, expected = (torch.float32, rough) if inexact else (torch.float64, exact)
            checked = functools.partial(engine, network, device, dtype, few, short, chunk, options)
            bench.add(
                case | {"variant": variant},
                functools.partial(engine, network, device, torch.float32, many, local, chunk, options),
                lambda ours=checked, theirs=expected: gap(ours(), theirs()),
                0.05 if "bfloat16" in options else 1e-3 if inexact else 1e-9,
                works=works,
                reason=reason(device, variant, n_clients, network),
                repeats=repeats,
            )
        bench.add(
            case | {"variant": f"{PROCESSES} processes"},
            functools.partial(in_processes, network, device, torch.float32, n_clients, n, local, PROCESSES),
            lambda: gap(in_processes(network, device, torch.float64, 3, len(few[0]), short, 2), exact()),
            1e-9,
            works=works,
            reason=reason(device, "processes", n_clients, network),
            repeats=1,
        )
        # What the goals are counted in: the plain loop on one core.
        work = functools.partial(plain, network, "cpu", torch.float32, clients(network, "cpu", 2, n), replace(local, epochs=1))
        bench.add(case | {"variant": "plain loop on one core"}, work, lambda: 0.0, 0.0, works=2 * n, repeats=1)


def choose(rows: Sequence[dict]) -> list[dict]:
    """Per network the form, among those that may be a default, of the highest geometric mean speed over the cohorts where it ran."""
    table = []
    for network in dict.fromkeys(row["network"] for row in rows):
        speeds: dict[tuple, list[float]] = {}
        for row in rows:
            if row["network"] == network and row["variant"] in FORMS and FORMS[row["variant"]][2] and row["status"] == "ok":
                speeds.setdefault(FORMS[row["variant"]][:2], []).append(float(row["ratio"]))
        if speeds:
            (chunk, options), ratios = max(speeds.items(), key=lambda form: math.prod(form[1]) ** (1 / len(form[1])))
            mean = math.prod(ratios) ** (1 / len(ratios))
            table.append({"network": network, "chunk_size": chunk, "options": " ".join(options), "ratio_to_plain_loop": mean})
    return table


def main(network: str, device: str, until: float, out: Path, tiny: bool) -> None:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(1)
    size = {"cohorts": (2, 3), "n": 40, "epochs": 1} if tiny else {}
    measure(Bench(device, time.monotonic() + until, out), network, **size)
