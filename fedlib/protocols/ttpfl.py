"""TTPFL, the test-time personalised setting of ATP: labelled source clients train, unlabelled target clients adapt.

Section 6 and appendix C.1 of ATP. Two forms:

* one data set under ``feature`` shift (equal class shares; each client has one corruption and severity, of 15 kinds for source and 4
  other kinds for target clients), ``label`` shift (step partition, clean images) or ``hybrid`` shift (both). The official training and
  test images are joined and cut over the clients; four in five, drawn, are sources. With fewer images (``images``) the ones left out may
  make more target clients than the partition has (``targets``), so that a short run is tested on as many as the paper.
* domains with one of them held out (``held_out``): every domain is cut over its own clients by the step partition, those of the held-out
  domain are the targets. No corruption.

Source clients keep ``val`` of their samples for validation (what they train on is rounded down: with the paper's sizes nothing is left to
round); a target's samples are its test stream, in one shuffled order.

Paper and code: every client has two major classes in the paper; in the code for CIFAR-10 one in ten has a single one (as here with 300
clients, by ordered pairs of classes). The code knows no other number of clients; here they all have two. For Digits-5 the paper prints a
cohort of 50 beside its 40 source clients: all of them train here. PACS has 7 clients per domain (code and appendix), not 10 (main text),
and is prepared once for each held-out domain, whose place in the alphabet is the seed of the clients' order and of their training parts,
which are rounded; its images are augmented once, by ``partition_seed``. Otherwise partition and corruptions come from ``partition_seed``
whatever the run's seed, and with domains the run's seed draws the validation part. The code draws corruptions and partition from one
stream, so that they depend on library versions; here the clients' kinds have a stream of their own, and every image its own noise.
"""

from dataclasses import dataclass

import numpy as np
import torch

from fedlib.augment import colour
from fedlib.augment.geometry import resample, resized_crop
from fedlib.augment.transform import Transform
from fedlib.core import Benchmark, Client, Samples
from fedlib.data import about, load, stamps
from fedlib.data.corruptions import SOURCE_KINDS, TARGET_KINDS, corrupt_each, image_seeds
from fedlib.data.dataset import Dataset
from fedlib.data.partition import step, step_majors
from fedlib.tools.kept import kept
from fedlib.tools.names import check_name
from fedlib.tools.seeding import numpy_generator

SHIFTS = ("feature", "label", "hybrid")
PREPARED = ("pacs",)  # data sets whose source images are augmented once, and whose validation parts no run's seed moves
JITTER = (0.3, 0.3, 0.3, 0.3)


@dataclass(frozen=True)
class TTPFL:
    """dataset: name for ``fedlib.data.load``; n_clients: in all, or per domain with ``held_out``, the name of a domain; factor: weight of a
    major class in the step partition (CIFAR-10 and domains 16, CIFAR-100 51); sources: share of source clients; val: their share of
    validation samples; images: how many enter, drawn, in all or per domain (Digits-5: 7,430), 0 for all; size: side in pixels to which
    domains are resized on loading, None for the loader's own; targets: target clients of ``target_images`` each, made of images that
    ``images`` left out, in place of the partition's own; 0 (or too few images for one) for these.

    Four in five clients train, and every one has a corruption and severity of its own:

    >>> clients = TTPFL("digits", "feature", n_clients=10).build(seed=0).clients
    >>> sum(client.source for client in clients), clients[1].about
    (8, 'snow 3')
    """

    dataset: str = "digits"
    shift: str = "hybrid"
    n_clients: int = 300
    held_out: str | None = None
    factor: float = 16.0
    sources: float = 0.8
    val: float = 0.2
    images: int = 0
    size: int | None = None
    targets: int = 0
    target_images: int = 100
    partition_seed: int = 0

    def __post_init__(self):
        check_name(self.shift, SHIFTS, "shift")
        if self.n_clients < 2 or not 0 < self.sources < 1 or not 0 < self.val < 1 or self.factor < 1:
            raise ValueError(f"out of range: {self} (n_clients >= 2, sources and val in (0, 1), factor >= 1)")
        if self.targets < 0 or self.target_images < 1 or self.images < 0:
            raise ValueError(f"out of range: {self} (targets and images >= 0, target_images >= 1)")
        if self.held_out is not None and self.shift != "hybrid":
            raise ValueError(f"held-out domains have one setting, shift='hybrid' (domain and label shift), got {self.shift!r}")

    def build(self, seed: int, root: str | None = None) -> Benchmark:
        """The clients; ``seed`` matters for the validation parts of domains only. Raises FileNotFoundError for a missing data set,
        ValueError for too many clients or an unknown domain."""
        return _domains(self, seed, root) if self.held_out is not None else _corrupted(self, root, stamps(self))


