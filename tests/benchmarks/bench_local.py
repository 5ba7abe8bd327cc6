"""Local training through the engine against a bare PyTorch loop, one thread, same plan of minibatches, variants interleaved."""

import random
import time
from statistics import median

import torch

from fedlib.clients import Samples
from fedlib.models import build, state_of
from fedlib.task import Local, Schedule, Task
from fedlib.train.fedavg import model_loss
from fedlib.train.local import batch_of, plan, train
from fedlib.transform import Transform

REPEATS = 7


def bare(task: Task, start: dict, samples: list[Samples], local: Local, layout: torch.memory_format) -> None:
    """nn.Module and torch.optim, client after client: what a user would write without the kit."""
    for k, data in enumerate(samples):
        task.model.load_state_dict(start)
        model = task.model.to(memory_format=layout).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=local.lr, momentum=local.momentum, weight_decay=local.weight_decay)
        for step in plan(len(data), local, task, task.generator("bench", k)):
            inputs, labels = batch_of(task, data, step)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()


def bench(name: str, in_shape: tuple[int, int, int], n_clients: int, per_client: int, chunk_size: int) -> None:
    generator = torch.Generator().manual_seed(0)
    local = Local(epochs=1)
    channels = in_shape[0]
    task = Task(build(name, in_shape, 10, 0), Transform((0.5,) * channels, (0.5,) * channels), 10, Schedule(1, local, local), 0, chunk_size)
    start = state_of(task.model)
    samples = [
        Samples(
            torch.randint(0, 256, (per_client, *in_shape), generator=generator, dtype=torch.uint8),
            torch.randint(0, 10, (per_client,), generator=generator),
        )
        for _ in range(n_clients)
    ]

    def engine() -> None:
        generators = [task.generator("bench", k) for k in range(n_clients)]
        train(task, model_loss(task, "cross_entropy"), start, samples, local=local, generators=generators)

    variants = {
        "bare loop": lambda: bare(task, start, samples, local, torch.contiguous_format),
        "bare loop, channels last": lambda: bare(task, start, samples, local, torch.channels_last),
        f"engine, chunk {chunk_size}": engine,
    }
    seconds: dict[str, list[float]] = {variant: [] for variant in variants}
    for repeat in range(REPEATS + 1):
        for variant in random.sample(list(variants), len(variants)):
            begin = time.perf_counter()
            variants[variant]()
            if repeat:
                seconds[variant].append(time.perf_counter() - begin)
    engine_times = seconds[f"engine, chunk {chunk_size}"]
    for variant, times in seconds.items():
        ratio = median(t / e for t, e in zip(times, engine_times, strict=True))
        print(f"{name:12} {n_clients:3} clients  {variant:26} {1000 * median(times):8.1f} ms   engine is {ratio:5.2f}x as fast")


if __name__ == "__main__":
    bench("cnn", (3, 32, 32), 10, 64, 1)
    bench("cnn", (1, 16, 16), 10, 128, 1)
    bench("mlp", (1, 8, 8), 20, 320, 20)
