"""A network pretrained on some domains and transferred to another: the small stand-in for FedTHE's study of LP, FT and LP-FT.

FedTHE's Figures 6 and 7 transfer a ResNet-50, pretrained without labels on ImageNet, to CIFAR-10 and test it on CIFAR-10-C, CIFAR-10.1
and STL-10. Here the domains of ``digits5`` that are named ``pretraining`` are the source clients, and one client without part in that
holds the handwritten domain ``plain``. Its tests: ``original`` (the domain's test part), ``corrupted`` (the same images), ``natural``
(printed digits, ``digits_natural``) and ``domain`` (the domain ``lowres``, in no training). No image is in two domains.
"""

from dataclasses import dataclass, replace

import numpy as np

from fedlib.augment.transform import transform_for
from fedlib.core import Benchmark, Client
from fedlib.data import load
from fedlib.data.dataset import Dataset
from fedlib.protocols.shifts import corrupted, in_random_order, select
from fedlib.tools.names import check_name
from fedlib.tools.seeding import numpy_generator

TARGET, HELD_OUT = "plain", "lowres"
PRETRAINING = ("clutter", "fonts", "blend")


@dataclass(frozen=True)
class Downstream:
    """pretraining: domains of ``digits5``, one source client each; severity: 1..5 of the corrupted test.

    >>> benchmark = Downstream().build(seed=0)
    >>> [client.source for client in benchmark.clients], benchmark.columns
    ([True, True, True, False], ['original', 'corrupted', 'natural', 'domain'])
    """

    pretraining: tuple[str, ...] = PRETRAINING
    severity: int = 5

    def __post_init__(self):
        for domain in self.pretraining:
            check_name(domain, PRETRAINING, "pretraining domain")
        if not self.pretraining or self.severity not in range(1, 6):
            raise ValueError(f"out of range: {self} (at least one pretraining domain, severity 1..5)")

    def build(self, seed: int, root: str | None = None) -> Benchmark:
        data, printed = load("digits5"), load("digits_natural")
        clients = [Client(k, *_parts(data, domain, seed)) for k, domain in enumerate(self.pretraining)]
        target = np.flatnonzero((data.groups == data.group_names.index(TARGET)) & data.is_test)
        original = select(data, target)
        rng = numpy_generator(seed, "downstream")
        tests = {
            "original": original,
            "corrupted": corrupted(original, self.severity, rng),
            "natural": select(_coloured(printed), rng.permutation(len(printed))[:400]),
            "domain": select(data, np.flatnonzero(data.groups == data.group_names.index(HELD_OUT))),
        }
        streams = in_random_order({name: (samples,) for name, samples in tests.items()}, seed, len(clients))
        clients.append(Client(len(clients), *_parts(data, TARGET, seed), streams, source=False))
        in_shape = tuple(data.images.shape[1:])
        return Benchmark(tuple(clients), transform_for(data.name, 3), in_shape, data.classes, data.name, "CIFAR-10 and STL-10")


def _parts(data: Dataset, domain: str, seed: int):
    """Training and validation part of a domain's official training images, nine to one."""
    index = np.flatnonzero((data.groups == data.group_names.index(domain)) & ~data.is_test)
    index = numpy_generator(seed, "downstream", domain).permutation(index)
    cut = len(index) * 9 // 10
    return select(data, index[:cut]), select(data, index[cut:])


def _coloured(grey: Dataset) -> Dataset:
    """A grey data set with three equal channels."""
    return replace(grey, images=np.repeat(grey.images, 3, axis=1))
