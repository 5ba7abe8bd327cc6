"""Partitions: disjoint and complete for any input, and equal to what the papers' published codes draw."""

import random

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlib.data import partition
from fedlib.tools.seeding import numpy_generator
from tests.oracles import partition as oracle

# Class counts of the 20 clients, and the first five samples of four of them, as BRFL's code draws them: Dirichlet(0.1), labels i mod 10,
# 50,000 samples, RandomState(7000).
BRFL_COUNTS = """
1274 0 943 2 0 8 3 19 251 0 / 0 0 195 0 0 67 160 0 1 2077 / 399 0 1 0 54 1694 0 0 0 352 / 1 44 136 0 8 368 0 1716 227 0 /
0 0 0 514 0 0 0 0 1986 0 / 0 761 0 1656 0 0 0 83 0 0 / 1 1456 2 13 113 0 915 0 0 0 / 764 3 1 0 69 252 1389 21 1 0 /
0 0 0 0 1792 0 0 618 62 28 / 76 237 1180 311 470 96 11 87 3 29 / 2473 0 27 0 0 0 0 0 0 0 / 0 0 477 36 1008 979 0 0 0 0 /
3 51 182 0 1233 176 350 0 0 505 / 0 0 945 0 0 0 0 0 0 1555 / 0 223 873 838 0 5 38 70 0 453 / 0 0 0 337 34 7 1549 573 0 0 /
0 211 11 9 0 5 429 49 1785 1 / 8 0 25 1228 198 22 156 179 684 0 / 1 914 0 0 0 0 0 1585 0 0 / 0 1100 2 56 21 1321 0 0 0 0
"""
BRFL_FIRST = {
    0: [24570, 5560, 10150, 37730, 19990],
    7: [11404, 22444, 8894, 21424, 49804],
    10: [2760, 30750, 19240, 45970, 4710],
    19: [22281, 6181, 48501, 31881, 2571],
}
BRFL_NEXT = [1073575624, 969735882, 754154294, 1719101465]
MNIST_SIZES = [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958]


def report(parts, labels, n_classes):
    """Class counts, clients x classes."""
    return pd.DataFrame([np.bincount(labels[part], minlength=n_classes) for part in parts])


def brfl_counts():
    return np.array([[int(n) for n in row.split()] for row in BRFL_COUNTS.split("/")])


def classes_of(parts, labels):
    return [tuple(np.unique(labels[part]).tolist()) for part in parts]


def assert_parts(parts, n, unused=0):
    """Disjoint, inside 0..n-1, and all but ``unused`` samples handed out."""
    joined = np.concatenate(parts)
    assert all(np.issubdtype(part.dtype, np.integer) for part in parts)
    assert len(np.unique(joined)) == len(joined) == n - unused
    assert joined.min() >= 0
    assert joined.max() < n


def test_dirichlet_is_brfls_draw():
    labels, rng = np.arange(50_000) % 10, np.random.RandomState(7000)
    parts = partition.dirichlet(labels, 20, 0.1, rng)
    assert_parts(parts, 50_000)
    np.testing.assert_array_equal(report(parts, labels, 10), brfl_counts())
    for client, first in BRFL_FIRST.items():
        assert parts[client][:5].tolist() == first
    assert [rng.randint(2**31) for _ in range(4)] == BRFL_NEXT


