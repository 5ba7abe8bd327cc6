from dataclasses import replace

import numpy as np
import pytest
import torch

from fedlib.cache.store import digest
from fedlib.data import load
from fedlib.data.dataset import Dataset
from fedlib.data.partition import dirichlet
from fedlib.protocols import brfl, shifts
from fedlib.protocols.brfl import BRFL, COLUMNS
from fedlib.protocols.brfl_imagenet import BRFLImageNet
from fedlib.protocols.shifts import local_cuts

SMALL = BRFL(n_clients=4, alpha=0.5, columns=COLUMNS, corruption_draws=2)


@pytest.fixture(scope="module", autouse=True)
def benchmark():
    """SMALL on the first 600 digits, which every other build in this file sees too; the natural shift is drawn once."""
    natural = load("digits_natural")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(brfl, "load", lambda name, root=None: load("digits").select(np.arange(600)))
        patch.setattr(shifts, "load", lambda name, root=None: natural)
        yield SMALL.build(seed=3)


def keys(samples):
    """One hashable key per image."""
    return [image.numpy().tobytes() for image in samples.images]


def fingerprint(benchmark, columns=COLUMNS):
    parts = {}
    for c in benchmark.clients:
        named = {"train": c.train, "val": c.val} | {f"{column}.{d}": s for column in columns for d, s in enumerate(c.tests[column])}
        parts |= {f"{c.id}.{name}.{kind}": getattr(s, kind) for name, s in named.items() for kind in ("images", "labels")}
    return digest(parts)


def test_digits_are_all_different():
    """The other tests tell samples apart by their pixels."""
    assert len({image.tobytes() for image in load("digits").images}) == 1797


def test_no_test_image_is_trained_on_or_validated_on(benchmark):
    learnt = [key for client in benchmark.clients for part in (client.train, client.val) for key in keys(part)]
    assert len(set(learnt)) == len(learnt)
    for client in benchmark.clients:
        for column in ("original", "ooc", "natural", "mixture"):
            assert not set(keys(client.tests[column][0])) & set(learnt)


def test_local_tests_are_disjoint_and_sizes_equal(benchmark):
    tested = [key for client in benchmark.clients for key in keys(client.tests["original"][0])]
    assert len(set(tested)) == len(tested)
    # 600 // 4 = 150 samples each; int((1 - (0.6 + 0.2)) * 150) is 29 in floating point.
    assert {(len(c.train), len(c.val), len(c.tests["original"][0])) for c in benchmark.clients} == {(90, 29, 30)}


@pytest.mark.parametrize(("n", "sizes"), [(2500, (1500, 499, 500)), (500, (300, 99, 100)), (3000, (1800, 599, 600))])
def test_published_rounding(n, sizes):
    ((train, val, test),) = local_cuts([np.arange(n)], seed=0, train_size=1.0)
    assert (len(train), len(val), len(test)) == sizes
    assert len({*train, *val, *test}) == sum(sizes)


def test_corrupted_are_the_same_samples_in_two_passes(benchmark):
    for client in benchmark.clients:
        original, passes = client.tests["original"][0], client.tests["corrupted"]
        assert len(passes) == 2
        assert not torch.equal(passes[0].labels, passes[1].labels)
        for corrupted in passes:
            assert torch.equal(corrupted.labels.bincount(minlength=10), original.labels.bincount(minlength=10))
            assert len(set(keys(corrupted)) & set(keys(original))) < 0.1 * len(original)
        assert len(set(keys(passes[0])) & set(keys(passes[1]))) < 0.1 * len(original)


def test_ooc_are_the_others_test_samples(benchmark):
    tests = [set(keys(client.tests["original"][0])) for client in benchmark.clients]
    for k, client in enumerate(benchmark.clients):
        ooc = keys(client.tests["ooc"][0])
        assert len(ooc) == len(set(ooc)) == 30
        assert set(ooc) <= set.union(*(test for j, test in enumerate(tests) if j != k))
        assert not set(ooc) & tests[k]
        assert sum(bool(set(ooc) & test) for j, test in enumerate(tests) if j != k) == 3


def test_natural_follows_the_clients_labels(benchmark):
    whole = load("digits_natural")
    assert len(whole) == 2000
    taken = [key for client in benchmark.clients for key in keys(client.tests["natural"][0])]
    assert len(set(taken)) == len(taken)
    assert set(taken) <= {image.tobytes() for image in whole.images}
    held = torch.stack([(c.train.labels.bincount(minlength=10)).double() for c in benchmark.clients])
    natural = torch.stack([c.tests["natural"][0].labels.bincount(minlength=10).double() for c in benchmark.clients])
    # floor(H N/C / sum H) with H over the whole client, of which the training part is a sample.
    assert natural.sum(0).max() <= 200
    assert natural.sum() > 1900
    assert torch.corrcoef(torch.stack([held.flatten(), natural.flatten()]))[0, 1] > 0.95


def test_mixture_is_made_of_four_equal_parts(benchmark):
    for client in benchmark.clients:
        mixture = keys(client.tests["mixture"][0])
        sources = {column: set(keys(client.tests[column][0])) for column in ("original", "corrupted", "ooc", "natural")}
        n = min(len(client.tests[column][0]) for column in sources)
        assert len(mixture) == 4 * n
        for source in sources.values():
            assert sum(key in source for key in mixture) >= n
        assert all(any(key in source for source in sources.values()) for key in mixture)


def test_streams_are_shuffled(benchmark):
    for column in ("original", "natural", "mixture"):
        labels = benchmark.clients[0].tests[column][0].labels
        assert not torch.equal(labels, labels.sort().values)
    first = benchmark.clients[0].tests["mixture"][0]
    natural = set(keys(benchmark.clients[0].tests["natural"][0]))
    where = torch.tensor([i for i, key in enumerate(keys(first)) if key in natural], dtype=torch.float64)
    assert abs(where.mean() / len(first) - 0.5) < 0.1


