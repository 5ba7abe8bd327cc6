"""UPFL's clients. The partitions depend on class counts alone, so that images of one pixel replay those of the real data sets."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

from fedlib.data import load, partition
from fedlib.protocols import upfl
from fedlib.protocols.upfl import TEST_ALPHAS, UPFL
from tests.oracles import partition as oracle


def one_pixel_set(folder, name, train, test, channels=1):
    """An .npz file with the given labels; pixels are random."""
    rng, path = np.random.default_rng(0), folder / f"{name}.npz"
    parts = {"train": np.asarray(train), "test": np.asarray(test)}
    images = {n: rng.integers(0, 256, (len(y), 1, 1, channels), dtype=np.uint8) for n, y in parts.items()}
    np.savez(path, **{f"x_{n}": images[n] for n in parts}, **{f"y_{n}": y for n, y in parts.items()})
    return str(path)


@pytest.fixture(scope="module")
def cifar10(tmp_path_factory):
    """CIFAR-10's class counts, classes in turn."""
    return one_pixel_set(tmp_path_factory.mktemp("data"), "cifar", np.arange(50_000) % 10, np.arange(10_000) % 10, 3)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return one_pixel_set(tmp_path_factory.mktemp("data"), "small", np.arange(800) % 10, np.arange(200) % 10)


def test_replays_the_cifar10_partition(cifar10):
    benchmark = UPFL(cifar10, n_clients=100).build(0)
    training, new = benchmark.clients[:50], benchmark.clients[50:]
    assert all(c.source for c in training)
    assert not any(c.source for c in new)
    assert {(len(c.train), len(c.val), len(c.tests["validation"][0])) for c in training} == {(510, 90, 90)}
    assert {len(c.tests["test"][0]) for c in new} == {600}
    assert {len(c.train) + len(c.val) for c in new} == {0}
    held = [set(c.train.labels.tolist()) for c in training]
    assert held[:6] == [{4, 9}, {6, 9}, {0, 1}, {8, 9}, {2, 7}, {5, 7}]
    met = [set(c.tests["test"][0].labels.tolist()) for c in new]
    assert met[:4] == [{2, 9}, {0, 5}, {5, 7}, {5, 7}]
    assert [sum(k in classes for classes in held) for k in range(10)] == [6, 10, 9, 6, 12, 12, 11, 13, 9, 12]
    assert [sum(k in classes for classes in met) for k in range(10)] == [14, 10, 11, 14, 8, 8, 9, 7, 11, 8]
    assert sum(classes in held for classes in met) == 24


def test_replays_the_drift_study(cifar10):
    benchmark = UPFL(cifar10, "dirichlet", 100).build(0)
    training = [c for c in benchmark.clients if c.source]
    sizes = [len(c.train) + len(c.val) for c in training]
    assert (min(sizes), max(sizes), sum(sizes), sum(len(c.val) for c in training)) == (78, 3702, 49_859, 7503)
    tests = {a: [len(c.tests[f"test_alpha_{a:g}"][0]) for c in benchmark.clients if f"test_alpha_{a:g}" in c.tests] for a in TEST_ALPHAS}
    assert [len(tests[a]) for a in TEST_ALPHAS] == [21, 41, 45, 50, 50, 50]
    assert [sum(tests[a]) for a in TEST_ALPHAS] == [9976, 9951, 9927, 9877, 9797, 9765]
    assert np.median(tests[0.5]) == 167.5


def test_the_shards_of_unequal_networks_go_on_with_the_draw_of_the_public_images():
    """One generator shuffles all indices, of which the first tenth is public, and then deals the rest, in its shuffled order."""
    data = load("digits")
    data = data.select(np.argsort(data.is_test, kind="stable"))
    rng, order = np.random.RandomState(24), np.arange(1797)
    rng.shuffle(order)
    rest = order[179:]
    parts = oracle.shards(data.labels[rest].tolist(), 20, 2, rng, True, None)
    benchmark = UPFL("digits", "public").build(0)
    assert np.array_equal(benchmark.public.numpy(), data.images[order[:179]])
    for client, part in zip(benchmark.clients, parts, strict=True):
        held = [client.train, client.val] if client.source else [client.tests["test"][0]]
        images = np.concatenate([samples.images.numpy() for samples in held])
        assert sorted(image.tobytes() for image in images) == sorted(image.tobytes() for image in data.images[rest][part])


def test_replays_the_concept_study(tmp_path_factory):
    """MNIST's first 1,000 training labels are not at hand; with even counts the sizes are 20, split 17 / 3."""
    path = one_pixel_set(tmp_path_factory.mktemp("data"), "mnist", np.arange(2000) % 10, np.arange(10) % 10)
    benchmark = UPFL(path, "concept", 50, shards=10).build(0)
    assert {(len(c.train), len(c.val)) for c in benchmark.clients[:25]} == {(17, 3)}
    assert {len(c.tests["test"][0]) for c in benchmark.clients[25:]} == {20}


