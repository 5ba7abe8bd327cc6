"""The contract of a personal part, for every personalisation that a paper's recipes use."""

from dataclasses import replace

import pytest
import torch

from fedlib.core import Local
from fedlib.models import state_of
from fedlib.papers.atp import recipes as atp
from fedlib.papers.btfl import recipes as btfl
from fedlib.papers.fedicon import recipes as fedicon
from fedlib.papers.fedthe import recipes as fedthe
from tests import tiny

TABLES = (fedthe.RECIPES, btfl.recipes(), atp.RECIPES, fedicon.RECIPES)
# They need features without sign, named blocks, a large cohort: their own files test them.
PARTICULAR = {"BTFLPersonal", "Select", "Rates"}
USED = {type(r.personalize).__name__: r.personalize for table in TABLES for r in table.values() if r.personalize}
TRAINED = ("FineTune", "WithFisher", "APFL", "FedRepHead", "Ditto", "FedRoD", "JointRotation")
METHODS = {name: method for name, method in USED.items() if name not in PARTICULAR}


def rows(part):
    return {name: len(tensor) for name, tensor in part.items() if not name.startswith("shared.")}


@pytest.mark.parametrize("name", METHODS)
def test_every_client_has_a_row_and_the_received_models_stay(name):
    method, clients = METHODS[name], tiny.clients()
    task = tiny.task("batchnorm", local=Local(lr=0.05, batch_size=4, epochs=1, smallest=2))
    received = [{key: tensor + 0.01 * k for key, tensor in state_of(task.model).items()} for k in range(len(clients))]
    before = [{key: tensor.clone() for key, tensor in state.items()} for state in received]
    start = method.init(task, clients)
    part = method.fit(task, received, clients, start, 1)
    assert part
    assert set(rows(start).values()) | set(rows(part).values()) == {len(clients)}
    assert all(torch.equal(state[key], old[key]) for state, old in zip(received, before, strict=True) for key in old)
    # A part that lives on must be what the next phase starts from.
    assert not method.persistent or set(start) <= set(part)


@pytest.mark.parametrize("name", METHODS)
def test_worker_processes_change_no_bit(handed, name):
    """Whatever trains with minibatches is shared out; the others fit heads, memories and rates on features."""
    method, clients = METHODS[name], tiny.clients()
    task = tiny.task("batchnorm", local=Local(lr=0.05, batch_size=4, epochs=1, smallest=2))
    received = [{key: tensor + 0.01 * k for key, tensor in state_of(task.model).items()} for k in range(len(clients))]
    start = method.init(task, clients)
    alone, shared = (method.fit(replace(task, processes=n), received, clients, start, 1) for n in (1, 2))
    assert alone.keys() == shared.keys()
    assert all(torch.equal(alone[key], shared[key]) for key in alone)
    assert bool(handed) == (name in TRAINED)
