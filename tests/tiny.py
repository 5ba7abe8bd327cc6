"""Networks, tasks and clients of toy size that many tests share."""

from dataclasses import dataclass, replace

import torch
from torch import nn

from fedlib.augment.transform import Transform
from fedlib.core import Benchmark, Client, Local, Samples, Schedule, Task
from fedlib.models import Net

SHAPE = (1, 6, 6)
CLASSES = 3
TRANSFORM = Transform((0.5,), (0.25,), "sample", pad=1)


def net(kind: str = "plain", dtype: torch.dtype = torch.float64, seed: int = 0) -> Net:
    """``plain`` (linear layers), ``convolution``, ``batchnorm`` or ``dropout``; 1 x 6 x 6 images, three classes, five features."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = {
            "plain": [nn.Flatten(), nn.Linear(36, 5), nn.Tanh()],
            "convolution": [nn.Conv2d(1, 2, 3), nn.GroupNorm(2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 5), nn.Tanh()],
            "batchnorm": [nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 5), nn.Tanh()],
            "dropout": [nn.Flatten(), nn.Linear(36, 5), nn.Tanh(), nn.Dropout(0.5)],
        }
        return Net(nn.Sequential(*layers[kind]), nn.Linear(5, CLASSES)).to(dtype)


def task(kind: str = "plain", *, dtype=torch.float64, chunk_size: int = 1, augment: str = "sample", seed: int = 0, **schedule) -> Task:
    """A task on ``net(kind)``; further arguments are fields of the schedule."""
    schedule = {"rounds": 2, "local": Local(lr=0.1, batch_size=4, epochs=2), "personal": Local(lr=0.1, batch_size=4, epochs=1)} | schedule
    return Task(net(kind, dtype), replace(TRANSFORM, augment=augment), CLASSES, Schedule(**schedule), seed, chunk_size, dtype)


def samples(n: int, seed: int = 0) -> Samples:
    """Noise whose mean brightness tells the class."""
    draws = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (n,), generator=draws)
    noise = torch.randint(0, 120, (n, *SHAPE), generator=draws)
    return Samples((noise + 60 * labels.view(-1, 1, 1, 1)).to(torch.uint8), labels)


def client(k: int, n: int = 9, seed: int = 0, **fields) -> Client:
    k_seed = k + 1000 * seed
    tests = {"original": (samples(7, 100 + k_seed),), "corrupted": (samples(6, 200 + k_seed), samples(6, 300 + k_seed))}
    return Client(k, samples(n, k_seed), samples(3, 400 + k_seed), tests, **fields)


def clients(sizes=(9, 5, 14)) -> list[Client]:
    """Clients with uneven training parts, so that batches of four end short."""
    return [client(k, n) for k, n in enumerate(sizes)]


@dataclass(frozen=True)
class Protocol:
    """Three noise clients. brightness: added to every test image; shuffled: test labels in another order; target: seed of the training part
    of an additional client that takes no part in training (None: no such client); leaky: training parts drawn anew at every use."""

    brightness: int = 0
    shuffled: bool = False
    target: int | None = None
    leaky: bool = False

    def build(self, seed: int, root: str | None = None) -> Benchmark:
        members = [replace(client(k, n, seed), pool=samples(3 * n, seed + k) if self.leaky else None) for k, n in enumerate((9, 5, 14))]
        if self.target is not None:
            members.append(replace(client(3, 6, seed), train=samples(6, self.target), source=False))
        members = [replace(c, tests={name: tuple(map(self._changed, draws)) for name, draws in c.tests.items()}) for c in members]
        return Benchmark(tuple(members), TRANSFORM, SHAPE, tuple("abc"), "noise", "everything", ())

    def _changed(self, test: Samples) -> Samples:
        return Samples(test.images + self.brightness, test.labels.roll(1) if self.shuffled else test.labels)
