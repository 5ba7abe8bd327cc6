from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy

from fedlib.core import Local
from fedlib.models import state_of
from fedlib.personalize.fine_tune import FineTune
from fedlib.train.local import plan
from tests import tiny
from tests.oracles import local as oracle

LOCAL = Local(lr=0.1, weight_decay=0.05, batch_size=4, epochs=2)


@pytest.mark.parametrize("chunk_size", [1, 3])
@pytest.mark.parametrize("loss", ["cross_entropy", "balanced_softmax"])
def test_equals_a_bare_loop_from_each_received_model(chunk_size, loss):
    task, clients = tiny.task("convolution", chunk_size=chunk_size, personal=LOCAL), tiny.clients()
    states = [state_of(tiny.net("convolution", seed=k)) for k in range(3)]
    personal = FineTune(loss).fit(task, states, clients, FineTune(loss).init(task, clients), 4)
    for k, client in enumerate(clients):
        counts = torch.bincount(client.train.labels, minlength=3).double()
        prior = (counts + 1).log() if loss == "balanced_softmax" else 0 * counts
        steps = plan(len(client.train), LOCAL, task, task.generator("personal", k, 4))
        expected = oracle.train(task, states[k], client.train, steps, LOCAL, loss=lambda g, y, p=prior: cross_entropy(g + p, y))
        assert set(personal) == {f"model.{name}" for name in expected}
        for name, tensor in expected.items():
            torch.testing.assert_close(personal[f"model.{name}"][k], tensor, rtol=0, atol=1e-10)


@pytest.mark.parametrize("chunk_size", [1, 3])
def test_after_the_milestone_the_rate_is_a_tenth(chunk_size):
    """Uneven clients, momentum kept: as torch.optim with a rate that is set between epochs."""
    local = Local(lr=0.1, momentum=0.5, weight_decay=0.05, batch_size=4, epochs=3, milestone=2)
    task, clients = tiny.task("convolution", chunk_size=chunk_size, personal=local), tiny.clients()
    states = [state_of(tiny.net("convolution", seed=k)) for k in range(3)]
    personal = FineTune().fit(task, states, clients, {}, 4)
    for k, client in enumerate(clients):
        steps = plan(len(client.train), local, task, task.generator("personal", k, 4))
        rates = [0.1] * (2 * len(steps) // 3) + [0.01] * (len(steps) // 3)
        expected = oracle.train(task, states[k], client.train, steps, local, rates=rates)
        for name, tensor in expected.items():
            torch.testing.assert_close(personal[f"model.{name}"][k], tensor, rtol=0, atol=1e-10)


def test_rounds_and_clients_draw_apart():
    task, state = tiny.task(), state_of(tiny.net())
    twins = [tiny.client(0), replace(tiny.client(0), id=1)]
    first, second = (FineTune().fit(task, [state] * 2, twins, {}, t)["model.head.weight"] for t in (1, 2))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], second[0])


def test_it_does_not_persist():
    assert not FineTune().persistent


def test_bad_loss():
    with pytest.raises(ValueError, match="balanced_softmax"):
        FineTune("balanced")


@pytest.mark.parametrize("own", [{"lr": 0.03}, {"epochs": 3}])
def test_an_own_rate_or_length_takes_the_place_of_the_schedules(own):
    clients, state = tiny.clients(), state_of(tiny.net())
    ours = FineTune(**own).fit(tiny.task(personal=LOCAL), [state] * 3, clients, {}, 1)
    theirs = FineTune().fit(tiny.task(personal=replace(LOCAL, **own)), [state] * 3, clients, {}, 1)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    # Also of a schedule that counts steps.
    counted = FineTune(**own).fit(tiny.task(personal=replace(LOCAL, steps=1)), [state] * 3, clients, {}, 1)
    expected = (
        theirs if "epochs" in own else FineTune().fit(tiny.task(personal=replace(LOCAL, steps=1, **own)), [state] * 3, clients, {}, 1)
    )
    assert all(torch.equal(counted[name], expected[name]) for name in expected)
