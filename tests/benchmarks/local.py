"""Local training through the engine against a bare PyTorch loop on the same minibatches; chunk sizes; share of the matrix peak."""

from dataclasses import replace

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fedlib.augment.transform import Transform
from fedlib.core import Local, Samples, Schedule, Task
from fedlib.models import Net, build, state_of
from fedlib.train.fedavg import model_loss
from fedlib.train.local import batch_of, plan, train
from tests.benchmarks.measure import compared, fastest, peak_gflops

LOCAL = Local(epochs=1)

# name -> network (None: a linear head on 64 features), images, clients, samples of each, chunk sizes.
CASES = {
    "CNN, 20 clients": ("cnn", (3, 32, 32), 20, 96, (1, 20)),
    "ResNet20-GN, 20 clients": ("resnet20gn", (3, 32, 32), 20, 32, (1,)),
    "Shallow CNN, 20 clients": ("shallow_cnn", (3, 32, 32), 20, 128, (1,)),
    "CNN on digits, 20 clients": ("cnn", (1, 16, 16), 20, 128, (1, 20)),
    "MLP, 20 clients": ("mlp", (1, 8, 8), 20, 320, (1, 5, 10, 20)),
    "MLP, 100 clients": ("mlp", (1, 8, 8), 100, 160, (1, 10, 20, 50, 100)),
    "MLP on 28 x 28, 20 clients": ("mlp", (1, 28, 28), 20, 320, (1, 5, 20)),
    "linear head, 20 clients": (None, (1, 8, 8), 20, 320, (1, 20)),
    "linear head, 100 clients": (None, (1, 8, 8), 100, 160, (1, 32, 100)),
}


def bare(task: Task, start: dict, samples: list[Samples], layout: torch.memory_format) -> None:
    """nn.Module and torch.optim, client after client: what a user would write without the kit."""
    model = task.model.to(memory_format=layout).train()
    for k, data in enumerate(samples):
        model.load_state_dict(start)
        optimizer = torch.optim.SGD(model.parameters(), lr=LOCAL.lr, weight_decay=LOCAL.weight_decay)
        for step in plan(len(data), LOCAL, task, task.generator("bench", k)):
            inputs, labels = batch_of(task, data, step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()


def task_of(network: str | None, shape: tuple[int, int, int]) -> Task:
    model = build(network, shape, 10, 0) if network else Net(nn.Flatten(), nn.Linear(64, 10))
    return Task(model, Transform((0.5,) * shape[0], (0.5,) * shape[0]), 10, Schedule(1, LOCAL, LOCAL), 0)


def noise(n_clients: int, n: int, shape: tuple[int, int, int]) -> list[Samples]:
    draws = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (n_clients, n, *shape), generator=draws, dtype=torch.uint8)
    return [Samples(images, torch.randint(0, 10, (n,), generator=draws)) for images in pixels]


def engine(task: Task, start: dict, samples: list[Samples], chunk_size: int) -> list[dict]:
    generators = [task.generator("bench", k) for k in range(len(samples))]
    task = replace(task, chunk_size=chunk_size)
    return train(task, model_loss(task, "cross_entropy"), start, samples, local=LOCAL, generators=generators)


def operations(task: Task, shape: tuple[int, int, int]) -> int:
    """Floating-point operations of a forward and a backward pass of one sample."""
    with FlopCounterMode(display=False) as counter:
        task.model(torch.zeros(2, *shape)).sum().backward()
    return counter.get_total_flops() // 2


def rows() -> list[dict]:
    peak, result = 0.0, []
    for case, (network, shape, n_clients, n, chunks) in CASES.items():
        task, samples = task_of(network, shape), noise(n_clients, n, shape)
        start, work = state_of(task.model), operations(task, shape) * n_clients * n / 1e9
        layouts = {"bare loop": torch.contiguous_format}
        if network and network != "mlp":
            layouts["bare loop, channels last"] = torch.channels_last
        variants = {name: lambda o=layout, t=task, s=start, d=samples: bare(t, s, d, o) for name, layout in layouts.items()}
        variants |= {f"engine, chunk {c}": lambda c=c, t=task, s=start, d=samples: engine(t, s, d, c) for c in chunks}
        seconds = fastest(variants, repeats=5)
        peak = max(peak, peak_gflops())
        for row in compared(case, seconds, per="1,000 samples", works=n_clients * n / 1000):
            result.append(row | {"gflops": work / seconds[row["variant"]]})
    return [row | {"share_of_peak": row["gflops"] / peak} for row in result]
