"""The contracts on one page: who holds what, what every stage of a method receives, and what it returns.

A method is train -> personalize -> adapt, a ``Recipe`` of three frozen dataclasses. All state is explicit: dictionaries of tensors by name
(``fedlib.states``). Prefixes say whose a tensor is:

* ``extractor.``, ``head.``: of a network's state. A ``Server`` is groups of states, ``model`` among them, which the clients receive.
* ``client_``: a group of the server with per-client state stacked over all clients, its latest value only; ``client_model``: of these, what
  replaces the received model's own for that client.
* ``model.``: of a personal part, what replaces the received model's own when the client predicts; ``shared.``: what all clients have in
  common; every other tensor has one row for each client.

``version`` of a method changes whenever its numbers may: the cache key otherwise names only what differs from a default.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import pandas as pd
import torch
from torch import Tensor

from fedlib.augment.transform import Transform
from fedlib.models import Net
from fedlib.models.net import fast, features_and_logits
from fedlib.samples import Samples as Samples
from fedlib.states import Server, State, overlay
from fedlib.tools.names import check_name
from fedlib.tools.seeding import generator

# What may be evaluated besides the model received in round 1, 2, ...: the one received in the last round, and what that round leaves.
RECEIVED, FINAL = 0, -1


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

    source: takes part in training (False for the target or new clients of ATP and UPFL). pool: all samples of the client, if its training
    part is drawn anew for every use (``split="resplit"``), else None. about: what sets this client apart (domain, corruption), in words.
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
        return replace(self, train=self.pool.at(index))

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

    transform: how images become inputs; in_shape: (channels, height, width) of an image; classes: their names, by label; dataset: name of
    the images actually used; stand_in: what they replace ("" if they are the paper's own); notes: stand-ins and options that every result
    of this benchmark has to carry; public: unlabelled images uint8 [m, C, H, W] that all clients hold, if any; stand_in_columns: tests that
    hold stand-ins even where the other images are the paper's own.
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
        """Class counts, clients x classes, of ``train``, ``val`` or a test column; only of the clients that have this test."""
        check_name(part, ("train", "val", *self.columns), "part")
        parts = {c.id: (getattr(c, part),) if part in ("train", "val") else c.tests.get(part, ())[:1] for c in self.clients}
        rows = {k: torch.bincount(samples.labels.cpu(), minlength=self.n_classes).numpy() for k, own in parts.items() for samples in own}
        return pd.DataFrame.from_dict(rows, orient="index", columns=list(self.classes)).rename_axis("client")


class Clients(Protocol):
    """How a paper makes clients: a frozen dataclass with ``build(seed, root)``, which gives the same clients for the same seed.

    A protocol of your own needs nothing else. Here four clients share the digits evenly, and each is tested on a fifth of what it holds:

    >>> import dataclasses, fedlib, torch
    >>> from fedlib.tools.seeding import generator
    >>> @dataclasses.dataclass(frozen=True)
    ... class Even:
    ...     n_clients: int = 4
    ...     def build(self, seed, root=None):
    ...         data = fedlib.load("digits", root)
    ...         images, labels = torch.from_numpy(data.images), torch.from_numpy(data.labels)
    ...         order, clients = torch.randperm(len(data), generator=generator(seed, "even clients")), []
    ...         for k, part in enumerate(order.chunk(self.n_clients)):
    ...             cuts = (len(part) // 5, 3 * len(part) // 10)
    ...             test, val, train = (fedlib.Samples(images[i], labels[i]) for i in part.tensor_split(cuts))
    ...             clients.append(fedlib.Client(k, train, val, {"original": (test,)}))
    ...         transform = fedlib.Transform(mean=(0.5,), std=(0.5,), augment="none")
    ...         return fedlib.Benchmark(tuple(clients), transform, data.images.shape[1:], data.classes, data.name, data.stand_in)
    >>> setting = fedlib.Setting("even", Even(), "mlp", fedlib.Schedule(rounds=2, local=fedlib.Local(lr=0.1)))
    >>> fedlib.run([setting], fedlib.recipes_of("fedthe", "FedAvg"), seeds=[0], cache=None)["n"].tolist()
    [90, 90, 90, 89]
    """

    def build(self, seed: int, root: str | None = None) -> Benchmark: ...


@dataclass(frozen=True)
class Local:
    """How one client trains in one phase.

    optimizer: ``sgd`` or ``adam``; lr: step size; epochs: passes over the data, or ``steps`` minibatches where that is not None; clip:
    largest gradient norm per client, None for no limit; smallest: a last batch with fewer images than this is skipped, unless it is the
    only one; decay: factor on ``lr`` per federated round; continued: epochs continue from round to round; diverged: whether a local update
    that is not finite is to ``raise`` an error or to ``drop`` out; milestone: epochs of a phase after which the rate falls to a tenth.

    >>> [Local(lr=0.1, epochs=4, milestone=2).rate(epoch) for epoch in range(4)]
    [0.1, 0.1, 0.01, 0.01]
    """

    optimizer: str = "sgd"
    lr: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 5e-4
    batch_size: int = 32
    epochs: int = 5
    steps: int | None = None
    clip: float | None = None
    smallest: int = 1
    decay: float = 1.0
    continued: bool = False
    diverged: str = "raise"
    milestone: int | None = None

    def __post_init__(self):
        check_name(self.optimizer, ("sgd", "adam"), "optimizer")
        check_name(self.diverged, ("raise", "drop"), "way to treat a diverged client")
        rates = 0 < self.lr < math.inf and 0 <= self.weight_decay < math.inf and 0 <= self.momentum < 1 and 0 < self.decay <= 1
        counts = [n for n in (self.batch_size, self.smallest, self.milestone, self.steps) if n is not None]
        clips, endless = self.clip is None or 0 < self.clip < math.inf, self.continued and self.milestone is not None
        if not rates or not clips or min(counts) < 1 or self.epochs < 0 or endless:
            limits = "lr > 0, clip too; batch_size >= 1, smallest, steps, milestone too; epochs, weight_decay >= 0; 0 <= momentum < 1"
            raise ValueError(f"out of range: {self} ({limits}; decay in (0, 1]; no milestone where epochs are continued)")

    def decayed(self, rate: float, round: int) -> float:
        """``rate`` in federated round ``round`` = 1, 2, ..."""
        return rate * self.decay ** (round - 1)

    def at(self, round: int, lr: float | None = None) -> "Local":
        """This phase in round 1, 2, ...; lr: its rate in round 1 (None: its own)."""
        return replace(self, lr=self.decayed(self.lr if lr is None else lr, round))

    def rate(self, epoch: int) -> float:
        """Step size in ``epoch`` = 0, 1, ... of a phase."""
        return self.lr if self.milestone is None or epoch < self.milestone else self.lr / 10


@dataclass(frozen=True)
class Schedule:
    """Rounds, the two local phases, and the share of clients in each round's cohort (0, 1]. save_every: rounds from one
    saved state of the server to the next (the last is always saved); persistent personal parts need all of them.

    >>> Schedule(rounds=10, local=Local(lr=0.1, batch_size=16, epochs=2), personal=Local(lr=0.1, epochs=1)).participation
    1.0
    """

    rounds: int = 100
    local: Local = Local()
    personal: Local = Local(epochs=1)
    participation: float = 1.0
    save_every: int = 1

    def __post_init__(self):
        if self.rounds < 1 or not 0 < self.participation <= 1 or self.save_every < 1:
            raise ValueError(f"out of range: {self} (rounds >= 1, participation in (0, 1], save_every >= 1)")


@dataclass(frozen=True)
class Task:
    """The network skeleton (whose own weights are never used), inputs, schedule, seed and engine of one run.

    chunk_size: clients trained in one stacked computation (1 = one by one); public: unlabelled images that all clients hold, if any;
    round: the round before which the evaluated state stands (0 while training); options, processes: of the engine
    (``fedlib.stages.engine.Engine``), which act in local training. The network is in evaluation mode except within ``training(model)``.
    """

    model: Net
    transform: Transform
    n_classes: int
    schedule: Schedule
    seed: int
    chunk_size: int = 1
    dtype: torch.dtype = torch.float32
    public: Tensor | None = None
    round: int = 0
    options: tuple[str, ...] = ()
    processes: int = 1
    _passes: dict = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self):
        self.model.eval()

    def __getstate__(self) -> dict:
        # A worker process gets no frozen passes: they are large, and of objects that it does not have.
        return vars(self) | {"_passes": {}}

    def generator(self, *purpose: str | int) -> torch.Generator:
        return generator(self.seed, *purpose)

    def inputs(self, images: Tensor) -> Tensor:
        return self.transform.normalise(images, self.dtype)

    @torch.no_grad()
    def predict(self, state: State, images: Tensor, batch_size: int = 200) -> tuple[Tensor, Tensor]:
        """Features [n, d] and logits [n, C] of uint8 images under ``state``, evaluation mode, without augmentation.

        Raises ValueError where ``state`` lacks a tensor of the network, whose own untrained one would take its place."""
        names = [name for name, _ in (*self.model.named_parameters(), *self.model.named_buffers())]
        # In evaluation mode nothing reads how many batches were seen.
        if absent := [name for name in names if name not in state and not name.endswith("num_batches_tracked")]:
            raise ValueError(f"a state without {', '.join(map(repr, absent))} cannot predict: the network has them")
        # Fast and, for images of several channels, with the same rounding for a state from training and one from a file.
        state = fast({name: state[name] for name in names if name in state})
        parts = [features_and_logits(self.model, state, self.inputs(batch)) for batch in images.split(batch_size)]
        features, logits = (torch.cat(part) for part in zip(*parts, strict=True))
        return features, logits

    def frozen(self, state: State, stream: Stream) -> tuple[Tensor, Tensor]:
        """``predict`` of a stream under a frozen state, computed once for all methods: copies, which a method may write into."""
        key = (id(state), id(stream), id(self.model), self.transform, self.dtype)
        if key not in self._passes:
            if len(self._passes) > 1024:
                self._passes.clear()
            # The objects are held, so that no other takes their place under these numbers.
            self._passes[key] = (state, stream, self.model, self.predict(state, stream.images))
        features, logits = self._passes[key][-1]
        return features.clone(), logits.clone()


@dataclass(frozen=True)
class Output:
    """scores: class scores [n, C] whose argmax is the prediction, or [predictors, n, C] where accuracy is the mean over several equally
    likely predictors; extras: what the paper plots, one value per sample [n, ...]."""

    scores: Tensor
    extras: dict[str, Tensor] = field(default_factory=dict)


class Adapter(Protocol):
    """A test-time method: reads the received model, the client's personal part and an unlabelled stream, and starts afresh with every
    stream: what it writes into itself is gone. In any stage, ``needs_batch_norm = True`` of a method that cannot work without batch norm,
    and ``refuses_batch_norm = True`` of one that cannot work with it, have unsuitable networks refused before training; ``needs_square =
    True`` has images that are not square refused, ``needs_positive = True`` networks with negative features; what else is wrong with a
    network, a method ``check_network`` says, which gets it. ``together`` of an adapter tells the comparison which images have to be there
    before the first answer: "one", "batch" or "stream" (taken for granted where it is not said)."""

    version: int

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output: ...


class TrainMethod(Protocol):
    """A federated training method: pure functions on an explicit server state. A method whose rounds depend on their total number, or
    whose client groups are read after training, has the attribute ``whole_run = True``."""

    version: int

    def init(self, task: Task, clients: Sequence[Client]) -> Server: ...

    def update(self, task: Task, server: Server, cohort: Sequence[Client], round: int) -> list[State]: ...

    def aggregate(self, task: Task, server: Server, messages: list[State], cohort: Sequence[Client], round: int) -> Server: ...


class Personalizer(Protocol):
    """Fits a personal part for every client from its labelled data and the model it received in a round. ``persistent``: the part lives
    through all rounds, with a phase in each, replayed over the received models; otherwise only the evaluated round is fitted, from
    ``init``. Optional: ``carries``, name prefixes of what the next round reads of a persistent part, if that is not all of it; ``advance``,
    as ``fit``, which gives no more than that where it takes less work, for rounds that are not evaluated; ``needs``, some of
    ``fedlib.stages.checks.NEEDS``, what clients must bring (default: labelled images of the tested client)."""

    persistent: bool
    version: int

    def init(self, task: Task, clients: Sequence[Client]) -> State: ...

    def fit(self, task: Task, received: Sequence[State], clients: Sequence[Client], personal: State, round: int) -> State: ...


@dataclass(frozen=True)
class NoAdapt:
    """Predicts every sample with the received model, in which the client's personal parts replace the model's own."""

    version: int = 1

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        has_parts = any(name.startswith("model.") for name in personal)
        return Output((task.predict(overlay(state, personal), stream.images) if has_parts else task.frozen(state, stream))[1])


class Oracle(Protocol):
    """A choice that needs the labels of a test, made where scores meet labels: an upper bound, not a method. ``choose`` reads an output on
    the test ``column`` and its labels, ``scores`` gives the class scores [n, C] of any output of that client under the choice."""

    column: str

    def choose(self, output: Output, labels: Tensor) -> float: ...

    def scores(self, output: Output, choice: float) -> Tensor: ...


@dataclass(frozen=True)
class Recipe:
    """The three stages of a named method with their hyperparameters. costly: adapts sample by sample with gradients, so that notebooks
    may cut its streams (and then say so); oracle: what is chosen with labels of the test, if anything. FedTHE on plain training:

    >>> import fedlib
    >>> fedavg, fedthe = fedlib.recipes_of("fedthe", "FedAvg", "FedTHE").values()
    >>> mine = fedlib.Recipe(fedavg.train, fedthe.personalize, fedthe.adapt)
    """

    train: TrainMethod
    personalize: Personalizer | None = None
    adapt: Adapter = NoAdapt()
    costly: bool = False
    oracle: Oracle | None = None