# Three settings of a notebook share what takes minutes on CIFAR-10: the corrupted images, which no run's seed changes. ``stamp`` tells a
# user's images from those that were at the same path before.
@kept(3)
def _corrupted(how: TTPFL, root: str | None, stamp: tuple) -> Benchmark:
    everything = load(how.dataset, root)
    entered, rest = _drawn(how, "images", np.arange(len(everything)))
    data = everything.select(entered) if len(rest) else everything
    rng = np.random.RandomState(how.partition_seed)
    factor = 1.0 if how.shift == "feature" else how.factor
    parts = step(data.labels, majors(how.n_clients, len(data.classes)), factor, rng, len(data.classes))
    order = np.arange(how.n_clients)
    rng.shuffle(order)
    n_sources = round(how.sources * how.n_clients)
    draws = numpy_generator(how.partition_seed, "ttpfl", "corruptions")
    clients = []

    def add(data: Dataset, index: np.ndarray, source: bool, *purpose: str | int) -> None:
        """One client with its corruption; ``purpose`` names the stream from which its images' noise comes."""
        kinds = SOURCE_KINDS if source else TARGET_KINDS
        kind, severity = kinds[draws.integers(len(kinds))], int(draws.integers(1, 6))
        images, about = data.images[index], ""
        if how.shift != "label":
            seeds = image_seeds(numpy_generator(how.partition_seed, "ttpfl", *purpose), len(index))
            images, about = corrupt_each(images, kind, severity, seeds), f"{kind} {severity}"
        clients.append(_client(len(clients), images, data.labels[index], source, how.val, about, "test"))

    n_new = min(how.targets, len(rest) // how.target_images)
    for position, k in enumerate(order[: n_sources if n_new else None]):
        index = parts[k].copy()
        rng.shuffle(index)
        add(data, index, position < n_sources, int(k))
    if n_new:
        unused, deal = everything.select(rest[: n_new * how.target_images]), numpy_generator(how.partition_seed, "ttpfl", "targets")
        for k, index in enumerate(step(unused.labels, majors(n_new, len(data.classes)), factor, deal, len(data.classes))):
            add(unused, deal.permutation(index), False, "target", k)
    return _benchmark(how, data, clients)


def _domains(how: TTPFL, seed: int, root: str | None) -> Benchmark:
    data = load(how.dataset, root, **({} if how.size is None else {"size": how.size}))
    check_name(how.held_out, data.group_names, f"domain of {how.dataset}")
    names, prepared = sorted(data.group_names), how.dataset in PREPARED
    rng = np.random.RandomState(how.partition_seed + names.index(how.held_out) * prepared)
    split = numpy_generator(seed, "ttpfl", "validation")
    clients = []
    for name in names:
        index, source = np.flatnonzero(data.groups == data.group_names.index(name)), name != how.held_out
        if how.images:
            index = index if data.is_test is None else index[~data.is_test[index]]
            index, _ = _drawn(how, name, index)
        images = data.images[index]
        if source and prepared:
            images = augmented(images, numpy_generator(how.partition_seed, "ttpfl", "augmentation", name))
        parts = step(data.labels[index], majors(how.n_clients, len(data.classes)), how.factor, rng, len(data.classes))
        order = np.arange(how.n_clients)
        if prepared:
            rng.shuffle(order)
        for part in (parts[k] for k in order):
            rng.shuffle(part)
            drawn = split.permutation(part) if source and not prepared else part
            cut = round((1 - how.val) * len(part)) if prepared else None
            clients.append(_client(len(clients), images[drawn], data.labels[index[drawn]], source, how.val, name, name, cut))
    return _benchmark(how, data, clients)


def _drawn(how: TTPFL, purpose: str, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``how.images`` of the indices, in their own order, and the others in drawn order; all of them and none where there are fewer."""
    order = numpy_generator(how.partition_seed, "ttpfl", purpose).permutation(index)
    n = how.images or len(order)
    return np.sort(order[:n]), order[n:]


def majors(n_clients: int, n_classes: int) -> list[tuple[int, int]]:
    """Major classes of each client. With up to as many clients as classes they are spread: class s = floor(C c / n) and the next.
    Otherwise, and with two classes, ``step_majors``: 300 clients and ten classes give the published partition of CIFAR-10, with its single
    majors."""
    if n_clients <= n_classes and n_classes > 2:
        firsts = [c * n_classes // n_clients for c in range(n_clients)]
        return [(first, (first + 1) % n_classes) for first in firsts]
    return step_majors(n_clients, n_classes)


def augmented(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """ATP's preparation of PACS, uint8 in and out: resized crop of 0.7 to 1 of the area, flip, colour jitter 0.3, grey with probability
    0.1."""
    uniform = torch.from_numpy(rng.random((len(images), 14)))
    results = []
    # In pieces, to bound the memory of the float copies.
    for pixels, u in zip(torch.from_numpy(images).split(512), uniform.split(512), strict=True):
        view = resample(pixels.float() / 255, resized_crop(u[:, :4], *pixels.shape[-2:], 0.7))
        view = torch.where((u[:, 4] < 0.5)[:, None, None, None], view.flip(-1), view)
        view = colour.jitter(view, u[:, 5:13], JITTER)
        view = torch.where((u[:, 13] < 0.1)[:, None, None, None], colour.luma(view).expand_as(view), view)
        results.append((255 * view).round().to(torch.uint8))
    return torch.cat(results).numpy()


def _client(
    k: int, images: np.ndarray, labels: np.ndarray, source: bool, val: float, about: str, column: str, cut: int | None = None
) -> Client:
    """A source client with its validation part at the end, from ``cut`` on (None: the share ``val``), or a target client whose only test
    is ``column``."""
    samples = Samples(torch.from_numpy(images), torch.from_numpy(labels))
    if not source:
        nothing = samples.head(0)
        return Client(k, nothing, nothing, {column: (samples,)}, source=False, about=about)
    cut = int((1 - val) * len(samples) + 1e-9) if cut is None else cut
    return Client(k, samples.head(cut), samples.at(slice(cut, None)), about=about)


def _benchmark(how: TTPFL, data: Dataset, clients: list[Client]) -> Benchmark:
    in_shape = tuple(data.images.shape[1:])
    record = about(how.dataset)
    transform = Transform(*record.scaling("atp", in_shape[0], (0.5, 0.5), how.held_out), "none", record.margin, record.flips)
    return Benchmark(tuple(clients), transform, in_shape, data.classes, data.name, data.stand_in)
