import numpy as np
import pytest
import torch

from fedlib.data import load
from fedlib.protocols import brfl_imagenet
from fedlib.protocols.brfl import BRFL
from fedlib.protocols.brfl_imagenet import SHIFTED, BRFLImageNet

CLIENTS, ALPHA = 5, 0.5


@pytest.fixture(scope="module")
def benchmark():
    return BRFLImageNet("digits", CLIENTS, ALPHA).build(1)


def keys(samples):
    return [image.numpy().tobytes() for image in samples.images]


def test_training_is_brfls(benchmark):
    """So that one federated training serves both."""
    other = BRFL("digits", CLIENTS, ALPHA, natural_size=100).build(1)
    assert benchmark.transform == other.transform
    for a, b in zip(benchmark.clients, other.clients, strict=True):
        assert torch.equal(a.train.images, b.train.images)
        assert torch.equal(a.val.labels, b.val.labels)
        assert sorted(keys(a.tests["original"][0])) == sorted(keys(b.tests["original"][0]))


def test_shifted_sets_follow_the_clients_classes_and_share_no_image(benchmark):
    assert benchmark.columns == ["original", *SHIFTED, "mixture"]
    learnt = {key for c in benchmark.clients for s in (c.train, c.val) for key in keys(s)}
    seen = []
    for client in benchmark.clients:
        counts = torch.bincount(client.train.labels, minlength=10)
        for column in SHIFTED:
            [samples] = client.tests[column]
            seen += keys(samples)
            shares = torch.bincount(samples.labels, minlength=10)
            assert torch.corrcoef(torch.stack([counts.float(), shares.float()]))[0, 1] > 0.8
    assert len(set(seen)) == len(seen)
    assert not learnt & set(seen)


def test_the_mixture_has_the_size_of_the_local_test_and_its_four_sources(benchmark):
    sources = set()
    for client in benchmark.clients:
        [mixture] = client.tests["mixture"]
        assert len(mixture) == len(client.tests["original"][0])
        origin = {key: column for column in ("original", *SHIFTED) for key in keys(client.tests[column][0])}
        found = [origin[key] for key in keys(mixture)]
        assert len(set(keys(mixture))) == len(mixture)
        sources |= set(found)
    assert sources == {"original", *SHIFTED}


def test_stand_ins_are_named(benchmark):
    assert benchmark.stand_in == "ImageNet-32"
    assert "stand-ins" in benchmark.notes[0]


def test_the_hardest_stand_in_has_images_of_its_own_under_the_severest_corruptions(monkeypatch):
    severities = []
    monkeypatch.setattr(brfl_imagenet, "corrupted", lambda samples, severity, rng: severities.append(severity) or samples)
    clean = brfl_imagenet._digits(1)
    assert severities == [5]
    images = {name: {image.tobytes() for image in data.images} for name, data in clean.items()}
    assert [len(images[name]) for name in SHIFTED] == [300] * 3
    assert not images["imagenet_a"] & images["imagenet_v2"], "before they are corrupted"


def test_seeds_and_the_leak():
    one, two = (BRFLImageNet("digits", CLIENTS, ALPHA, split="resplit").build(seed) for seed in (1, 2))
    assert not torch.equal(one.clients[0].train.images, two.clients[0].train.images)
    assert len(one.clients[0].pool) > len(one.clients[0].train)
    assert any("leak" in note for note in one.notes)


def test_a_client_without_images_of_a_set_lacks_its_column(monkeypatch):
    first_class = load("digits_natural").select(np.arange(40))
    monkeypatch.setattr(brfl_imagenet, "_digits", lambda seed: dict.fromkeys(SHIFTED, first_class))
    clients = BRFLImageNet("digits", CLIENTS, ALPHA).build(1).clients
    for client in clients:
        assert ("imagenet_a" in client.tests) == ("imagenet_r" in client.tests)
        assert all(len(draw) for draws in client.tests.values() for draw in draws)
    assert not all("imagenet_a" in client.tests for client in clients)


@pytest.mark.parametrize("wrong", [{"dataset": "cifar10"}, {"split": "none"}, {"alpha": 0.0}, {"n_clients": 1}])
def test_bad_values(wrong):
    with pytest.raises(ValueError):
        BRFLImageNet(**wrong)


def test_missing_images(tmp_path):
    with pytest.raises(FileNotFoundError, match="imagenet32"):
        BRFLImageNet().build(0, str(tmp_path))
