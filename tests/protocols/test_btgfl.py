"""BTGFL's five sets, told apart by numbers written into the images' corners."""

import numpy as np
import pytest
import torch

from fedlib.core import Local, Recipe, Samples, Schedule
from fedlib.data import Dataset, load
from fedlib.experiment import run
from fedlib.protocols import brfl, btgfl
from fedlib.protocols.brfl import BRFL
from fedlib.protocols.btgfl import BTGFL, COLUMNS
from fedlib.setting import Setting
from fedlib.train.fedavg import FedAvg

CLIENTS = 5
TRAIN, SHIFTED = 600, 200


@pytest.fixture(scope="module")
def dataset():
    """600 training images and 200 test images, the latter standing in for the shifted set; image i holds i in its first two pixels."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 200, (TRAIN + SHIFTED, 16, 16, 1), dtype=np.uint8)
    numbers = np.arange(TRAIN + SHIFTED)
    images[:, 0, 0, 0], images[:, 0, 1, 0] = numbers // 256, numbers % 256
    labels = numbers % 4
    data = Dataset("numbered", images.transpose(0, 3, 1, 2), labels, tuple("0123"), is_test=numbers >= TRAIN)
    with pytest.MonkeyPatch.context() as patch:
        for module in (brfl, btgfl):
            patch.setattr(module, "load", lambda name, root, **options: data if name == "numbered" else load(name, root, **options))
        yield "numbered"


@pytest.fixture(scope="module")
def build(dataset):
    return lambda seed=0, **fields: BTGFL(dataset, n_clients=CLIENTS, alpha=0.5, natural_size=100, **fields).build(seed)


def numbers(samples: Samples) -> list[int]:
    corner = samples.images[:, 0, 0, :2].long()
    return (256 * corner[:, 0] + corner[:, 1]).tolist()


def shifted(samples: Samples) -> list[int]:
    """Numbers of the naturally shifted images; a corrupted image's corner can hold one by accident, but then not the image's own pixels."""
    return [n for n in numbers(samples) if TRAIN <= n < TRAIN + SHIFTED]


def test_tests_with_images_of_the_shifted_set_tell_that_it_is_a_stand_in(build):
    assert build().stand_in_columns == ("shifted_ind", "shifted_exd", "synthetical")
    assert BTGFL("digits", n_clients=4, alpha=1.0).build(0).stand_in_columns == ()
    assert BTGFL("digits5", n_clients=4, alpha=1.0).build(0).stand_in_columns == ()


def test_sizes(build):
    benchmark = build()
    sizes = [{column: len(draws[0]) for column, draws in client.tests.items()} for client in benchmark.clients]
    held = [len(client.val) + len(client.tests["original_ind"][0]) for client in benchmark.clients]
    pieces = [s["shifted_ind"] - s["original_ind"] for s in sizes]
    for k, (client, size) in enumerate(zip(benchmark.clients, sizes, strict=True)):
        assert tuple(client.tests) == COLUMNS
        assert (len(client.train), len(client.val), size["original_ind"]) == (72, 23, 24)
        assert size["original_exd"] == (sum(held) - held[k]) // (CLIENTS - 1) == 47
        assert size["shifted_exd"] - size["original_exd"] == (sum(pieces) - pieces[k]) // (CLIENTS - 1)
        assert size["synthetical"] == 4 * (pieces[k] // 2)
    assert 0 < sum(pieces) <= 100


def test_internal_images_are_the_clients_own(build):
    for client in build().clients:
        own = numbers(client.tests["original_ind"][0])
        parts = [set(numbers(client.train)), set(numbers(client.val)), set(own)]
        assert len(set.union(*parts)) == 119 == sum(map(len, parts))


def test_external_images_are_others_held_out_ones(build):
    clients = build().clients
    for client in clients:
        drawn = numbers(client.tests["original_exd"][0])
        held = {n for c in clients if c.id != client.id for n in numbers(c.val) + numbers(c.tests["original_ind"][0])}
        assert len(set(drawn)) == len(drawn)
        assert set(drawn) <= held


def test_external_images_may_be_those_of_tests_alone(build):
    clients = build(others="test").clients
    for client in clients:
        drawn = numbers(client.tests["original_exd"][0])
        tests = {n for c in clients if c.id != client.id for n in numbers(c.tests["original_ind"][0])}
        assert len(set(drawn)) == len(drawn) == round(len(tests) / (CLIENTS - 1))
        assert set(drawn) <= tests


def test_shifted_images_of_others_exclude_the_clients_own(build):
    clients = build().clients
    pieces = [set(shifted(client.tests["shifted_ind"][0])) for client in clients]
    for client, piece in zip(clients, pieces, strict=True):
        others = set.union(*(p for p in pieces if p is not piece))
        drawn = set(shifted(client.tests["shifted_exd"][0]))
        assert drawn
        assert len(drawn & others) >= len(drawn) - 1
        assert not drawn & piece


def test_labels_follow_the_images_through_corruption_and_order(build):
    """Class counts of a shifted set are those of the clean set and the piece."""
    for client in build().clients:
        clean, mixed = client.tests["original_ind"][0], client.tests["shifted_ind"][0]
        natural = [n for n in shifted(mixed) if n % 4 in mixed.labels]
        counts = torch.bincount(mixed.labels, minlength=4) - torch.bincount(clean.labels, minlength=4)
        assert counts.min() >= 0
        assert counts.sum() == len(mixed) - len(clean) <= len(natural) + 1
        assert not torch.equal(mixed.labels, mixed.labels.sort().values)


def test_half_and_half(build):
    for client in build(shift_mix="half").clients:
        for side in ("ind", "exd"):
            mixed = client.tests[f"shifted_{side}"][0]
            assert len(mixed) % 2 == 0
            assert abs(len(shifted(mixed)) - len(mixed) // 2) <= 1


@pytest.mark.parametrize("split", ["fixed", "resplit"])
def test_clients_are_brfls(dataset, build, split):
    """Equal partitions and training parts in the same order, so that trainings are shared."""
    brfl = BRFL(dataset, n_clients=CLIENTS, alpha=0.5, natural_size=100, split=split).build(0)
    ours = build(split=split)
    for theirs, client in zip(brfl.clients, ours.clients, strict=True):
        for part in ("train", "val"):
            assert torch.equal(getattr(theirs, part).images, getattr(client, part).images)
        assert (client.pool is None) == (split == "fixed")
        assert numbers(theirs.tests["original"][0]) != numbers(client.train)
    assert any("leak" in note for note in ours.notes) == (split == "resplit")
    if split == "resplit":
        first = ours.clients[0]
        assert set(numbers(first.redrawn(torch.Generator().manual_seed(1)).train)) & set(numbers(first.tests["original_ind"][0]))


def test_a_training_on_brfls_clients_is_reused(dataset, tmp_path):
    """Although no test stream is shared."""
    schedule = Schedule(1, Local(lr=0.1, batch_size=32, epochs=1))
    fields = {"n_clients": CLIENTS, "alpha": 0.5, "natural_size": 100}
    for protocol, known in ((BRFL(dataset, **fields), False), (BTGFL(dataset, **fields), True)):
        rows = run([Setting("x", protocol, "mlp", schedule)], {"FedAvg": Recipe(FedAvg())}, [0], cache=str(tmp_path))
        assert rows["train_cached"].all() == known
        assert not rows["cached"].any()


def test_seed_decides(build):
    first, again, other = (build(seed).clients[0].tests["shifted_exd"][0].images for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert first.shape != other.shape or not torch.equal(first, other)


def test_corruption_draws_differ(build):
    draws = build(corruption_draws=2).clients[0].tests["shifted_ind"]
    assert len(draws) == 2
    assert not torch.equal(*(draw.images.sort(0).values for draw in draws))


def test_too_few_shifted_images_are_told():
    benchmark = BTGFL("digits", n_clients=6, natural_size=10).build(0)
    assert benchmark.notes == ("shifted: too few images for 6 of 6 clients, and without any a test is of corrupted ones",)
    assert not BTGFL("digits", n_clients=6, natural_size=300).build(0).notes


def test_held_out_domain():
    benchmark = BTGFL("digits5", n_clients=4, alpha=1.0, domain="clutter").build(0)
    assert benchmark.in_shape == (3, 16, 16)
    assert benchmark.notes == ("shifted: the held-out domain clutter",)
    assert sum(len(c.train) + len(c.val) + len(c.tests["original_ind"][0]) for c in benchmark.clients) < 2247 - 300


def test_fewer_classes():
    benchmark = BTGFL(n_clients=4, alpha=1.0, natural_size=100, classes=3).build(0)
    assert benchmark.classes == ("0", "1", "2")
    assert all(draw.labels.max() <= 2 for client in benchmark.clients for draws in client.tests.values() for draw in draws)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"split": "leaky"}, "resplit"),
        ({"shift_mix": "halves"}, "half"),
        ({"alpha": 0.0}, "alpha"),
        ({"severity": 6}, "severity"),
        ({"domain": "Art"}, "no domains"),
        ({"classes": 1}, "classes"),
        ({"others": "train"}, "parts of the other clients"),
    ],
)
def test_bad_fields(fields, message):
    with pytest.raises(ValueError, match=message):
        BTGFL(**fields)


def test_bad_domain():
    with pytest.raises(ValueError, match="clutter"):
        BTGFL("digits5", domain="cluter").build(0)


def test_a_method_without_memory_scores_the_mean_of_four_on_the_synthetical_set():
    """A method without memory has on E the mean of A to D up to sampling: 4 x 14 images of each of 6 clients."""
    setting = Setting("x", BTGFL(n_clients=6, alpha=1.0, natural_size=200), "mlp", Schedule(6, Local(lr=0.1, batch_size=16, epochs=2)))
    rows = run([setting], {"FedAvg": Recipe(FedAvg())}, [0], cache=None)
    means = rows.groupby("column")["accuracy"].mean()
    n = rows[rows["column"] == "synthetical"]["n"].sum()
    assert 25 < means["synthetical"] < 95
    assert abs(means["synthetical"] - means[list(COLUMNS[:4])].mean()) < 3 * 50 / np.sqrt(n)
