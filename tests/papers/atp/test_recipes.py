from dataclasses import replace

import pytest
import torch

from fedlib.papers.atp.recipes import Grids, recipes
from fedlib.personalize.rates import Rates
from fedlib.states import slice_of
from tests import tiny
from tests.adapt.cases import case

GRIDS = Grids((1e-2, 1e-1), (4, 16), (0.0, 0.1), (-1, 1), (1, 2), ("block1", "head"))
TABLE = recipes(rates=Rates(2, 2, batch_size=3), batch_size=3, grids=GRIDS)


def shuffled(client):
    """The same client with other labels on its tests, and on all its parts where it is a target."""
    other = lambda s: replace(s, labels=(s.labels + 1) % tiny.CLASSES)  # noqa: E731
    tests = {column: tuple(map(other, draws)) for column, draws in client.tests.items()}
    return replace(client, tests=tests) if client.source else replace(client, tests=tests, train=other(client.train), val=other(client.val))


def scores(recipe, clients):
    task, state, _ = case()
    received = [state] * len(clients)
    personal = {}
    if recipe.personalize:
        personal = recipe.personalize.fit(task, received, clients, recipe.personalize.init(task, clients), 1)
    return recipe.adapt.run(task, state, slice_of(personal, 3), clients[3].stream("original")).scores


@pytest.mark.parametrize("name", TABLE)
def test_no_test_label_and_no_label_of_a_target_client_matters(name):
    clients = [*tiny.clients(), tiny.client(3, source=False)]
    first = scores(TABLE[name], clients)
    assert torch.equal(scores(TABLE[name], [shuffled(client) for client in clients]), first)
    assert first.shape == (7, 3)


def test_validation_labels_of_source_clients_do_matter_to_learned_rates():
    clients = [*tiny.clients(), tiny.client(3, source=False)]
    other = [replace(c, val=replace(c.val, labels=(c.val.labels + 1) % 3)) for c in clients]
    assert not torch.equal(scores(TABLE["ATP-batch"], clients), scores(TABLE["ATP-batch"], other))