@pytest.mark.parametrize("name", ["pathological", "superclass", "natural", "concept", "public", "dirichlet"])
def test_every_image_goes_to_one_client(small, name):
    fields = {"images": 800, "shards": 10} if name == "concept" else {}
    benchmark = UPFL(small, name, **fields).build(0)
    parts = [s for c in benchmark.clients for s in (c.train, c.val)]
    parts += [
        tests[0] for c in benchmark.clients if not c.source for column, tests in c.tests.items() if column in ("test", "test_alpha_0.5")
    ]
    total = sum(len(part) for part in parts)
    expected = {"concept": 800, "public": 900}.get(name, 1000)
    assert total == expected if name != "dirichlet" else 900 < total <= 1000
    if name == "public":
        assert benchmark.public.shape == (100, 1, 1, 1)


def test_the_drift_study_draws_a_test_part_where_there_is_none(tmp_path):
    """Three classes in two domains: a sixth of each class is dealt to new clients, the rest to those that train."""
    rng = np.random.default_rng(0)
    for domain in ("day", "night"):
        for label in "abc":
            (tmp_path / domain / label).mkdir(parents=True)
            for k in range(30):
                Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(tmp_path / domain / label / f"{k}.png")
    benchmark = UPFL(str(tmp_path), "dirichlet", 4).build(0)
    training = torch.cat([torch.cat([c.train.labels, c.val.labels]) for c in benchmark.clients if c.source])
    tested = torch.cat([c.tests["test_alpha_0.5"][0].labels for c in benchmark.clients if "test_alpha_0.5" in c.tests])
    assert 145 <= len(training) <= 150
    assert 27 <= len(tested) <= 30
    assert torch.bincount(tested).max() <= 10
    assert benchmark.notes == (f"drift: {tmp_path.name}/ has no official test part; a sixth of every class was drawn in its place",)


def test_a_part_of_the_images_enters(cifar10):
    """A drawn part, the same for every seed of the run, dealt as the whole is; test images stay behind training images for the drift."""
    first, second = (UPFL(cifar10, n_clients=10, images=1200).build(seed) for seed in (0, 1))
    assert sum(len(c.train) + len(c.val) + len(c.tests.get("test", [()])[0]) for c in first.clients) == 1200
    assert all(torch.equal(a.train.images, b.train.images) for a, b in zip(first.clients, second.clients, strict=True))
    drift = UPFL(cifar10, "dirichlet", 10, images=1200).build(0)
    assert 900 < sum(len(c.train) + len(c.val) for c in drift.clients if c.source) < 1100
    with pytest.raises(ValueError, match="images must be at least 1"):
        UPFL(cifar10, images=0)


