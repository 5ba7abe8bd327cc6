"""Clients, what they hold, and what an adapter may see of it."""

from dataclasses import dataclass, field, replace
from typing import Protocol

import pandas as pd
import torch
from torch import Tensor

from fedlib.transform import Transform


@dataclass(frozen=True)
class Samples:
    """Labelled images of one client: images uint8 [n, C, H, W], labels int64 [n]."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.images)

    def to(self, device: torch.device | str) -> "Samples":
        return Samples(self.images.to(device), self.labels.to(device))

    def head(self, limit: int | None) -> "Samples":
        """The first ``limit`` samples (all of them for None)."""
        return Samples(self.images[:limit], self.labels[:limit])


@dataclass(frozen=True)
class Stream:
    """What an adapter receives: ordered, unlabelled test images of one client. It has no labels to leak.

    images: uint8 [n, C, H, W]; column: the kind of test (``original``, ``corrupted``, ...); draw: which of several passes.
    """

    images: Tensor
    column: str
    client: int
    draw: int = 0

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class Client:
    """One client: labelled ``train`` and ``val`` parts, and labelled ``tests`` by column, each in stream order, one or more draws.

    source: takes part in training (False for the target or new clients of ATP and UPFL). pool: all samples of the client where its
    training part is drawn anew for every use, as published code does (``split="resplit"``); None for one fixed split. about: what sets
    this client apart in words (domain, corruption), for reports.
    """

    id: int
    train: Samples
    val: Samples
    tests: dict[str, tuple[Samples, ...]] = field(default_factory=dict)
    source: bool = True
    pool: Samples | None = None
    about: str = ""

    def redrawn(self, generator: torch.Generator) -> "Client":
        """This client with a fresh training part from its pool: the leak of the published code. Without a pool, the client itself."""
        if self.pool is None:
            return self
        index = torch.randperm(len(self.pool), generator=generator)[: len(self.train)].to(self.pool.labels.device)
        return replace(self, train=Samples(self.pool.images[index], self.pool.labels[index]))

    def to(self, device: torch.device | str) -> "Client":
        """The same client with every image on ``device``."""
        tests = {column: tuple(draw.to(device) for draw in draws) for column, draws in self.tests.items()}
        pool = None if self.pool is None else self.pool.to(device)
        return replace(self, train=self.train.to(device), val=self.val.to(device), tests=tests, pool=pool)

    def stream(self, column: str, draw: int = 0, limit: int | None = None) -> Stream:
        """The unlabelled view of one test, cut to its first ``limit`` images."""
        return Stream(self.tests[column][draw].images[:limit], column, self.id, draw)


@dataclass(frozen=True)
class Benchmark:
    """What a protocol builds: clients and everything that training on them needs to know.

    dataset: name of the images actually used; stand_in: what they replace ("" if they are the paper's own); notes: stand-ins and
    options that every result of this benchmark has to carry; public: unlabelled images uint8 [m, C, H, W] that all clients hold, if any;
    stand_in_columns: tests that hold stand-ins even where the other images are the paper's own.
    """

    clients: tuple[Client, ...]
    transform: Transform
    in_shape: tuple[int, int, int]
    classes: tuple[str, ...]
    dataset: str
    stand_in: str = ""
    notes: tuple[str, ...] = ()
    public: Tensor | None = None
    stand_in_columns: tuple[str, ...] = ()

    @property
    def images(self) -> str:
        """Name of the images and, where they are a stand-in, of what they replace."""
        return f"{self.dataset} (stand-in for {self.stand_in})" if self.stand_in else self.dataset

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    @property
    def columns(self) -> list[str]:
        """Names of all tests, in the order in which the first client that has them lists them."""
        return list(dict.fromkeys(column for client in self.clients for column in client.tests))

    def to(self, device: torch.device | str) -> "Benchmark":
        """The same benchmark with every image on ``device``."""
        public = None if self.public is None else self.public.to(device)
        return replace(self, clients=tuple(client.to(device) for client in self.clients), public=public)

    def report(self, part: str = "train") -> pd.DataFrame:
        """Class counts, clients x classes, of ``train``, ``val`` or a test column."""
        rows = {}
        for client in self.clients:
            samples = getattr(client, part) if part in ("train", "val") else client.tests[part][0]
            rows[client.id] = torch.bincount(samples.labels.cpu(), minlength=self.n_classes).numpy()
        return pd.DataFrame.from_dict(rows, orient="index", columns=list(self.classes)).rename_axis("client")


class Clients(Protocol):
    """How a paper makes clients: a frozen dataclass with ``build(seed, root)``, the same for the same seed.

    One of your own needs nothing else. Here four clients share the digits evenly, and each is tested on a fifth of what it holds:

    >>> import fedlib, torch
    >>> from dataclasses import dataclass
    >>> from fedlib.seeding import generator
    >>> @dataclass(frozen=True)
    ... class Even:
    ...     n_clients: int = 4
    ...     def build(self, seed, root=None):
    ...         data = fedlib.load("digits", root)
    ...         images, labels = torch.from_numpy(data.images), torch.from_numpy(data.labels)
    ...         order = torch.randperm(len(data), generator=generator(seed, "even clients"))
    ...         clients = []
    ...         for k, part in enumerate(order.chunk(self.n_clients)):
    ...             cuts = [len(part) // 5, len(part) // 10]
    ...             test, val, train = (fedlib.Samples(images[i], labels[i]) for i in part.split([*cuts, len(part) - sum(cuts)]))
    ...             clients.append(fedlib.Client(k, train, val, {"original": (test,)}))
    ...         transform = fedlib.Transform(mean=(0.5,), std=(0.5,), augment="none")
    ...         return fedlib.Benchmark(tuple(clients), transform, data.images.shape[1:], data.classes, data.name, data.stand_in)
    >>> setting = fedlib.Setting("even", Even(), "mlp", fedlib.Schedule(rounds=2, local=fedlib.Local(lr=0.1)))
    >>> rows = fedlib.run([setting], fedlib.recipes_of("fedthe", "FedAvg"), seeds=[0], cache=None)
    >>> rows["n"].tolist()
    [90, 90, 90, 89]
    >>> bool(rows["accuracy"].mean() > 50)
    True
    """

    def build(self, seed: int, root: str | None = None) -> Benchmark: ...
