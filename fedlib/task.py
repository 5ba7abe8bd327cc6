"""What every stage of a method is told: the network, the inputs, the schedule, the seed."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.func import functional_call

from fedlib.clients import Stream
from fedlib.models import Net
from fedlib.names import check_name
from fedlib.seeding import generator
from fedlib.transform import Transform

State = dict[str, Tensor]


@dataclass(frozen=True)
class Local:
    """How one client trains in one phase.

    optimizer: ``sgd`` or ``adam``; lr: step size; epochs: passes over the data, or ``steps`` minibatches where that is not None; clip:
    largest gradient norm per client, None for no limit; smallest: a last batch with fewer images than this is skipped, unless it is the
    only one; decay: factor on ``lr`` per federated round; continued: epochs go on from round to round, as a data loader that lives on does;
    diverged: what a local update that is no longer finite does, ``raise`` an error or ``drop`` out of its round; milestone: after so many
    epochs of a phase the rate falls to a tenth, None for never.
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
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay must lie in (0, 1], got {self.decay}")
        if self.milestone is not None and self.milestone < 1:
            raise ValueError(f"milestone must be at least 1 epoch, got {self.milestone}")
        rates = 0 < self.lr < math.inf and 0 <= self.weight_decay < math.inf and 0 <= self.momentum < 1
        if not rates or min(self.batch_size, self.smallest) < 1 or self.epochs < 0:
            limits = "lr > 0, batch_size >= 1, smallest >= 1, epochs >= 0, weight_decay >= 0, 0 <= momentum < 1"
            raise ValueError(f"out of range: {self} ({limits})")

    def decayed(self, rate: float, round: int) -> float:
        """``rate`` in federated round ``round`` = 1, 2, ..."""
        return rate * self.decay ** (round - 1)

    def rate(self, epoch: int) -> float:
        """Step size in ``epoch`` = 0, 1, ... of a phase."""
        return self.lr if self.milestone is None or epoch < self.milestone else self.lr / 10


@dataclass(frozen=True)
class Schedule:
    """Rounds, the two local phases, and the share of clients in each round's cohort (0, 1].

    save_every: the server's state is kept after every so many rounds, and after the last; personal side-cars need every one of them.
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
    """Network skeleton (its own weights are never used), inputs, schedule, seed and engine of one run.

    chunk_size: clients trained in one stacked computation (1 = one by one); public: unlabelled images that all clients hold, if any;
    round: the round before which the evaluated state stands (0 while training); options: of the engine (``fedlib.engine.Engine``),
    which act in local training. ``frozen`` keeps the latest pass over a stream under a
    frozen state, so that methods that only read features share it.
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
    _passes: dict = field(default_factory=dict, repr=False, compare=False)

    def generator(self, *purpose: str | int) -> torch.Generator:
        return generator(self.seed, *purpose)

    def inputs(self, images: Tensor) -> Tensor:
        return self.transform.normalise(images, self.dtype)

    @torch.no_grad()
    def predict(self, state: State, images: Tensor, batch_size: int = 200) -> tuple[Tensor, Tensor]:
        """Features [n, d] and logits [n, C] of uint8 images under ``state``, evaluation mode, without augmentation."""
        self.model.eval()
        extractor, head = part(state, "extractor."), part(state, "head.")
        if images.device.type == "cpu":
            # Twice as fast there, and the same rounding for a state that comes from training and one that comes from a file.
            extractor = {n: t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t for n, t in extractor.items()}
        features, logits = [], []
        for batch in images.split(batch_size):
            features.append(functional_call(self.model.extractor, extractor, self.inputs(batch)))
            logits.append(functional_call(self.model.head, head, features[-1]))
        return torch.cat(features), torch.cat(logits)

    def frozen(self, state: State, stream: Stream) -> tuple[Tensor, Tensor]:
        """``predict`` of a stream, computed once per (state object, stream object). Copies, which a method may write into."""
        key = (id(state), id(stream))
        if key not in self._passes:
            if len(self._passes) > 1024:
                self._passes.clear()
            self._passes[key] = (state, stream, self.predict(state, stream.images))
        features, logits = self._passes[key][2]
        return features.clone(), logits.clone()


def part(state: State, prefix: str) -> State:
    """The entries of ``state`` whose names begin with ``prefix``, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


def overlay(state: State, personal: State) -> State:
    """``state`` with the personal parts (entries ``model.<name>`` of ``personal``) in place of its own."""
    return state | part(personal, "model.")
