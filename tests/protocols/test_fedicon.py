import numpy as np
import pytest
import torch

from fedlib.core import Schedule
from fedlib.data import load
from fedlib.data.dataset import Dataset
from fedlib.data.digits import DOMAINS
from fedlib.experiment import make_task
from fedlib.protocols import fedicon
from fedlib.protocols.fedicon import Domains
from fedlib.setting import Setting
from fedlib.stages.engine import Engine
from fedlib.train.fedavg import FedAvg

SMALL = {"n_train": 30}


def held(samples):
    return {image.numpy().tobytes() for image in samples.images}


def test_one_domain_per_client():
    benchmark = Domains(**SMALL).build(0)
    data = load("digits5")
    for client, domain in zip(benchmark.clients, DOMAINS, strict=True):
        assert client.about == domain
        assert list(client.tests) == [domain]
        own = data.select((data.groups == DOMAINS.index(domain)) & ~data.is_test)
        assert held(client.train) <= {image.tobytes() for image in own.images}
        assert len(client.train) == 30
        assert len(client.tests[domain][0]) == 90
    assert benchmark.transform.augment == "none"
    assert benchmark.stand_in == "Digits-5"


def test_tests_are_corrupted_once_whatever_the_seed():
    first, second = (Domains(**SMALL).build(seed) for seed in (0, 7))
    clean = Domains(shift="domain", held_out="plain", **SMALL).build(0).clients[0].tests["plain"][0]
    test = first.clients[0].tests["plain"][0]
    assert torch.equal(test.images, second.clients[0].tests["plain"][0].images)
    assert torch.equal(test.labels, clean.labels)
    # Nearly every image is visibly changed; an elastic or pixelated one may stay close.
    assert (test.images != clean.images).flatten(1).any(1).double().mean() > 0.95


def test_an_unseen_domain_is_the_same_for_all():
    benchmark = Domains(shift="domain", held_out="fonts", domains=4, **SMALL).build(0)
    assert [client.about for client in benchmark.clients] == ["plain", "clutter", "lowres"]
    first, *others = (client.tests["fonts"][0] for client in benchmark.clients)
    assert all(torch.equal(first.images, other.images) for other in others)
    assert held(first) == {image.tobytes() for image in load("digits5").images[_test_index("fonts")]}
    assert len(first) == len(_test_index("fonts"))


def _test_index(domain):
    data = load("digits5")
    return np.flatnonzero((data.groups == DOMAINS.index(domain)) & data.is_test)


def test_the_shared_model_scores_the_same_for_each_client():
    protocol = Domains(shift="domain", held_out="fonts", **SMALL)
    benchmark = protocol.build(0)
    task = make_task(Setting("s", protocol, "fedicon_cnn_small", Schedule()), benchmark, 0, Engine())
    state = FedAvg().init(task, benchmark.clients)["model"]
    logits = [task.predict(state, client.tests["fonts"][0].images)[1] for client in benchmark.clients]
    assert all(torch.equal(logits[0], other) for other in logits)


def test_more_clients_split_the_same_images():
    whole, split = Domains(**SMALL).build(0), Domains(n_clients=10, **SMALL).build(0)
    for k, client in enumerate(whole.clients):
        parts = [split.clients[k], split.clients[k + 5]]
        assert sorted(held(client.train)) == sorted(set().union(*(held(part.train) for part in parts)))
        assert [len(part.train) for part in parts] == [15, 15]
        (column,) = client.tests
        assert sum(len(part.tests[column][0]) for part in parts) == len(client.tests[column][0])
        assert held(client.tests[column][0]) == set().union(*(held(part.tests[column][0]) for part in parts))


def test_a_single_domain():
    benchmark = Domains(only="blend", n_clients=3, n_train=60).build(0)
    assert [client.about for client in benchmark.clients] == ["blend"] * 3
    assert len(set().union(*(held(client.train) for client in benchmark.clients))) == 60


def test_first_images_per_class():
    client = Domains(n_train=2, per_class=True, n_test=3).build(0).clients[1]
    assert torch.bincount(client.train.labels).tolist() == [2] * 10
    assert torch.bincount(client.tests["clutter"][0].labels).tolist() == [3] * 10


