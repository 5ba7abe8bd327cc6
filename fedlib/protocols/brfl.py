"""BRFL, the benchmark of FedTHE: five test streams per client, each a different shift.

Section 5 and appendix D of FedTHE. The pool (official training images) is cut by the Dirichlet draw into clients of equal size, each
client into 60 % training, 20 % validation and 20 % test samples. Tests: ``original`` (the local test part), ``corrupted`` (the same
samples, one of 15 corruptions each), ``ooc`` (others' test parts), ``natural`` (a shifted data set split by the client's class counts)
and ``mixture`` (equal numbers of all four). ``corrupted_ooc`` corrupts the out-of-client samples.

Paper and code: the published code draws the 60/20/20 split anew at every use, so that test images leak into training. ``split="fixed"``
(default) draws it once per seed; ``split="resplit"`` reproduces the leak, and every result made with it says so.
"""

from dataclasses import dataclass

import numpy as np
import torch

from fedlib.clients import Benchmark, Client, Samples
from fedlib.data import load
from fedlib.data.corruptions import SOURCE_KINDS, corrupt_each
from fedlib.data.dataset import Dataset
from fedlib.data.partition import dirichlet, natural_split
from fedlib.names import check_name
from fedlib.seeding import derive, numpy_generator
from fedlib.transform import AUGMENT, transform_for

COLUMNS = ("original", "corrupted", "ooc", "natural", "mixture", "corrupted_ooc")
NATURAL = {"digits": "digits_natural", "cifar10": "cifar10_1", "cifar10_jpeg": "cifar10_1"}


