"""FedICON's clients: every client holds images of one domain, and meets them corrupted, or meets a domain that no client has seen.

Section 5.1 of FedICON. ``covariate``: a client's test is its own domain's, each image with one of 15 corruptions at severity 5, drawn once
and with the same seed in every run. ``domain``: one domain is held out; every client is tested on all of its test images. Test columns are
named after the domain tested on. (The third, attribute shift, is FedTHE's benchmark with its natural shift: ``fedlib.protocols.brfl``.)

Paper and code: no code is public. The published digits show the test sets: the first 200 images of each class for Digit-5, all test images
for Office-10. Training images: 743 of each Digit-5 domain and 50 per class of each Office-10 domain are inferred from the code of FedBN and
FedPCL (FedBN's own first 62 of Office are not offered). Sets without an official test part are split 80/20 within domain and class with
seed 0. Corruptions act on images of the network's size. Streams are in a random order, the same in every run.
"""

from dataclasses import dataclass

import numpy as np

from fedlib.augment.transform import Transform
from fedlib.core import Benchmark, Client, Samples
from fedlib.data import about, load, recorded
from fedlib.data.dataset import Dataset
from fedlib.data.partition import stratified
from fedlib.protocols.shifts import corrupted, in_random_order, select
from fedlib.tools.names import check_name
from fedlib.tools.seeding import numpy_generator

SHIFTS = ("covariate", "domain")
SIZES = {"digits5_fedbn": 32}  # of sets whose own size is not the network's


@dataclass(frozen=True)
class Domains:
    """dataset: name for ``fedlib.data.load``, with domains as groups; shift: ``covariate`` or ``domain``; held_out: domain that nobody
    trains on (``domain``); only: a single domain that all clients share (None: all of them); domains: how many of the data set's first
    domains take part (None: all); n_clients: a multiple of the number of domains trained on (None: one each), which split their images and
    tests evenly; n_train: training images per domain, or per class and domain with ``per_class``; n_test: test images per class and domain;
    None: all there are; severity: 1..5, of ``covariate``'s corruptions.

    One client for each domain, tested on its own images, corrupted; or all tested on a domain that none of them has seen:

    >>> [client.about for client in Domains("digits5").build(seed=0).clients]
    ['plain', 'clutter', 'lowres', 'fonts', 'blend']
    >>> Domains("digits5", "domain", held_out="blend").build(seed=0).columns
    ['blend']
    """

    dataset: str = "digits5"
    shift: str = "covariate"
    held_out: str | None = None
    only: str | None = None
    domains: int | None = None
    n_clients: int | None = None
    n_train: int | None = 743
    per_class: bool = False
    n_test: int | None = 200
    severity: int = 5

    def __post_init__(self):
        check_name(self.shift, SHIFTS, "shift")
        if (self.shift == "domain") != (self.held_out is not None):
            raise ValueError(f"held_out names the domain left out where shift is 'domain', got {self.shift!r} and {self.held_out!r}")
        for name in ("n_clients", "n_train", "n_test", "domains"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1 or None, got {value}")
        if self.severity not in range(1, 6):
            raise ValueError(f"severity must be one of 1..5, got {self.severity}")

    def build(self, seed: int, root: str | None = None) -> Benchmark:
        """The clients, the same for every ``seed``. Raises FileNotFoundError for a missing data set, ValueError for unknown domains,
        numbers of clients that do not fit, and too few images."""
        sizes = {"size": SIZES[self.dataset]} if self.dataset in SIZES else {}
        data = load(self.dataset, root, **sizes)
        if data.groups is None:
            raise ValueError(f"{self.dataset!r} has no domains: FedICON's clients need a data set with groups, such as digits5 or pacs")
        names = data.group_names[: self.domains]
        for name in (self.held_out, self.only):
            if name is not None:
                check_name(name, names, f"domain of {self.dataset}")
        trained = [name for name in names if name != self.held_out and self.only in (None, name)]
        if not trained:
            told = f"domains={self.domains}, held_out={self.held_out!r}, only={self.only!r}"
            raise ValueError(f"no domain of {self.dataset} is left to train on: {told}")
        n_clients = self.n_clients or len(trained)
        if n_clients % len(trained):
            raise ValueError(f"{n_clients} clients cannot share {len(trained)} domains evenly: take a multiple of {len(trained)}")
        tests = {name: self._test(data, name) for name in ([self.held_out] if self.held_out else trained)}
        clients = []
        for k in range(n_clients):
            name, part, of = trained[k % len(trained)], k // len(trained), n_clients // len(trained)
            train = select(data, self._train_index(data, name)[part::of])
            column = self.held_out or name
            whole = tests[column]
            test = whole if self.held_out else whole.at(np.arange(part, len(whole), of))
            if not len(train) or not len(test):
                raise ValueError(f"client {k} of {n_clients} would hold {len(train)} training and {len(test)} test images of {name!r}")
            # Whoever meets the same images meets them in the same order.
            streams = in_random_order({column: (test,)}, 0, 0 if self.held_out else k)
            clients.append(Client(k, train, train.head(0), streams, about=name))
        in_shape = tuple(data.images.shape[1:])
        return Benchmark(
            tuple(clients), transform_of_domains(self.dataset, in_shape[0], self.held_out), in_shape, data.classes, data.name, data.stand_in
        )

    def _test(self, data: Dataset, domain: str) -> Samples:
        """The test images of a domain, corrupted where that is the shift."""
        samples = select(data, _first_per_class(data, _parts(data, domain)[1], self.n_test))
        if self.shift == "domain":
            return samples
        return corrupted(samples, self.severity, numpy_generator(0, "fedicon corruption", data.name, domain))

    def _train_index(self, data: Dataset, domain: str) -> np.ndarray:
        """The training images of a domain, in random order but for files that are in one already, as FedBN takes them (image folders are
        sorted by class)."""
        index = _parts(data, domain)[0]
        if self.per_class:
            index = _first_per_class(data, index, self.n_train)
        if not recorded(data.name).shuffled or data.is_test is None:
            index = numpy_generator(0, "fedicon order", data.name, domain).permutation(index)
        return index if self.per_class else index[: self.n_train]


def _parts(data: Dataset, domain: str) -> tuple[np.ndarray, np.ndarray]:
    """Indices of a domain's training and test images."""
    index = np.flatnonzero(data.groups == data.group_names.index(domain))
    if data.is_test is not None:
        return index[~data.is_test[index]], index[data.is_test[index]]
    test = stratified(data.labels[index], 5, numpy_generator(0, "fedicon split", data.name, domain))[0]
    return np.delete(index, test), index[test]


def _first_per_class(data: Dataset, index: np.ndarray, n: int | None) -> np.ndarray:
    """The first ``n`` of every class among ``index``, in their order."""
    if n is None:
        return index
    labels = data.labels[index]
    return np.sort(np.concatenate([index[labels == c][:n] for c in range(len(data.classes))]))


def transform_of_domains(dataset: str, channels: int, held_out: str | None = None) -> Transform:
    """Digits: mean and deviation 0.5, no augmentation. Objects: [0, 1] scaling, crop and flip drawn per image. A user's: as measured on all
    domains but the one ``held_out``."""
    record = about(dataset)
    digits = record.views == "digits"
    scaling = record.scaling("fedicon", channels, (0.5, 0.5) if digits else (0.0, 1.0), held_out)
    return Transform(*scaling, "none", record.margin, record.flips) if digits else Transform(*scaling, "sample")