def fake(name, is_test=None, n=600):
    """Two domains of ten classes; every pixel of image i tells i."""
    rng = np.random.default_rng(0)
    images = np.broadcast_to((np.arange(n) % 256).astype(np.uint8)[:, None, None, None], (n, 3, 8, 8)).copy()
    return Dataset(name, images, rng.integers(0, 10, n), tuple("0123456789"), np.arange(n) % 2, ("a", "b"), is_test)


def test_fedbn_files_are_taken_in_their_order_at_32_pixels(monkeypatch):
    data = fake("digits5_fedbn", is_test=np.arange(600) >= 400)
    asked = {}
    monkeypatch.setattr(fedicon, "load", lambda name, root, **options: asked.update(options) or data)
    benchmark = Domains("digits5_fedbn", n_train=20).build(0)
    assert asked == {"size": 32}
    assert benchmark.clients[1].train.images[:, 0, 0, 0].tolist() == list(range(1, 41, 2))


def test_image_folders_sorted_by_class_are_shuffled(monkeypatch):
    data = fake("digits5_fedbn")
    by_class = data.select(np.lexsort((data.labels, data.groups)))
    monkeypatch.setattr(fedicon, "load", lambda name, root, **options: by_class)
    for client in Domains("digits5_fedbn", n_train=60).build(0).clients:
        assert len(client.train.labels.unique()) == 10


def test_without_official_test_a_fifth_is_one(monkeypatch):
    monkeypatch.setattr(fedicon, "load", lambda name, root, **options: fake("pacs"))
    benchmark = Domains("pacs", n_train=None, n_test=None).build(0)
    assert [(len(c.train), len(next(iter(c.tests.values()))[0])) for c in benchmark.clients] == [(240, 60)] * 2
    assert benchmark.transform.augment == "sample"
    assert benchmark.transform.std == (1.0, 1.0, 1.0)


def test_published_test_sizes(monkeypatch):
    """Of USPS, fewer than 200 test images of classes 2 to 9 are left: 1,695 in all, and 2,000 of the other domains. One image of each
    is for training here."""
    counts = {"MNIST": [1400] * 10, "USPS": [310, 254, 186, 164, 170, 143, 166, 158, 141, 168]}
    labels = np.concatenate([np.repeat(np.arange(10), c) for c in counts.values()])
    groups = np.repeat([0, 1], [sum(c) for c in counts.values()])
    train = np.isin(np.arange(len(labels)), [0, len(labels) - 1])
    images = np.zeros((len(labels), 3, 8, 8), np.uint8)
    data = Dataset("digits5_fedbn", images, labels, tuple("0123456789"), groups, ("MNIST", "USPS"), ~train)
    monkeypatch.setattr(fedicon, "load", lambda name, root, **options: data)
    monkeypatch.setattr(fedicon, "corrupted", lambda samples, severity, rng: samples)
    sizes = [len(next(iter(c.tests.values()))[0]) for c in Domains("digits5_fedbn").build(0).clients]
    assert sizes == [2000, 1695]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"shift": "domains"}, "domain"),
        ({"shift": "domain"}, "held_out"),
        ({"held_out": "plain"}, "held_out"),
        ({"n_train": 0}, "n_train"),
        ({"severity": 6}, "severity"),
    ],
)
def test_bad_fields(fields, message):
    with pytest.raises(ValueError, match=message):
        Domains(**fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_clients": 7}, "multiple of 5"),
        ({"only": "plane"}, "plain"),
        ({"shift": "domain", "held_out": "blend", "domains": 4}, "blend"),
        ({"dataset": "digits"}, "no domains"),
        ({"shift": "domain", "held_out": "plain", "only": "plain"}, "no domain of digits5 is left to train on"),
        ({"n_train": 1, "n_clients": 10}, "0 training"),
    ],
)
def test_what_cannot_be_built(fields, message):
    with pytest.raises(ValueError, match=message):
        Domains(**fields).build(0)


def test_every_domain_draws_its_own_corruptions(monkeypatch):
    draws = []
    monkeypatch.setattr(fedicon, "corrupted", lambda samples, severity, rng: draws.append(rng.random(3).tolist()) or samples)
    Domains(**SMALL).build(0)
    assert len({tuple(d) for d in draws}) == len(DOMAINS)
