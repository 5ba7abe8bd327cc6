"""What every federated method owes the round loop: same bits after an interruption, stacks equal to loops, received states left alone."""

from dataclasses import replace

import pytest
import torch

from fedlib import federation
from fedlib.cache.store import Store
from fedlib.core import Local
from fedlib.train.afl import AFL
from fedlib.train.fedadg import FedADG
from fedlib.train.fedavg import FedAvg
from fedlib.train.fedmd import FedMD
from fedlib.train.fedper import FedPer
from fedlib.train.fedprox import FedProx
from fedlib.train.fedsr import FedSR
from fedlib.train.fedtta import FedTTA, Rates
from fedlib.train.gma import GMA
from fedlib.train.hetero import HeteroFedTTA, HeteroTent
from fedlib.train.odpfl_hn import ODPFLHN
from fedlib.train.scaffold import SCAFFOLD
from tests import tiny
from tests.unequal import NAMES

LOCAL = Local(lr=0.1, weight_decay=1e-4, batch_size=4, steps=3, clip=10.0, decay=0.9, continued=True)
METHODS = {
    "FedAvg": FedAvg(weighting="samples"),
    "FedProx": FedProx(0.5),
    "SCAFFOLD": SCAFFOLD(),
    "AFL": AFL(),
    "GMA": GMA(weighting="samples", server_lr=1.5),
    "FedADG": FedADG(widths=(6, 4)),
    "FedSR": FedSR(),
    "FedPer": FedPer(),
    "ODPFL-HN": ODPFLHN(),
    "FedTTA": FedTTA(Rates(0.3, 0.1, 0.05)),
    "FedTTA-Prox": FedTTA(Rates(0.3, 0.1, 0.05), mu=0.1, order="hybrid"),
    "FedMD, Tent": FedMD(HeteroTent(), NAMES, batch_size=4),
    "FedMD, FedTTA": FedMD(HeteroFedTTA(hidden=(3, 4, 5)), NAMES, batch_size=4),
}


def task(rounds=3, processes=1, kind="plain", **fields):
    made = tiny.task(kind, local=LOCAL, rounds=rounds, **fields)
    return replace(made, public=tiny.samples(7, 99).images, processes=processes)


def trained(method, store, rounds=3, **fields):
    return federation.run(task(rounds, **fields), method, tiny.clients(), store, "key", {}, progress=False)


def assert_equal(first, second, atol=0.0):
    assert set(first) == set(second)
    for group in first:
        assert set(first[group]) == set(second[group])
        for name, tensor in first[group].items():
            torch.testing.assert_close(second[group][name], tensor, rtol=0, atol=atol)


@pytest.mark.parametrize("name", METHODS)
def test_resumed_is_uninterrupted_bit_for_bit(tmp_path, name):
    """Epochs of 3, 2 and 4 batches against 3 steps a round: a resumed run has to find its place within an epoch."""
    whole = trained(METHODS[name], Store(None)).state(4)
    store = Store(tmp_path)
    trained(METHODS[name], store, rounds=1)
    assert_equal(whole, trained(METHODS[name], store).state(4))


@pytest.mark.parametrize("name", [n for n in METHODS if n != "FedSR"])
def test_stacked_clients_equal_one_by_one(name):
    """FedSR draws the noise of a stack jointly, as dropout does."""
    one, stacked = (trained(METHODS[name], Store(None), rounds=2, chunk_size=size).state(3) for size in (1, 3))
    assert_equal(one, stacked, atol=1e-9)


@pytest.mark.parametrize("chunk_size", [1, 3])
@pytest.mark.parametrize("name", [name for name in METHODS if not name.startswith("FedMD")])
def test_dropout_follows_the_seed_and_not_what_was_drawn_before(name, chunk_size):
    """FedMD's clients have networks of their own."""
    ended = []
    for before in (1, 2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(before)
            ended.append(trained(METHODS[name], Store(None), rounds=2, kind="dropout", chunk_size=chunk_size).state(3))
    assert_equal(*ended)
    without = trained(METHODS[name], Store(None), rounds=2, chunk_size=chunk_size).state(3)
    assert any(not torch.equal(tensor, without["model"][n]) for n, tensor in ended[0]["model"].items())


@pytest.mark.parametrize("name", METHODS)
def test_a_round_leaves_what_it_received_and_learns(name):
    made, clients, method = task(), tiny.clients(), METHODS[name]
    server = method.init(made, clients)
    before = {group: {n: t.clone() for n, t in state.items()} for group, state in server.items()}
    messages = method.update(made, server, clients, 1)
    after = method.aggregate(made, server, messages, clients, 1)
    assert_equal(server, before)
    assert any(not torch.equal(after["model"][n], t) for n, t in server["model"].items())
    assert not any(t.requires_grad for state in after.values() for t in state.values())


@pytest.mark.parametrize("name", METHODS)
def test_worker_processes_change_no_bit(handed, name):
    """FedADG and FedTTA train in their own ways, and FedMD has one client of each size here."""
    alone, shared = (trained(METHODS[name], Store(None), rounds=2, processes=processes).state(3) for processes in (1, 2))
    assert_equal(alone, shared)
    assert bool(handed) == (not name.startswith(("FedADG", "FedTTA", "FedMD")))
