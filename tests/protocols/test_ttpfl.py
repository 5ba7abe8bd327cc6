from dataclasses import replace

import numpy as np
import pytest
import torch

from fedlib.data import load
from fedlib.data.corruptions import SOURCE_KINDS, TARGET_KINDS
from fedlib.data.dataset import Dataset
from fedlib.protocols import ttpfl
from fedlib.protocols.ttpfl import TTPFL, augmented, majors

SMALL = TTPFL("digits", n_clients=20)


def held(client):
    """Images and labels that a client holds, training and validation or test."""
    parts = [client.train, client.val] if client.source else [draws[0] for draws in client.tests.values()]
    return torch.cat([p.images for p in parts]), torch.cat([p.labels for p in parts])


def pixels(images):
    return sorted(image.numpy().tobytes() for image in images)


@pytest.mark.parametrize("shift", ["feature", "label", "hybrid"])
def test_clients_share_out_the_whole_data_set(shift):
    benchmark, data = replace(SMALL, shift=shift).build(0), load("digits")
    assert [c.source for c in benchmark.clients] == [True] * 16 + [False] * 4
    labels = torch.cat([held(c)[1] for c in benchmark.clients])
    assert torch.equal(labels.bincount(), torch.from_numpy(np.bincount(data.labels)))
    if shift == "label":
        assert pixels(torch.cat([held(c)[0] for c in benchmark.clients])) == pixels(torch.from_numpy(data.images))
    for client in benchmark.clients:
        n = len(held(client)[1])
        assert len(client.train) == (int(0.8 * n) if client.source else 0)
        assert list(client.tests) == ([] if client.source else ["test"])


def test_feature_shift_has_equal_class_shares_and_label_shift_two_majors():
    even, skewed = (replace(SMALL, shift=s).build(0) for s in ("feature", "label"))
    shares = torch.stack([held(c)[1].bincount(minlength=10) for c in even.clients])
    assert (shares.max(0).values - shares.min(0).values).max() <= 1
    tops = [held(c)[1].bincount(minlength=10).double() for c in skewed.clients]
    assert min((t.topk(2).values.sum() / t.sum()).item() for t in tops) > 0.45


def test_corruption_is_one_kind_per_client_from_its_own_pool():
    benchmark = SMALL.build(0)
    for client in benchmark.clients:
        kind, severity = client.about.split()
        assert kind in (SOURCE_KINDS if client.source else TARGET_KINDS)
        assert severity in "12345"
    clean = replace(SMALL, shift="label").build(0)
    assert [c.about for c in clean.clients] == [""] * 20
    # The same partition seed gives the same samples, so that only pixels differ.
    assert all(torch.equal(held(a)[1], held(b)[1]) for a, b in zip(benchmark.clients, clean.clients, strict=True))
    assert sum(not torch.equal(held(a)[0], held(b)[0]) for a, b in zip(benchmark.clients, clean.clients, strict=True)) > 15


def test_only_the_partition_seed_moves_anything():
    first, again, other = SMALL.build(0), SMALL.build(5), replace(SMALL, partition_seed=1).build(0)
    assert all(torch.equal(held(a)[0], held(b)[0]) for a, b in zip(first.clients, again.clients, strict=True))
    assert any(
        len(held(a)[0]) != len(held(b)[0]) or (held(a)[0] != held(b)[0]).any() for a, b in zip(first.clients, other.clients, strict=True)
    )


def test_published_cifar10_partition(monkeypatch):
    """300 clients of 200; 80 images of each of two classes, or 155 of one; 5 of the 60 targets are of the second kind at seed 0."""
    labels = np.repeat(np.arange(10), 6000)
    images = np.zeros((60_000, 1, 8, 8), np.uint8)
    monkeypatch.setattr(ttpfl, "load", lambda name, root: Dataset(name, images, labels, tuple("0123456789")))
    benchmark = TTPFL("sixty thousand", "label").build(0)
    counts = [held(c)[1].bincount(minlength=10).sort(descending=True).values.tolist() for c in benchmark.clients]
    single, double = [155] + [5] * 9, [80, 80] + [5] * 8
    assert {tuple(c) for c in counts} == {tuple(single), tuple(double)}
    assert counts.count(single) == 30
    assert counts[240:].count(single) == 5
    assert [len(c.train) for c in benchmark.clients[:240]] == [160] * 240


