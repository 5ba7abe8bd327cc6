import colorsys
import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlib.data import load
from fedlib.data.corruptions import SOURCE_KINDS, TARGET_KINDS
from fedlib.data.dataset import Dataset
from fedlib.data.partition import step
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


@pytest.mark.parametrize(("sources", "n_clients", "expected"), [(0.8, 12, 10), (0.58, 50, 29)])
def test_the_share_of_source_clients_is_rounded(sources, n_clients, expected):
    """9.6 clients are ten; 58 % of 50 clients, in floating point a little less, are 29."""
    clients = TTPFL("digits", "label", n_clients, sources=sources).build(0).clients
    assert sum(client.source for client in clients) == expected


@pytest.mark.parametrize("tenths", [1, 2, 9])
def test_what_a_client_trains_on_is_rounded_down_and_no_further(tenths):
    """In floating point 1 - 0.9 is less than a tenth."""
    for n in range(10, 110, 10):
        client = ttpfl._client(0, np.zeros((n, 1, 2, 2), np.uint8), np.zeros(n, np.int64), True, tenths / 10, "", "test")
        assert (len(client.train), len(client.val)) == (n - n // 10 * tenths, n // 10 * tenths)


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


# Made with the partition that agrees with the public code: what profile paper runs must not move.
PUBLISHED = {"feature": "00af0d86488ae3d5", "label": "6f68aaff3703addf", "hybrid": "c08a7b182f8ef580"}


@pytest.mark.parametrize("shift", list(PUBLISHED))
def test_clients_of_the_paper_profile_are_those_of_its_digest(monkeypatch, shift):
    """300 clients: order, corruption, and every image (its number in its pixels) with its label and part."""
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 6000))
    images = np.zeros((60_000, 1, 2, 2), np.uint8)
    images[:, 0, 0, 0], images[:, 0, 0, 1] = np.arange(60_000) % 256, np.arange(60_000) // 256
    monkeypatch.setattr(ttpfl, "load", lambda name, root: Dataset(name, images, labels, tuple("0123456789")))
    monkeypatch.setattr(ttpfl, "corrupt_each", lambda images, kind, severity, seeds: images.copy())
    found = hashlib.sha256()
    for client in TTPFL("numbered pixels", shift).build(0).clients:
        found.update(f"{client.id} {client.source} {client.about}".encode())
        for part in (client.train, client.val) if client.source else client.tests["test"]:
            found.update(part.images.numpy().tobytes() + part.labels.numpy().tobytes())
    assert found.hexdigest().startswith(PUBLISHED[shift])


def shares(n_clients):
    """Class shares of every client of a label shift, largest first [clients, 10]."""
    labels = np.repeat(np.arange(10), 3000)
    parts = step(labels, majors(n_clients, 10), 16.0, np.random.RandomState(0))
    return np.array([np.sort(np.bincount(labels[part], minlength=10) / len(part))[::-1] for part in parts])


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 12).map(lambda tens: 10 * tens))
def test_two_classes_of_forty_per_cent_each_in_every_client(n_clients):
    found = shares(n_clients)
    np.testing.assert_allclose(found[:, :2], 0.4, atol=0.012)
    np.testing.assert_allclose(found[:, 2:], 0.025, atol=0.005)


@settings(deadline=None, max_examples=25)
@given(st.integers(5, 120))
def test_two_major_classes_in_every_client_whatever_their_number(n_clients):
    found = shares(n_clients)
    assert (found[:, 0] < 0.53).all()
    assert (found[:, 1] > 0.28).all()
    assert (found[:, 2] < 0.05).all()


