"""What the benchmarks BRFL (FedTHE) and BTGFL (BTFL) share: partition, local splits, natural shift, corrupted copies. And how tests of
most protocols become streams.

For equal data, clients, alpha and seed both have the same clients, splits and training order, so that one training serves both.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from fedlib.augment.transform import AUGMENT, transform_for
from fedlib.core import Benchmark, Client, Samples
from fedlib.data import about, load, recorded
from fedlib.data.corruptions import SOURCE_KINDS, corrupt_each
from fedlib.data.dataset import Dataset
from fedlib.data.partition import dirichlet
from fedlib.tools.names import check_name
from fedlib.tools.seeding import derive, numpy_generator

SPLITS = ("fixed", "resplit")
LEAK = "resplit: test images leak into training"

Cut = tuple[np.ndarray, np.ndarray, np.ndarray]


def training_pool(data: Dataset) -> Dataset:
    """The official training images; all of them where the source has no official split, or another set is the shift of a small one. Of a
    user's domains, those that are not held out."""
    record = recorded(data.name)
    if record.own and data.group_names:
        return data.select(data.groups != len(data.group_names) - 1)
    return data if data.is_test is None or record.pooled else data.select(~data.is_test)


def check_partition_seed(state: int | None) -> None:
    """Raise ValueError unless ``state`` is None or a seed that NumPy's RandomState takes."""
    if state is not None and not 0 <= state < 2**32:
        raise ValueError(f"partition_seed must be None or a whole number from 0 to {2**32 - 1}, got {state}")


def check_fields(protocol: object) -> None:
    """Raise ValueError for a field of BRFL, of its ImageNet form or of BTGFL that is out of range."""
    check_name(protocol.split, SPLITS, "split")
    check_name(protocol.augment, AUGMENT, "augmentation")
    check_partition_seed(getattr(protocol, "partition_seed", None))
    severity, draws = getattr(protocol, "severity", 1), getattr(protocol, "corruption_draws", 1)
    natural = getattr(protocol, "natural_size", None)
    if not 0 < protocol.alpha < math.inf or protocol.n_clients < 2 or severity not in range(1, 6) or draws < 1:
        raise ValueError(f"out of range: {protocol} (alpha > 0, n_clients >= 2, severity 1..5, corruption_draws >= 1)")
    if natural is not None and natural < 1:
        raise ValueError(f"natural_size must be at least 1, got {natural}")


def partitioned(pool: Dataset, n_clients: int, alpha: float, seed: int, state: int | None = None) -> list[np.ndarray]:
    """BRFL's Dirichlet draw; ``state``: seed of its RandomState in place of one derived from ``seed``. Raises ValueError where it would
    leave under 10 images for a client."""
    # All clients hold equally many; a draw that cannot be used may take thousands of attempts.
    if len(pool) // n_clients < 10:
        raise ValueError(f"{len(pool)} images leave under 10 for a client: lower n_clients={n_clients} or use a larger data set")
    return dirichlet(pool.labels, n_clients, alpha, np.random.RandomState(derive(seed, "partition") % 2**32 if state is None else state))


def local_cuts(parts: list[np.ndarray], seed: int, train_size: float = 1.0) -> list[Cut]:
    """Training, validation and test part of every client: 60/20/20 with the code's rounding (2,500 -> 1,500 / 499 / 500), the training
    part cut to ``train_size``."""
    rng = numpy_generator(seed, "split")
    cuts = []
    for index in map(rng.permutation, parts):
        n = len(index)
        train, val, test = int(0.6 * n), int((1 - (0.6 + 0.2)) * n), int(0.2 * n)
        cuts.append((index[: max(1, int(train_size * train))], index[train : train + val], index[train + val : train + val + test]))
    return cuts


def natural_shift(data: Dataset, dataset: str, size: int | None, seed: int, root: str | None) -> tuple[Dataset, str]:
    """The natural-shift set of ``dataset``, cut to a class-balanced ``size`` (None: whole), and a note where it is a stand-in.

    Of a user's data the domain that is held out; without domains no image, since nothing can stand in for a shift that is not known.
    Raises FileNotFoundError where it is absent and the data have no official test part to stand in.
    """
    record = about(dataset)
    if record.own:
        shifted = data.select(data.groups == len(data.group_names) - 1) if record.domains else data.select(np.arange(0))
        return shifted, f"natural: the held-out domain {record.held_out}" if record.domains else record.lacks("natural shift")
    name, note = record.natural, ""
    try:
        shifted = load(name, root) if name else None
    except FileNotFoundError:
        if data.is_test is None:
            raise
        shifted = None
    if shifted is None:
        if data.is_test is None:
            raise FileNotFoundError(f"no natural-shift set is known for {dataset!r}, and it has no official test part to stand in")
        shifted = data.select(data.is_test)
        part = "a balanced part of " if size is not None else ""
        note = f"natural: stand-in, {part}{data.name}'s official test set (no shift){', for CIFAR-10.1' if name else ''}"
    if size is None:
        return shifted, note
    rng, per_class = numpy_generator(seed, "natural"), size // len(shifted.classes)
    chosen = [rng.permutation(np.flatnonzero(shifted.labels == c))[:per_class] for c in range(len(shifted.classes))]
    return shifted.select(np.concatenate(chosen)), note


def corrupted(samples: Samples, severity: int, rng: np.random.Generator, kinds: Sequence[str] = SOURCE_KINDS) -> Samples:
    """One of ``kinds`` per sample, uniform, at ``severity``; kind and noise depend on the generator and the sample's place alone."""
    chosen = [kinds[i] for i in rng.integers(len(kinds), size=len(samples))]
    seeds = rng.integers(2**63, size=len(samples))
    images = corrupt_each(samples.images.numpy(), chosen, [severity] * len(samples), seeds)
    return Samples(torch.from_numpy(images), samples.labels, samples.identity)


def class_counts(pool: Dataset, parts: list[np.ndarray]) -> np.ndarray:
    """Images of every client and class, [clients, classes]."""
    return np.stack([np.bincount(pool.labels[p], minlength=len(pool.classes)) for p in parts])


def select(data: Dataset, index: np.ndarray) -> Samples:
    """The images and labels of a data set at ``index``."""
    return Samples(torch.from_numpy(data.images[index]), torch.from_numpy(data.labels[index]))


def benchmark(protocol: object, pool: Dataset, clients: Sequence[Client], note: str, **fields) -> Benchmark:
    """The ``clients`` of BRFL, of its ImageNet form or of BTGFL. note: on the shifted images, "" for none; fields: of the benchmark,
    where they are not the pool's."""
    notes = tuple(said for said in (note, LEAK if protocol.split == "resplit" else "") if said)
    shape = tuple(pool.images.shape[1:])
    told = {"dataset": pool.name, "stand_in": pool.stand_in, "notes": notes} | fields
    transform = transform_for(protocol.dataset, shape[0], protocol.augment, getattr(protocol, "domain", None))
    return Benchmark(tuple(clients), transform, shape, pool.classes, **told)


def in_random_order(tests: Mapping[str, Sequence[Samples]], seed: int, client: int) -> dict[str, tuple[Samples, ...]]:
    """The tests of a client (column -> draws) in the order of their streams. Each is permuted by a generator of its own, which no other
    test moves: files that are sorted by class would otherwise give streams of one class at a time."""

    def ordered(samples: Samples, column: str, draw: int) -> Samples:
        return samples.at(numpy_generator(seed, "order", column, client, draw).permutation(len(samples)))

    return {column: tuple(ordered(samples, column, draw) for draw, samples in enumerate(draws)) for column, draws in tests.items()}