def test_majors_of_the_published_cases():
    assert majors(300, 10)[:4] == [(0, 0), (0, 0), (0, 0), (0, 1)]
    assert majors(10, 10, pairs=False) == [(c, (c + 1) % 10) for c in range(10)]
    assert majors(7, 7, pairs=False) == [(c, (c + 1) % 7) for c in range(7)]
    assert majors(300, 100)[250] == (50, 55)


def test_small_numbers_of_clients_reach_every_class():
    assert {first for first, _ in majors(20, 10)} == set(range(10))
    assert {c for pair in majors(5, 10, pairs=False) for c in pair} == set(range(10))


def test_held_out_domain_is_the_target():
    how = TTPFL("digits5", n_clients=5, held_out="fonts")
    benchmark, data = how.build(0), load("digits5")
    assert benchmark.columns == ["fonts"]
    assert [c.about for c in benchmark.clients if not c.source] == ["fonts"] * 5
    assert len([c for c in benchmark.clients if c.source]) == 20
    ours = torch.cat([held(c)[0] for c in benchmark.clients if not c.source])
    assert pixels(ours) == pixels(torch.from_numpy(data.images[data.groups == data.group_names.index("fonts")]))


def test_run_seed_moves_validation_parts_of_domains_only():
    how = TTPFL("digits5", n_clients=5, held_out="fonts")
    first, other = how.build(0), how.build(1)
    for a, b in zip(first.clients, other.clients, strict=True):
        assert pixels(held(a)[0]) == pixels(held(b)[0])
        assert torch.equal(held(a)[0], held(b)[0]) == (not a.source)


def test_drawn_images_are_shared_by_the_shifts():
    some = [replace(SMALL, shift=s, images=500).build(0) for s in ("feature", "label")]
    assert [sum(len(held(c)[1]) for c in b.clients) for b in some] == [500, 500]
    counts = [torch.cat([held(c)[1] for c in b.clients]).bincount() for b in some]
    assert torch.equal(*counts)


def test_published_sizes_of_domains_come_from_training_images(monkeypatch):
    images, labels = np.zeros((400, 3, 16, 16), np.uint8), np.arange(400) % 10
    images[:, 0, 0, 0] = is_test = np.arange(400) % 4 == 3
    data = Dataset("digits5_fedbn", images, labels, tuple("0123456789"), np.repeat([0, 1], 200), ("b", "a"), is_test)
    monkeypatch.setattr(ttpfl, "load", lambda name, root: data)
    benchmark = TTPFL("digits5_fedbn", n_clients=5, held_out="a", images=120).build(0)
    assert sum(len(held(c)[1]) for c in benchmark.clients) == 240
    assert all(held(c)[0][:, 0, 0, 0].max() == 0 for c in benchmark.clients)


def test_frozen_augmentation_keeps_shape_and_is_seeded():
    images = np.random.default_rng(0).integers(0, 256, (600, 3, 12, 12)).astype(np.uint8)
    first, again = (augmented(images, np.random.default_rng(1)) for _ in range(2))
    assert first.shape == images.shape
    assert first.dtype == np.uint8
    assert (first == again).all()
    assert (first != images).any(axis=(1, 2, 3)).mean() > 0.99
    grey = (first[:, 0] == first[:, 1]).all(axis=(1, 2)) & (first[:, 1] == first[:, 2]).all(axis=(1, 2))
    assert 0.05 < grey.mean() < 0.16


def test_source_images_of_pacs_are_augmented_and_target_images_are_not(monkeypatch):
    draws = np.random.default_rng(0)
    images, labels = draws.integers(0, 256, (280, 3, 16, 16)).astype(np.uint8), np.arange(280) % 7
    data = Dataset("pacs", images, labels, tuple("abcdefg"), np.repeat([0, 1], 140), ("photo", "sketch"))
    monkeypatch.setattr(ttpfl, "load", lambda name, root: data)
    benchmark = TTPFL("pacs", n_clients=7, held_out="sketch").build(0)
    raw = set(pixels(torch.from_numpy(images)))
    for client in benchmark.clients:
        assert bool(raw & set(pixels(held(client)[0]))) == (not client.source)
    assert benchmark.transform.mean == (0.485, 0.456, 0.406)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"shift": "hybird"}, "Did you mean 'hybrid'"),
        ({"n_clients": 1}, "n_clients >= 2"),
        ({"held_out": "plain", "shift": "label"}, "one setting"),
    ],
)
def test_wrong_fields_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        TTPFL(**fields)


def test_unknown_domain_is_refused():
    with pytest.raises(ValueError, match=r"unknown domain of digits5 'font'\. Did you mean 'fonts'"):
        TTPFL("digits5", n_clients=5, held_out="font").build(0)