@pytest.mark.parametrize("shift", ["feature", "label", "hybrid"])
def test_targets_of_unused_images(shift):
    how = replace(SMALL, shift=shift, images=800, targets=8, target_images=50)
    plain, benchmark, data = replace(how, targets=0).build(0), how.build(0), load("digits")
    sources, targets = ([c for c in benchmark.clients if c.source == flag] for flag in (True, False))
    # The trainings are those of the partition, and only who is tested changes.
    for a, b in zip([c for c in plain.clients if c.source], sources, strict=True):
        assert torch.equal(held(a)[0], held(b)[0])
    assert [c.id for c in benchmark.clients] == list(range(24))
    assert sum(len(held(c)[1]) for c in targets) == 8 * 50
    shifted = [c.about for c in benchmark.clients]
    assert all(about.split()[0] in TARGET_KINDS for about in shifted[16:]) if shift != "label" else set(shifted) == {""}
    if shift == "label":
        seen = pixels(torch.cat([held(c)[0] for c in benchmark.clients]))
        assert len(set(seen)) == len(seen)
        assert not set(pixels(torch.cat([held(c)[0] for c in targets]))) & set(pixels(torch.cat([held(c)[0] for c in plain.clients])))
        assert set(seen) <= set(pixels(torch.from_numpy(data.images)))
    assert all(torch.equal(held(a)[0], held(b)[0]) for a, b in zip(how.build(3).clients, benchmark.clients, strict=True))


def test_without_unused_images_the_partition_keeps_its_targets():
    every, few = replace(SMALL, targets=60).build(0), replace(SMALL, images=1500, targets=60).build(0)
    assert [c.source for c in every.clients] == [True] * 16 + [False] * 4
    assert [c.source for c in few.clients] == [True] * 16 + [False] * 2


def published_pacs(labels_of, held_out):
    """The preparation of PACS in the public code, in plain loops: (training, validation) or test labels and order of every client."""
    rng = np.random.RandomState(held_out)
    clients = []
    for domain, labels in enumerate(labels_of):
        by_class = []
        for c in range(7):
            members = [i for i, y in enumerate(labels) if y == c]
            rng.shuffle(members)
            by_class.append(members)
        weights = [[16 if c in (k, (k + 1) % 7) else 1 for c in range(7)] for k in range(7)]
        parts = []
        for k in range(7):
            part = []
            for c in range(7):
                total = sum(row[c] for row in weights)
                start, stop = (int(sum(row[c] for row in weights[:m]) / total * len(by_class[c]) + 0.5) for m in (k, k + 1))
                part += by_class[c][start:stop]
            parts.append(part)
        ids = list(range(7))
        rng.shuffle(ids)
        for k in ids:
            rng.shuffle(parts[k])
            cut = round(0.8 * len(parts[k])) if domain != held_out else 0
            clients.append((parts[k][:cut], parts[k][cut:]))
    return clients


@pytest.mark.parametrize("held_out", [0, 1, 2])
def test_split_of_pacs_is_the_published_one(monkeypatch, held_out):
    draws = np.random.default_rng(1)
    labels = [draws.integers(0, 7, size) for size in (300, 260, 411)]
    images = np.zeros((971, 1, 2, 2), np.uint8)
    numbers = np.concatenate([np.arange(len(own)) for own in labels])
    images[:, 0, 0, 0], images[:, 0, 0, 1] = numbers % 256, numbers // 256
    data = Dataset("pacs", images, np.concatenate(labels), tuple("abcdefg"), np.repeat(range(3), [300, 260, 411]), ("a", "b", "c"))
    monkeypatch.setattr(ttpfl, "load", lambda name, root: data)
    monkeypatch.setattr(ttpfl, "augmented", lambda images, rng: images)
    expected = published_pacs(labels, held_out)
    for seed in (0, 1):
        built = TTPFL("pacs", n_clients=7, held_out="abc"[held_out]).build(seed)
        for client, (train, rest) in zip(built.clients, expected, strict=True):
            for samples, index in ((client.train, train), (client.val if client.source else client.tests["abc"[held_out]][0], rest)):
                seen = samples.images[:, 0, 0, 0].int() + 256 * samples.images[:, 0, 0, 1].int()
                assert seen.tolist() == list(index)


