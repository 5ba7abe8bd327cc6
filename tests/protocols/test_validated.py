"""Images set apart for choosing: disjoint from all else, the same trainings with and without them, shifted as promised."""

import numpy as np
import pytest
import torch

from fedlib.cache.manifest import training_manifest
from fedlib.cache.store import key_of
from fedlib.core import Local, Schedule
from fedlib.protocols import shifts
from fedlib.protocols.brfl import BRFL
from fedlib.protocols.btgfl import BTGFL
from fedlib.protocols.fedicon import Domains
from fedlib.protocols.ttpfl import TTPFL
from fedlib.protocols.upfl import UPFL
from fedlib.protocols.validated import TARGET_KINDS, Validated
from fedlib.setting import Setting
from fedlib.stages.engine import Engine
from fedlib.train.fedavg import FedAvg


def images(*parts):
    """Every image as bytes."""
    return [image.numpy().tobytes() for part in parts for image in part.images]


KINDS = [BRFL(n_clients=5), BTGFL(n_clients=5, others="test"), TTPFL(n_clients=10, images=300), UPFL(n_clients=6), Domains(n_train=60)]


@pytest.mark.parametrize("of", KINDS, ids=lambda of: type(of).__name__)
def test_what_is_chosen_on_is_nowhere_else(of):
    """Neither trained nor personalised on, and in no client's test, which has no image that a method learned from either."""
    plain, choosing = Validated(of, shifted=False).build(0), Validated(of, choosing=True, shifted=False).build(0)
    held = [part for client in choosing.clients for draws in client.tests.values() for part in draws]
    apart = set(images(*held))
    sources = [client for client in plain.clients if client.source]
    learned = set(images(*(part for client in sources for part in (client.train, client.val))))
    drawn = [part for client in plain.clients for name, draws in client.tests.items() if name != "validation" for part in draws]
    # Digits has a few images twice.
    assert len(apart & learned) <= 2
    assert len((apart | learned) & set(images(*drawn))) <= 2
    before = [client for client in of.build(0).clients if client.source]
    for old, new, (half,) in zip(before, sources, (c.tests["own"] for c in choosing.clients if c.source), strict=True):
        assert sorted(images(old.train, old.val)) == sorted(images(new.train, new.val, half))


@pytest.mark.parametrize("of", KINDS, ids=lambda of: type(of).__name__)
def test_choosing_needs_no_training_of_its_own(of):
    keys = set()
    for choosing in (False, True):
        clients = Validated(of, choosing=choosing)
        setting = Setting("s", clients, "mlp", Schedule(2, Local()))
        keys.add(key_of(training_manifest(setting, 0, FedAvg(), clients.build(0), Engine())))
    assert len(keys) == 1


def test_only_training_clients_choose():
    found = Validated(TTPFL(n_clients=10, images=300), choosing=True, shifted=False).build(0)
    assert {client.source for client in found.clients} == {True, False}
    assert all(set(client.tests) == ({"own"} if client.source else set()) for client in found.clients)


def test_shifted_streams_are_of_the_same_images_and_of_others():
    clients = Validated(BRFL(n_clients=5), choosing=True).build(0).clients
    own = [client.tests["own"][0] for client in clients]
    for k, client in enumerate(clients):
        (corrupted,), (others,) = client.tests["corrupted"], client.tests["others"]
        assert torch.equal(corrupted.labels.sort()[0], own[k].labels.sort()[0])
        assert not set(images(corrupted)) & set(images(own[k]))
        assert len(others) == len(own[k])
        assert set(images(others)) <= set(images(*(part for j, part in enumerate(own) if j != k)))


@pytest.mark.parametrize(("share", "train", "held"), [(0.2, 48, (6, 6)), (0.38, 37, (11, 12))])
def test_clients_without_a_validation_part_hold_images_back(share, train, held):
    """22.8 of 60 images are 23; the odd one of them is held out for choosing."""
    before, after = Domains(n_train=60).build(0), Validated(Domains(n_train=60), share=share).build(0)
    assert [len(client.val) for client in before.clients] == [0] * 5
    assert [(len(client.train), len(client.val)) for client in after.clients] == [(train, held[0])] * 5
    choosing = Validated(Domains(n_train=60), share=share, choosing=True).build(0)
    assert [len(client.tests["own"][0]) for client in choosing.clients if client.source] == [held[1]] * 5


def test_seeds_differ_and_the_same_seed_does_not():
    one, again, other = (Validated(BRFL(n_clients=5), choosing=True).build(seed).clients[0].tests["corrupted"][0] for seed in (0, 0, 1))
    assert torch.equal(one.images, again.images)
    assert one.images.shape != other.images.shape or not torch.equal(one.images, other.images)


def test_too_few_images_are_refused():
    with pytest.raises(ValueError, match="share must lie"):
        Validated(BRFL(), share=1.0)
    with pytest.raises(ValueError, match="too few to set some apart"):
        Validated(Domains(n_train=2, per_class=False)).build(0)


def test_halves_are_drawn():
    """Not the first and the second half of the file."""
    old, new = BRFL(n_clients=5).build(0).clients[0], Validated(BRFL(n_clients=5)).build(0).clients[0]
    place = [images(old.val).index(image) for image in images(new.val)]
    assert place == sorted(place) != list(range(len(place)))
    assert np.mean(place) == pytest.approx(len(old.val) / 2, rel=0.4)


def test_every_kind_of_corruption_is_chosen_on_at_severity_5(monkeypatch):
    met = []
    original = shifts.corrupt_each
    monkeypatch.setattr(shifts, "corrupt_each", lambda images, *how: met.append(how[:2]) or original(images, *how))
    Validated(BRFL(n_clients=5, severity=1), choosing=True).build(0)
    assert len(met) > 5  # the protocol's own tests come first
    assert [set(kinds) == set(TARGET_KINDS) for kinds, _ in met] == [False] * (len(met) - 5) + [True] * 5
    assert [set(severities) for _, severities in met] == [{1}] * (len(met) - 5) + [{5}] * 5, "whatever the tests have"


def test_parts_that_are_drawn_anew_hold_nothing_out():
    with pytest.raises(ValueError, match="hold nothing out: take the protocol with split='fixed'"):
        Validated(BRFL(n_clients=3, split="resplit")).build(0)