def test_clients_that_hold_all_classes_are_said_to(tmp_path):
    labels = np.arange(200) % 2
    images = np.zeros((200, 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / "two.npz", x_train=images[:160], y_train=labels[:160], x_test=images[160:], y_test=labels[160:])
    note = "pathological: every client holds all 2 classes, so that no labels shift between clients"
    assert UPFL(str(tmp_path / "two.npz"), n_clients=4).build(0).notes == (note,)
    assert UPFL(str(tmp_path / "two.npz"), n_clients=4, shards=3).build(0).notes == (), "one of them holds one class"
    assert UPFL("digits", n_clients=10).build(0).notes == ()


def test_no_image_is_in_two_places():
    """On the digits, whose images are all different."""
    benchmark = UPFL("digits", "public").build(0)
    images = [s.images for c in benchmark.clients for s in (c.train, c.val)] + [benchmark.public]
    images += [c.tests["test"][0].images for c in benchmark.clients if not c.source]
    images = torch.cat(images).flatten(1)
    assert len(images) == 1797
    assert len(torch.unique(images, dim=0)) == 1797


@pytest.mark.parametrize(("angles", "expected"), [("paper", (0, 30, 60, 0, 45, 15)), ("code", (0, 15, 30, 0, 60, 75))])
def test_clients_are_turned(angles, expected):
    """Client k of six: training angles by id mod 3, new ones by id mod 2 (paper) or 3 (code). Angles are read off by turning back."""
    plain = UPFL("digits", "concept", 10, shards=10).build(0)
    assert plain.clients[0].train.images.shape[1:] == (1, 16, 16)
    protocol = UPFL("digits", "concept", 10, shards=10, angles=angles)
    rng = np.random.RandomState(24)
    parts = partition.shards(np.arange(1000) % 10, 10, 10, rng, distinct=False)
    turned = protocol._angles(parts)
    found = [set(turned[part]) for part in parts]
    assert [next(iter(f)) for f in found[:4]] == list(expected[:4])
    assert [next(iter(f)) for f in found[5:7]] == [{"paper": 45, "code": 75}[angles], {"paper": 15, "code": 45}[angles]]
    assert all(len(f) == 1 for f in found)


def test_turning_is_counter_clockwise_and_only_with_concept_shift():
    """The first training client keeps its angle of 0, the second does not: its digits differ from the unturned ones."""
    known = {image.tobytes() for image in load("digits").images}
    clients = UPFL("digits", "concept", 10, shards=10).build(0).clients
    share = [np.mean([image.tobytes() in known for image in c.train.images.numpy()]) for c in clients[:3]]
    assert share[0] == 1
    assert max(share[1:]) < 0.1


def test_without_writers_each_clients_images_lean_by_one_angle_of_up_to_20_degrees(monkeypatch):
    turned = []
    monkeypatch.setattr(upfl, "rotate", lambda data, angles: turned.append(angles) or data)
    benchmark = UPFL("digits", "natural", 40).build(0)
    assert "names no writers; each client's images lean by one angle of up to 20 degrees" in benchmark.notes[0]
    assert len(set(turned[0])) == 40
    assert 18 < abs(turned[0]).max() <= 20


def test_images_of_the_concept_study_are_only_scaled_to_one():
    """MNIST's statistics are those of upright digits, which the other studies are normalised with."""
    usual, turned = (UPFL("digits", partition, 10, shards=10).build(0).transform for partition in ("pathological", "concept"))
    assert (usual.mean, usual.std) == ((0.1307,), (0.3081,))
    assert (turned.mean, turned.std) == ((0.0,), (1.0,))


@pytest.mark.parametrize("partition", ["superclass", "natural"])
def test_domains_are_no_superclasses_and_no_writers(partition):
    assert UPFL("digits5", partition, 10).build(0).notes[0].startswith(f"{partition}: stand-in, the domains of digits5")


def test_superclasses():
    """Pairs of classes stand in; every one is shared by two of ten clients, some of them new."""
    benchmark = UPFL("digits", "superclass", 10).build(0)
    held = []
    for client in benchmark.clients:
        labels = client.train.labels if client.source else client.tests["test"][0].labels
        held.append(set((labels // 2).tolist()))
        assert len(set(labels.tolist())) == 2
    assert all(len(h) == 1 for h in held)
    assert sorted(next(iter(h)) for h in held) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert "stand-in" in benchmark.notes[0]


@pytest.mark.parametrize("name", ["pathological", "dirichlet"])
def test_the_seed_of_the_run_changes_nothing_and_share_only_the_new_clients(name):
    first, second = (UPFL("digits", name).build(seed) for seed in (0, 1))
    less = UPFL("digits", name, share=0.1).build(0)
    for a, b, c in zip(first.clients, second.clients, less.clients, strict=True):
        assert torch.equal(a.train.images, b.train.images)
        assert torch.equal(a.train.images, c.train.images)
        if "test" in a.tests:
            n = len(a.tests["test"][0])
            assert torch.equal(c.tests["test"][0].images, a.tests["test"][0].images[: int(0.1 * n)])


def test_decks_may_deal_one_class_twice(tmp_path_factory):
    """MNIST's scheme at MNIST's number of clients: three training clients and four new ones hold a single class."""
    path = one_pixel_set(tmp_path_factory.mktemp("data"), "deck", np.arange(4000) % 10, np.arange(1000) % 10)
    clients = UPFL(path, n_clients=100, deck=True).build(0).clients
    single = [len(set((c.train.labels if c.source else c.tests["test"][0].labels).tolist())) == 1 for c in clients]
    assert (sum(single[:50]), sum(single[50:])) == (3, 4)
    assert set(clients[0].train.labels.tolist()) == {0, 1}


def test_the_validation_column_is_the_validation_part():
    client = UPFL("digits").build(0).clients[0]
    assert client.tests["validation"][0] is client.val
    assert len(client.train) == int(0.85 * (len(client.train) + len(client.val)))


@pytest.mark.parametrize(
    "fields",
    [
        {"n_clients": 7},
        {"share": 0},
        {"partition": "iid"},
        {"angles": "both"},
        {"test_alphas": (0.0,)},
        {"test_alphas": ()},
        {"train_alpha": math.inf},
        {"shards": 0},
    ],
)
def test_bad_fields(fields):
    with pytest.raises(ValueError, match=r"range|unknown"):
        UPFL(**fields)


def test_the_concept_study_takes_what_images_there_are():
    taken = [UPFL("digits", "concept", images=images).build(0).report("test").to_numpy().sum() for images in (1797, 5000)]
    assert taken[0] == taken[1] > 0


def test_the_drift_study_needs_a_test_part(tmp_path):
    path = tmp_path / "whole.npz"
    np.savez(
        path, x_train=np.zeros((40, 1, 1, 1), np.uint8), y_train=np.arange(40) % 10, x_test=np.zeros((0, 1, 1, 1), np.uint8), y_test=[]
    )
    with pytest.raises(ValueError, match="test"):
        UPFL(str(path), "dirichlet", 4).build(0)


def test_the_concept_study_of_images_that_lie_class_by_class(tmp_path_factory):
    path = one_pixel_set(tmp_path_factory.mktemp("data"), "mnist", np.arange(2000) // 200, np.arange(10))
    clients = UPFL(path, "concept", 20, shards=10).build(0).clients
    held = torch.cat([torch.cat([client.train.labels, client.val.labels]) for client in clients if client.source])
    assert len(held.unique()) == 10