@settings(deadline=None, max_examples=25)
@given(n_clients=st.integers(1, 37), alpha=st.sampled_from([0.1, 1.0, 10.0]), seed=st.integers(0, 99), legacy=st.booleans())
def test_dirichlet_gives_equal_disjoint_parts(n_clients, alpha, seed, legacy):
    rng = np.random.RandomState(seed) if legacy else np.random.default_rng(seed)
    labels = numpy_generator(seed, "labels").integers(0, 10, 3_001)
    parts = partition.dirichlet(labels, n_clients, alpha, rng)
    assert {len(part) for part in parts} == {3_001 // n_clients}
    assert_parts(parts, 3_001, unused=3_001 % n_clients)


class Given:
    """A generator whose Dirichlet shares are ``shares``, one class after the other."""

    def __init__(self, *shares):
        self.shares = list(shares)

    def dirichlet(self, alphas):
        return np.array(self.shares.pop(0))


def test_a_list_that_is_full_gets_no_more_and_one_that_is_half_full_will_do():
    """As the code has it: of two lists, due four samples each, one may end with two of eight, and not with one."""
    assert [cut.tolist() for cut in partition._dirichlet_cuts([4, 4], 2, 1.0, Given([1.0, 0.0], [0.5, 0.5]))] == [[4], [0]]
    assert [cut.tolist() for cut in partition._dirichlet_cuts([8], 2, 1.0, Given([0.25, 0.75]))] == [[2]]
    assert partition._dirichlet_cuts([8], 2, 1.0, Given([0.125, 0.875])) is None


@pytest.mark.parametrize("n_classes", [2, 3])
def test_few_classes_are_shared_by_many_clients(n_classes):
    """Ten lists at a time, as of ten classes, are all but never half filled by so few."""
    labels = np.arange(720) % n_classes
    for seed in range(5):
        parts = partition.dirichlet(labels, 20, 0.1, np.random.RandomState(seed), max_tries=2_000)
        assert {len(part) for part in parts} == {36}
        assert_parts(parts, 720)
        counts = report(parts, labels, n_classes)
        assert (counts.max(axis=1) / 36).mean() > 1.3 / n_classes


def test_dirichlet_gives_up_with_the_numbers_that_matter():
    with pytest.raises(ValueError, match=r"Dirichlet\(1e-06\).* 10 clients half of its 20 of 200"):
        partition.dirichlet(np.arange(200) % 2, 10, 1e-6, np.random.default_rng(0), max_tries=5)


def test_smaller_alpha_is_more_skewed():
    labels = np.arange(5_000) % 10
    largest = {}
    for alpha in (0.1, 100.0):
        counts = report(partition.dirichlet(labels, 10, alpha, np.random.default_rng(1)), labels, 10)
        largest[alpha] = counts.max(axis=1).mean()
    assert largest[0.1] > 2.5 * largest[100.0]


def test_classwise_dirichlet_is_the_drift_studys():
    train, test = np.repeat(np.arange(10), 5_000), np.repeat(np.arange(10), 1_000)
    for alpha, not_empty, total, median in ((0.01, 21, 9_976, 0), (0.1, 50, 9_877, 137), (0.5, 50, 9_765, 167.5)):
        rng = np.random.RandomState(24)
        sizes = np.array([len(part) for part in partition.dirichlet_classwise(train, 50, 0.1, rng)])
        assert (sizes.min(), sizes.max(), sizes.sum()) == (78, 3_702, 49_859)
        assert (sizes - (0.85 * sizes).astype(int)).sum() == 7_503
        parts = partition.dirichlet_classwise(test, 50, alpha, rng)
        sizes = np.array([len(part) for part in parts])
        assert ((sizes > 0).sum(), sizes.sum(), np.median(sizes)) == (not_empty, total, median)
        assert_parts(parts, 10_000, unused=10_000 - total)


def test_step_counts_of_the_paper():
    labels = np.arange(60_000) % 10
    counts = report(partition.step(labels, partition.step_majors(300, 10), 16, np.random.default_rng(0)), labels, 10)
    ordered = np.sort(counts.to_numpy(), axis=1)
    single = ordered[:, -1] == 155
    assert single.sum() == 30
    assert (ordered[single, :9] == 5).all()
    assert (ordered[~single] == [5] * 8 + [80] * 2).all()
    labels = np.arange(60_000) % 100
    counts = report(partition.step(labels, partition.step_majors(300, 100), 51, np.random.default_rng(0)), labels, 100)
    assert (np.sort(counts, axis=1) == [1] * 98 + [51] * 2).all()
    labels = np.arange(60_000) % 10
    assert (report(partition.step(labels, [()] * 300, 1, np.random.default_rng(0)), labels, 10) == 20).all(axis=None)


def test_step_majors_of_the_paper():
    assert partition.step_majors(10, 10) == [(c, (c + 1) % 10) for c in range(10)]
    assert partition.step_majors(7, 7) == [(c, (c + 1) % 7) for c in range(7)]
    assert partition.step_majors(100, 10) == [(c % 10, (c + 1 + 2 * (c // 10)) % 10) for c in range(100)]
    assert all(first != second for n in range(3, 12) for first, second in partition.step_majors(40, n))
    assert partition.step_majors(5, 2) == [(0, 0), (1, 1), (0, 0), (1, 1), (0, 0)], "or all clients would be alike"
    assert partition.step_majors(300, 10)[:7] == [(0, 0)] * 3 + [(0, 1)] * 3 + [(0, 2)]
    assert [partition.step_majors(300, 100)[c] for c in (0, 99, 100, 299)] == [(0, 1), (99, 0), (0, 3), (99, 4)]


@settings(deadline=None, max_examples=25)
@given(
    labels=st.lists(st.integers(0, 4), min_size=12, max_size=200),
    majors=st.lists(st.lists(st.integers(0, 4), max_size=3), min_size=1, max_size=12),
    factor=st.sampled_from([1, 2.5, 16]),
)
def test_step_equals_oracle(labels, majors, factor):
    labels = np.array([*labels, 4])
    parts = partition.step(labels, majors, factor, np.random.RandomState(3))
    assert_parts(parts, len(labels))
    assert [part.tolist() for part in parts] == oracle.step(labels.tolist(), majors, factor, np.random.RandomState(3))


def test_shards_replay_cifar10():
    labels = np.repeat(np.arange(10), 6_000)
    parts = partition.shards(labels, 100, 2, np.random.RandomState(24))
    assert_parts(parts, 60_000)
    assert {len(part) for part in parts} == {600}
    pairs = classes_of(parts, labels)
    assert pairs[:6] == [(4, 9), (6, 9), (0, 1), (8, 9), (2, 7), (5, 7)]
    assert pairs[50:54] == [(2, 9), (0, 5), (5, 7), (5, 7)]
    holders = [[sum(c in pair for pair in half) for c in range(10)] for half in (pairs[:50], pairs[50:])]
    assert holders == [[6, 10, 9, 6, 12, 12, 11, 13, 9, 12], [14, 10, 11, 14, 8, 8, 9, 7, 11, 8]]
    assert sum(pair in pairs[:50] for pair in pairs[50:]) == 24


def test_shards_replay_mnist():
    labels = np.repeat(np.arange(10), MNIST_SIZES)
    parts = partition.shards(labels, 100, 2, np.random.RandomState(24), distinct=False, shuffler=random.Random(24))
    assert_parts(parts, 70_000)
    pairs, sizes = classes_of(parts, labels), [len(part) for part in parts]
    assert pairs[:4] == [(0, 1), (2, 7), (5, 7), (0, 4)]
    assert sizes[:4] == [739, 714, 680, 686]
    assert (min(sizes), max(sizes), sum(sizes[50:])) == (656, 788, 35_029)
    assert sum(size - int(0.85 * size) for size in sizes[:50]) == 5_267
    assert [sum(len(pair) == 1 for pair in half) for half in (pairs[:50], pairs[50:])] == [3, 4]


@settings(deadline=None, max_examples=25)
@given(
    extra=st.integers(0, 40), n_clients=st.integers(4, 17), per_client=st.integers(1, 3), distinct=st.booleans(), seed=st.integers(0, 99)
)
def test_shards_equal_oracle(extra, n_clients, per_client, distinct, seed):
    """What does not divide goes, from the end of a class, one by one to its first shards; the first classes have one more shard."""
    labels = numpy_generator(seed, "labels").permutation(np.arange(48 + extra) % 4)
    calls = [(module.shards, random.Random(seed), np.random.RandomState(seed)) for module in (partition, oracle)]
    ours, theirs = (f(labels, n_clients, per_client, rng, distinct=distinct, shuffler=shuffler) for f, shuffler, rng in calls)
    assert [part.tolist() for part in ours] == theirs


@settings(deadline=None, max_examples=25)
@given(n_clients=st.integers(4, 21), per_client=st.integers(1, 4), distinct=st.booleans(), seed=st.integers(0, 99))
def test_shards_are_complete(n_clients, per_client, distinct, seed):
    labels = numpy_generator(seed, "labels").permutation(np.arange(203) % 4)
    parts = partition.shards(labels, n_clients, per_client, np.random.default_rng(seed), distinct=distinct)
    assert len(parts) == n_clients
    assert_parts(parts, 203)


def test_natural_split_is_brfls():
    labels = np.repeat(np.arange(10), 200)
    counts = report(partition.natural_split(brfl_counts(), labels), labels, 10).to_numpy()
    assert counts.sum(axis=1).tolist() == [97, 98, 98, 97, 99, 99, 98, 97, 98, 96, 99, 99, 99, 99, 96, 97, 97, 97, 99, 98]
    assert counts[0].tolist() == [50, 0, 37, 0, 0, 0, 0, 0, 10, 0]
    assert counts[17].tolist() == [0, 0, 1, 49, 7, 0, 6, 7, 27, 0]
    assert (200 - counts.sum(axis=0)).tolist() == [4, 4, 5, 4, 6, 6, 4, 7, 2, 1]


@settings(deadline=None, max_examples=25)
@given(
    histograms=st.lists(st.lists(st.integers(0, 30), min_size=3, max_size=3), min_size=1, max_size=6),
    shifted=st.lists(st.integers(0, 2), max_size=60),
)
def test_natural_split_equals_oracle(histograms, shifted):
    parts = partition.natural_split(np.array(histograms), np.array(shifted, dtype=np.int64))
    assert [part.tolist() for part in parts] == oracle.natural_split(histograms, shifted)


@settings(deadline=None, max_examples=25)
@given(n=st.integers(5, 80), n_parts=st.integers(1, 5), seed=st.integers(0, 99))
def test_iid_and_stratified(n, n_parts, seed):
    labels = numpy_generator(seed, "labels").integers(0, 3, n)
    for split in (partition.iid, partition.stratified):
        parts = split(labels, n_parts, np.random.default_rng(seed))
        assert_parts(parts, n)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
    counts = report(parts, labels, 3)
    assert (counts.max() - counts.min() <= 1).all()


def test_superclass_and_by_group():
    coarse = np.arange(600) // 5 % 20
    parts = partition.superclass(coarse, 100, np.random.default_rng(0))
    assert_parts(parts, 600)
    assert [np.unique(coarse[part]).tolist() for part in parts] == [[user // 5] for user in range(100)]
    assert {len(part) for part in parts} == {6}
    assert [part.tolist() for part in partition.by_group(np.array([7, 2, 7, 7]))] == [[1], [0, 2, 3]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda y, rng: partition.iid(y, 31, rng), "30 samples over 31 clients"),
        (lambda y, rng: partition.dirichlet(y, 0, 1.0, rng), "over 0 clients"),
        (lambda y, rng: partition.step(y, [(0, 3)], 2, rng), "major class 3"),
        (lambda y, rng: partition.step(y, [(0,)], 0.5, rng), "factor must be at least 1"),
        (lambda y, rng: partition.shards(y, 2, 1, rng), "2 clients x 1 shards are too few for 3 classes"),
        (lambda y, rng: partition.superclass(y, 4, rng), "by 3 superclasses"),
        (lambda y, rng: partition.natural_split(np.ones((2, 2)), y), r"0\.\.1"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.arange(30) % 3, np.random.default_rng(0))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize(
    "split",
    [
        lambda y, rng: partition.dirichlet(y, 2, 10.0, rng),
        lambda y, rng: partition.dirichlet_classwise(y, 2, 10.0, rng),
        lambda y, rng: partition.step(y, [(0, 1), (2, 3)], 5, rng),
        lambda y, rng: partition.shards(y, 256, 2, rng),
    ],
    ids=["dirichlet", "dirichlet_classwise", "step", "shards"],
)
def test_labels_up_to_the_end_of_their_type(split, dtype):
    labels = np.arange(4 * (np.iinfo(dtype).max + 1)) % (np.iinfo(dtype).max + 1)
    narrow, wide = (split(labels.astype(kind), np.random.RandomState(0)) for kind in (dtype, np.int64))
    assert sum(map(len, wide)) > 0
    assert [part.tolist() for part in narrow] == [part.tolist() for part in wide]


def test_majors_need_two_classes():
    with pytest.raises(ValueError, match="there must be two at least, got 1"):
        partition.step_majors(3, 1)


def test_a_class_without_images_gets_no_shards_and_no_major_images():
    labels = np.repeat([0, 2, 3], 40)
    parts = partition.shards(labels, 6, 2, np.random.RandomState(0))
    assert {len(part) for part in parts} == {20}
    assert sorted(np.concatenate(parts)) == list(range(120))
    held = labels < 3
    parts = partition.step(labels[held], [(3, 3), (0, 2)], 4, np.random.RandomState(0), n_classes=4)
    assert report(parts, labels[held], 4).to_numpy().tolist() == [[8, 0, 8, 0], [32, 0, 32, 0]]
