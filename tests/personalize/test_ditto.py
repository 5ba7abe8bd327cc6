from dataclasses import replace

import pytest
import torch

from fedlib.core import Local
from fedlib.models import state_of
from fedlib.personalize.ditto import Ditto
from fedlib.states import part
from fedlib.train.local import plan
from tests import one_pixel, tiny
from tests.oracles import two_sided as oracle

LOCAL = Local(lr=0.1, momentum=0.5, weight_decay=0.05, batch_size=4, epochs=2)


@pytest.mark.parametrize("chunk_size", [1, 3])
@pytest.mark.parametrize(("method", "strength"), [(Ditto(), 0), (Ditto(prox=True), 1), (Ditto(prox=True, strength=0.3), 0.3)])
def test_equals_a_bare_loop_over_two_rounds(chunk_size, method, strength):
    """The personal model lives on while the received one changes; the schedule's weight decay does not act."""
    task, clients = tiny.task("convolution", chunk_size=chunk_size, personal=LOCAL), tiny.clients()
    personal = method.init(task, clients)
    expected = [state_of(task.model)] * 3
    for t in (1, 2):
        received = [state_of(tiny.net("convolution", seed=10 * t + k)) for k in range(3)]
        personal = method.fit(task, received, clients, personal, t)
        for k, client in enumerate(clients):
            steps = plan(len(client.train), LOCAL, task, task.generator("personal", client.id, t))
            expected[k] = oracle.ditto(task, expected[k], received[k], client.train, steps, LOCAL, strength)
    for k in range(3):
        for name, tensor in part(personal, "model.").items():
            torch.testing.assert_close(tensor[k], expected[k][name], rtol=0, atol=1e-9)


@pytest.mark.parametrize(("method", "moved"), [(Ditto(), 1 / 4), (Ditto(prox=True), 3 / 4), (Ditto(prox=True, strength=2), 5 / 4)])
def test_by_hand(method, moved):
    """v = (0, 0), received w = (1, -1): label 0 has the gradient (-1/2, 1/2), the pull is strength (v - w) = (-s, s), the rate 1/2.
    The other client's label 1 turns its data gradient round."""
    task, clients = one_pixel.task(personal=Local(lr=0.5, weight_decay=0.3, epochs=1)), one_pixel.clients((0,), (1,))
    personal = {"model.head.weight": torch.zeros(2, 2, 1, dtype=torch.float64)}
    result = method.fit(task, [one_pixel.state(1, -1)] * 2, clients, personal, 1)["model.head.weight"].flatten(1)
    assert result[0].tolist() == pytest.approx([moved, -moved])
    assert result[1].tolist() == pytest.approx([moved - 1 / 2, 1 / 2 - moved])


def test_without_the_term_the_received_model_does_not_matter():
    task, clients = tiny.task(), tiny.clients()
    start = Ditto().init(task, clients)
    near, far = ([state_of(tiny.net(seed=seed))] * 3 for seed in (1, 2))
    first, second = (Ditto().fit(task, received, clients, start, 1)["model.head.weight"] for received in (near, far))
    assert torch.equal(first, second)
    prox = Ditto(prox=True)
    assert not torch.equal(*(prox.fit(task, received, clients, start, 1)["model.head.weight"] for received in (near, far)))
    assert Ditto().persistent


def test_weight_decay_is_its_own():
    task, clients = tiny.task(), tiny.clients()
    start, received = Ditto().init(task, clients), [state_of(task.model)] * 3
    plain, decayed = (method.fit(task, received, clients, start, 1)["model.head.weight"] for method in (Ditto(), Ditto(weight_decay=0.1)))
    assert decayed.norm() < plain.norm()
    same = replace(task, schedule=replace(task.schedule, personal=replace(task.schedule.personal, weight_decay=0.5)))
    assert torch.equal(Ditto().fit(same, received, clients, start, 1)["model.head.weight"], plain)


def test_bad_options():
    with pytest.raises(ValueError, match="strength"):
        Ditto(strength=-1)
