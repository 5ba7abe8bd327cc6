"""BRFL on ImageNet at 32 x 32: ImageNet-A, -V2 and -R take the place of corruptions, other clients and CIFAR-10.1 (FedTHE, section 5).

Partition, splits and the share of every client in a shifted set are BRFL's; with equal data, clients, alpha and seed the clients are the
same, so that one training serves both. ``mixture`` draws as many images as the local test has, without replacement, from the four tests.

Paper and code: the code's mixture also draws from a corrupted local test; the paper's four are used, and its 300 rounds (the code: 100).

Stand-ins for the embedded digits: -V2 is the printed set ``digits_natural``, -A other images of it under the severest corruptions, -R the
coloured printed digits of ``digits5`` in grey. None of them shares an image with the training pool.
"""

from dataclasses import dataclass, replace

import numpy as np

from fedlib.core import Benchmark, Client, Samples
from fedlib.data import load
from fedlib.data.corruptions.common import grey
from fedlib.data.dataset import Dataset
from fedlib.data.partition import natural_split
from fedlib.protocols import shifts
from fedlib.protocols.shifts import corrupted, select
from fedlib.samples import joined
from fedlib.tools.names import check_name
from fedlib.tools.seeding import numpy_generator

SHIFTED = ("imagenet_a", "imagenet_v2", "imagenet_r")
STAND_IN_SIZE = 300
IMAGES = ("imagenet32", "digits")  # data sets with three natural shifts


@dataclass(frozen=True)
class BRFLImageNet:
    """dataset: ``imagenet32``, or ``digits`` with the stand-ins above; the rest as in ``fedlib.protocols.brfl.BRFL``.

    >>> BRFLImageNet("digits", n_clients=4).build(seed=0).columns
    ['original', 'imagenet_a', 'imagenet_v2', 'imagenet_r', 'mixture']
    """

    dataset: str = "imagenet32"
    n_clients: int = 20
    alpha: float = 1.0
    split: str = "fixed"
    augment: str = "batch"
    partition_seed: int | None = None

    def __post_init__(self):
        check_name(self.dataset, IMAGES, "data set with three natural shifts")
        shifts.check_fields(self)

    def build(self, seed: int, root: str | None = None) -> Benchmark:
        """Clients of one seed. Raises FileNotFoundError where a data set is missing. A client without images of a shifted set lacks it."""
        pool = shifts.training_pool(load(self.dataset, root))
        parts = shifts.partitioned(pool, self.n_clients, self.alpha, seed, self.partition_seed)
        shifted = {name: load(name, root) for name in SHIFTED} if self.dataset == "imagenet32" else _digits(seed)
        shares = {name: natural_split(shifts.class_counts(pool, parts), images.labels) for name, images in shifted.items()}
        clients = []
        for k, (train, val, test) in enumerate(shifts.local_cuts(parts, seed)):
            tests = {"original": select(pool, test)} | {name: select(shifted[name], shares[name][k]) for name in SHIFTED}
            whole = select(pool, parts[k]) if self.split == "resplit" else None
            clients.append(Client(k, select(pool, train), select(pool, val), _streams(tests, seed, k), pool=whole))
        stand_in, note = ("", "") if self.dataset == "imagenet32" else ("ImageNet-32", "imagenet_a, imagenet_v2, imagenet_r: stand-ins")
        return shifts.benchmark(self, pool, clients, note, stand_in=stand_in)


def _streams(tests: dict[str, Samples], seed: int, client: int) -> dict[str, tuple[Samples, ...]]:
    """The tests of one client and their mixture, each in the order of its stream; empty ones left out."""
    everything = joined(*tests.values())
    chosen = numpy_generator(seed, "mixture", client).permutation(len(everything))[: len(tests["original"])]
    tests = tests | {"mixture": everything.at(chosen)}
    return shifts.in_random_order({column: (samples,) for column, samples in tests.items() if len(samples)}, seed, client)


def _digits(seed: int) -> dict[str, Dataset]:
    """The stand-ins for the three shifted sets: grey [300, 1, 16, 16], balanced over the classes."""
    printed, domains = load("digits_natural"), load("digits5")
    coloured = domains.select(domains.groups == domains.group_names.index("fonts"))
    rng = numpy_generator(seed, "shifted sets")
    n = STAND_IN_SIZE // len(printed.classes)
    of_class = [rng.permutation(np.flatnonzero(printed.labels == c)) for c in range(len(printed.classes))]
    second = printed.select(np.concatenate([index[:n] for index in of_class]))
    hard = printed.select(np.concatenate([index[n : 2 * n] for index in of_class]))
    spoilt = corrupted(select(hard, np.arange(len(hard))), 5, rng)
    renditions = [rng.permutation(np.flatnonzero(coloured.labels == c))[:n] for c in range(len(coloured.classes))]
    return {
        "imagenet_a": replace(hard, images=spoilt.images.numpy()),
        "imagenet_v2": second,
        "imagenet_r": replace(coloured, images=np.rint(grey(coloured.images)).astype(np.uint8)).select(np.concatenate(renditions)),
    }