def test_same_seed_same_bits_other_seed_other_clients(benchmark):
    assert fingerprint(SMALL.build(3)) == fingerprint(benchmark)
    other = replace(SMALL, columns=("original",)).build(4)
    assert digest({"x": other.clients[0].train.images}) != digest({"x": benchmark.clients[0].train.images})


@pytest.mark.parametrize("columns", [("natural",), ("mixture", "original"), ("corrupted_ooc", "corrupted")])
def test_a_stream_does_not_depend_on_the_others_asked_for(benchmark, columns):
    fewer = replace(SMALL, columns=columns).build(3)
    assert fewer.columns == list(columns)
    assert fingerprint(fewer, columns) == fingerprint(benchmark, columns)


def test_severity_changes_corrupted_streams_alone(benchmark):
    mild = replace(SMALL, severity=1).build(3)
    clean = ("original", "ooc", "natural")
    assert fingerprint(mild, clean) == fingerprint(benchmark, clean)
    for column in ("corrupted", "mixture", "corrupted_ooc"):
        assert fingerprint(mild, (column,)) != fingerprint(benchmark, (column,))


def test_smaller_parts_are_parts_of_the_whole(benchmark):
    fewer = replace(SMALL, train_size=0.5, test_size=0.76).build(3)
    for a, b in zip(fewer.clients, benchmark.clients, strict=True):
        assert (len(a.train), len(a.val), len(a.tests["original"][0])) == (45, 29, 23), "22.8 of 30"
        assert set(keys(a.train)) < set(keys(b.train))
        assert all(set(keys(a.tests[c][0])) < set(keys(b.tests[c][0])) for c in COLUMNS)


def test_resplit_keeps_the_streams_and_says_that_it_leaks(benchmark):
    leaky = replace(SMALL, split="resplit").build(3)
    assert fingerprint(leaky) == fingerprint(benchmark)
    assert benchmark.notes == ()
    assert any("leak" in note for note in leaky.notes)
    client = leaky.clients[0]
    assert len(client.pool) == 150
    assert benchmark.clients[0].pool is None
    tested = set(keys(client.tests["original"][0]))
    drawn = client.redrawn(torch.Generator().manual_seed(0)).train
    assert len(drawn) == len(client.train)
    assert set(keys(drawn)) & tested
    assert set(keys(drawn)) <= set(keys(client.pool))


def coloured(n, with_test=True):
    """A stand-in for a data set with an official split: every third sample is a test sample."""
    rng = np.random.default_rng(0)
    is_test = np.arange(n) % 3 == 0 if with_test else None
    images = rng.integers(0, 256, (n, 3, 8, 8)).astype(np.uint8)
    return Dataset("coloured", images, rng.integers(0, 4, n), tuple("abcd"), is_test=is_test)


def test_the_official_test_part_stands_in_for_an_unknown_natural_shift(monkeypatch):
    data = coloured(600)
    monkeypatch.setattr(brfl, "load", lambda name, root=None: data)
    built = BRFL("coloured", n_clients=4, alpha=10.0, natural_size=80, columns=("original", "natural")).build(0)
    assert any("stand-in" in note for note in built.notes)
    assert built.stand_in_columns == ("natural", "mixture")
    official = {image.tobytes() for image in data.images[data.is_test]}
    for client in built.clients:
        assert set(keys(client.tests["natural"][0])) <= official
        assert not official & set(keys(client.train) + keys(client.val) + keys(client.tests["original"][0]))
    assert built.in_shape == (3, 8, 8)


def test_without_any_natural_shift(monkeypatch):
    monkeypatch.setattr(brfl, "load", lambda name, root=None: coloured(600, with_test=False))
    with pytest.raises(FileNotFoundError, match="no natural-shift set"):
        BRFL("coloured", n_clients=4, alpha=10.0).build(0)


def test_too_many_clients():
    with pytest.raises(ValueError, match="lower n_clients=200"):
        BRFL(n_clients=200, alpha=10.0).build(0)


BAD = [
    {"split": "leaky"},
    {"columns": ("orginal",)},
    {"alpha": 0},
    {"n_clients": 1},
    {"severity": 6},
    {"test_size": 0},
    {"train_size": 2},
    {"natural_size": -5},
]


@pytest.mark.parametrize("bad", BAD)
def test_bad_fields(bad):
    with pytest.raises(ValueError):
        BRFL(**bad)


def test_a_partition_of_its_own_is_the_same_for_every_seed():
    """The published one is RandomState(7000); splits and streams still follow the run's seed."""
    fixed = replace(SMALL, partition_seed=7000)
    first, second, drawn = fixed.build(seed=3), fixed.build(seed=4), SMALL.build(seed=4)
    wholes = [[set(keys(c.train) + keys(c.val) + keys(c.tests["original"][0])) for c in b.clients] for b in (first, second, drawn)]
    data = load("digits").select(np.arange(600))
    parts = dirichlet(data.labels, 4, 0.5, np.random.RandomState(7000))
    published = [{image.tobytes() for image in data.images[part]} for part in parts]
    for whole in wholes[:2]:
        assert all(client <= part and len(part - client) <= 1 for client, part in zip(whole, published, strict=True))
    assert not all(client <= part for client, part in zip(wholes[2], published, strict=True))
    assert keys(first.clients[0].train) != keys(second.clients[0].train)


@pytest.mark.parametrize("wrong", [-1, 2**32])
def test_bad_partition_seeds(wrong):
    for protocol in (BRFL, BRFLImageNet):
        with pytest.raises(ValueError, match="partition_seed"):
            protocol(partition_seed=wrong)