@dataclass(frozen=True)
class BRFL:
    """dataset: name for ``fedlib.data.load``; alpha: Dirichlet concentration; split: ``fixed`` or ``resplit``; severity: 1..5;
    corruption_draws: passes over the corrupted test, averaged (the code takes two); natural_size: shifted images in all; train_size,
    test_size: share (0, 1] of each client's training part and tests that is kept.
    """

    dataset: str = "digits"
    n_clients: int = 20
    alpha: float = 0.1
    split: str = "fixed"
    severity: int = 5
    corruption_draws: int = 2
    natural_size: int = 2000
    train_size: float = 1.0
    test_size: float = 1.0
    columns: tuple[str, ...] = COLUMNS[:5]
    augment: str = "batch"

    def __post_init__(self):
        check_name(self.split, ("fixed", "resplit"), "split")
        check_name(self.augment, AUGMENT, "augmentation")
        for column in self.columns:
            check_name(column, COLUMNS, "test column")
        if self.alpha <= 0 or self.n_clients < 2 or self.severity not in range(1, 6) or self.corruption_draws < 1:
            raise ValueError(f"out of range: {self} (alpha > 0, n_clients >= 2, severity 1..5, corruption_draws >= 1)")
        if not (0 < self.train_size <= 1 and 0 < self.test_size <= 1):
            raise ValueError(f"train_size and test_size must lie in (0, 1], got {self.train_size} and {self.test_size}")

    def build(self, seed: int, root: str | None = None) -> Benchmark:
        """Clients of one seed. Raises FileNotFoundError for a missing data set, ValueError where clients would hold too few samples."""
        data = load(self.dataset, root)
        pool = data if data.is_test is None or self.dataset == "digits" else data.select(~data.is_test)
        parts = dirichlet(pool.labels, self.n_clients, self.alpha, np.random.RandomState(derive(seed, "partition") % 2**32))
        if min(len(p) for p in parts) < 10:
            raise ValueError(f"{len(pool)} images leave under 10 for a client: lower n_clients={self.n_clients} or use a larger data set")
        shifted, natural_note = self._shifted(data, root, seed)
        histograms = np.stack([np.bincount(pool.labels[p], minlength=len(pool.classes)) for p in parts])
        naturals = natural_split(histograms, shifted.labels)

        rng = numpy_generator(seed, "split")
        cuts = [self._cut(rng.permutation(p)) for p in parts]
        tests = [test for _, _, test in cuts]
        clients = []
        for k, (train, val, _) in enumerate(cuts):
            streams = self._streams(k, pool, tests, shifted.select(naturals[k]), seed)
            whole = _samples(pool, parts[k]) if self.split == "resplit" else None
            clients.append(Client(k, _samples(pool, train), _samples(pool, val), streams, pool=whole))
        notes = tuple(note for note in (natural_note, self.split == "resplit" and "resplit: test images leak into training") if note)
        in_shape = tuple(pool.images.shape[1:])
        transform = transform_for(self.dataset, in_shape[0], self.augment)
        return Benchmark(tuple(clients), transform, in_shape, pool.classes, data.name, data.stand_in, notes)

    def _cut(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """60/20/20 with the code's rounding (2,500 -> 1,500 / 499 / 500), the training part cut to ``train_size``."""
        n = len(index)
        train, val, test = int(0.6 * n), int((1 - (0.6 + 0.2)) * n), int(0.2 * n)
        return index[: max(1, int(self.train_size * train))], index[train : train + val], index[train + val : train + val + test]

    def _shifted(self, data: Dataset, root: str | None, seed: int) -> tuple[Dataset, str]:
        """The natural-shift set, cut to a class-balanced ``natural_size``, and a note where it is a stand-in."""
        name, note = NATURAL.get(self.dataset), ""
        try:
            shifted = load(name, root) if name else None
        except FileNotFoundError:
            shifted = None
        if shifted is None:
            if data.is_test is None:
                raise FileNotFoundError(f"no natural-shift set is known for {self.dataset!r}, and it has no official test part to stand in")
            shifted = data.select(data.is_test)
            note = f"natural: stand-in, a balanced part of {data.name}'s official test set (no shift), for CIFAR-10.1"
        rng, per_class = numpy_generator(seed, "natural"), self.natural_size // len(shifted.classes)
        chosen = [rng.permutation(np.flatnonzero(shifted.labels == c))[:per_class] for c in range(len(shifted.classes))]
        return shifted.select(np.concatenate(chosen)), note

    def _streams(self, k: int, pool: Dataset, tests: list[np.ndarray], natural: Dataset, seed: int) -> dict[str, tuple[Samples, ...]]:
        """The tests of client k, each in the order of its stream."""
        rng = numpy_generator(seed, "streams", k)
        original = _samples(pool, tests[k])
        others = np.concatenate([test for j, test in enumerate(tests) if j != k])
        ooc = _samples(pool, rng.choice(others, len(others) // (self.n_clients - 1), replace=False))
        draws = range(self.corruption_draws)
        sources = {
            "original": (original,),
            "corrupted": tuple(self._corrupted(original, seed, "corrupted", k, draw) for draw in draws),
            "ooc": (ooc,),
            "natural": (_samples(natural, np.arange(len(natural))),),
        }
        n = min(len(samples) for (samples, *_) in sources.values())
        parts = [_pick(samples, rng.permutation(len(samples))[:n]) for (samples, *_) in sources.values()]
        sources["mixture"] = (Samples(torch.cat([p.images for p in parts]), torch.cat([p.labels for p in parts])),)
        if "corrupted_ooc" in self.columns:
            sources["corrupted_ooc"] = (self._corrupted(ooc, seed, "corrupted_ooc", k, 0),)
        return {column: tuple(self._ordered(s, seed, column, k, draw) for draw, s in enumerate(sources[column])) for column in self.columns}

    def _ordered(self, samples: Samples, seed: int, column: str, client: int, draw: int) -> Samples:
        """The stream's order, cut to ``test_size``; it depends on no other column."""
        order = numpy_generator(seed, "order", column, client, draw).permutation(len(samples))
        return _pick(samples, order[: max(1, round(self.test_size * len(samples)))])

    def _corrupted(self, samples: Samples, seed: int, column: str, client: int, draw: int) -> Samples:
        """One of the 15 kinds per sample, uniform, at ``severity``; kind and noise depend on (seed, column, client, draw, sample) alone."""
        rng = numpy_generator(seed, column, client, draw)
        kinds = [SOURCE_KINDS[i] for i in rng.integers(len(SOURCE_KINDS), size=len(samples))]
        seeds = rng.integers(2**63, size=len(samples))
        images = corrupt_each(samples.images.numpy(), kinds, [self.severity] * len(samples), seeds)
        return Samples(torch.from_numpy(images), samples.labels)


def _samples(data: Dataset, index: np.ndarray) -> Samples:
    return Samples(torch.from_numpy(data.images[index]), torch.from_numpy(data.labels[index]))


def _pick(samples: Samples, index: np.ndarray) -> Samples:
    return Samples(samples.images[index], samples.labels[index])