def test_majors_of_the_published_cases():
    assert majors(300, 10)[:4] == [(0, 0), (0, 0), (0, 0), (0, 1)]
    assert majors(10, 10) == [(c, (c + 1) % 10) for c in range(10)]
    assert majors(7, 7) == [(c, (c + 1) % 7) for c in range(7)]
    assert majors(300, 100)[250] == (50, 55)


def test_small_numbers_of_clients_reach_every_class():
    assert majors(2, 2) == [(0, 0), (1, 1)]
    assert {first for first, _ in majors(20, 10)} == set(range(10))
    assert {c for pair in majors(5, 10) for c in pair} == set(range(10))


def test_held_out_domain_is_the_target():
    how = TTPFL("digits5", n_clients=5, held_out="fonts")
    benchmark, data = how.build(0), load("digits5")
    assert benchmark.columns == ["fonts"]
    assert [c.about for c in benchmark.clients if not c.source] == ["fonts"] * 5
    assert len([c for c in benchmark.clients if c.source]) == 20
    ours = torch.cat([held(c)[0] for c in benchmark.clients if not c.source])
    assert pixels(ours) == pixels(torch.from_numpy(data.images[data.groups == data.group_names.index("fonts")]))


def test_whichever_domain_is_held_out_clients_hold_the_same_images():
    """Only PACS is prepared once for each of them."""
    first, other = (TTPFL("digits5", n_clients=5, held_out=name).build(0) for name in ("fonts", "plain"))
    assert [c.source for c in first.clients] != [c.source for c in other.clients]
    assert all(pixels(held(a)[0]) == pixels(held(b)[0]) for a, b in zip(first.clients, other.clients, strict=True))


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


def test_crops_of_pacs_keep_seven_tenths_of_the_area_at_least(monkeypatch):
    """Seen in an image of two ramps, across in red and down in green; grey ones tell nothing."""
    monkeypatch.setattr(ttpfl, "JITTER", (0, 0, 0, 0))
    across, down = np.meshgrid(np.linspace(0, 255, 32), np.linspace(0, 255, 32))
    image = np.stack([across, down, np.full((32, 32), 255)]).astype(np.uint8)
    found = augmented(np.tile(image, (400, 1, 1, 1)), np.random.default_rng(1)).astype(float)
    found = found[(found[:, 0] != found[:, 1]).any(axis=(1, 2))]
    red, green = (np.ptp(found[:, channel], axis=(1, 2)) / 255 for channel in (0, 1))
    assert (red * green).min() == pytest.approx(0.7, abs=0.03)
    assert (red * green).max() == pytest.approx(1, abs=0.03)


def test_colours_of_pacs_are_moved_by_three_tenths():
    """Factors of 0.7 to 1.3 in brightness, seen in plain grey, and up to 0.3 of the circle in hue, seen in plain red."""
    grey, red = (np.tile(np.array(colour, np.uint8)[:, None, None], (400, 1, 4, 4)) for colour in ((100, 100, 100), (200, 20, 20)))
    found = augmented(grey, np.random.default_rng(1))[:, 0, 2, 2] / 100
    assert (found.min(), found.max()) == pytest.approx((0.7, 1.3), abs=0.02)
    found = augmented(red, np.random.default_rng(1))[:, :, 2, 2] / 255
    turns = (np.array([colorsys.rgb_to_hsv(*colour)[0] for colour in found]) + 0.5) % 1 - 0.5
    assert (turns.min(), turns.max()) == pytest.approx((-0.3, 0.3), abs=0.02)


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
        ({"targets": -1}, "targets and images >= 0"),
        ({"images": -100}, "targets and images >= 0"),
    ],
)
def test_wrong_fields_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        TTPFL(**fields)


def test_unknown_domain_is_refused():
    with pytest.raises(ValueError, match=r"unknown domain of digits5 'font'\. Did you mean 'fonts'"):
        TTPFL("digits5", n_clients=5, held_out="font").build(0)
