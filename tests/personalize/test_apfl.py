import math
from dataclasses import replace

import pytest
import torch

from fedlib.adapt.mixture import ModelMixture
from fedlib.core import Local
from fedlib.models import state_of
from fedlib.personalize.apfl import APFL
from fedlib.states import part, slice_of
from fedlib.train.local import plan
from tests import one_pixel, tiny
from tests.oracles import apfl as oracle

LOCAL = Local(lr=0.1, momentum=0.5, weight_decay=0.05, batch_size=4, epochs=2)


@pytest.mark.parametrize("role", ["global", "personal"])
@pytest.mark.parametrize("kind", ["convolution", "batchnorm"])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_equals_two_modules_over_two_rounds(role, kind, dtype, atol):
    """v and alpha live on, u starts from the received model; alpha moves at the first batch of each of the two epochs."""
    task, clients, method = tiny.task(kind, dtype=dtype, personal=LOCAL), tiny.clients(), APFL(role)
    personal = method.init(task, clients)
    own, alpha = [state_of(task.model)] * 3, [0.5] * 3
    for t in (1, 2):
        received = [state_of(tiny.net(kind, dtype, seed=10 * t + k)) for k in range(3)]
        personal = method.fit(task, received, clients, personal, t)
        for k, client in enumerate(clients):
            steps = plan(len(client.train), LOCAL, task, task.generator("personal", client.id, t))
            u, own[k], alpha[k] = oracle.fit(task, received[k], own[k], alpha[k], client.train, steps, LOCAL, swapped=role == "global")
            assert personal["alpha"][k].item() == pytest.approx(alpha[k], abs=atol)
            for name in u:
                torch.testing.assert_close(personal[f"model.{name}"][k], u[name], rtol=0, atol=atol)
                torch.testing.assert_close(personal[f"own.{name}"][k], own[k][name], rtol=0, atol=atol)
    assert 0 < personal["alpha"].min() < personal["alpha"].max() < 1
    torch.testing.assert_close(personal["weight"], personal["alpha"] if role == "global" else 1 - personal["alpha"])


def test_after_the_milestone_all_rates_are_a_tenth():
    """Both models' and alpha's, as of an own phase with that rate."""
    local = replace(LOCAL, momentum=0.0)
    task, clients = tiny.task(personal=replace(local, milestone=1)), tiny.clients()
    received, start = [state_of(tiny.net(seed=k)) for k in range(3)], APFL().init(task, clients)
    found = APFL().fit(task, received, clients, start, 1)
    for k, client in enumerate(clients):
        steps = plan(len(client.train), task.schedule.personal, task, task.generator("personal", client.id, 1))
        u, v, alpha, half = received[k], state_of(task.model), 0.5, len(steps) // 2
        for epoch, lr in ((steps[:half], local.lr), (steps[half:], local.lr / 10)):
            u, v, alpha = oracle.fit(task, u, v, alpha, client.train, epoch, replace(local, lr=lr, epochs=1), swapped=True)
        assert found["alpha"][k].item() == pytest.approx(alpha, abs=1e-10)
        for name in u:
            torch.testing.assert_close(found[f"model.{name}"][k], u[name], rtol=0, atol=1e-10)
            torch.testing.assert_close(found[f"own.{name}"][k], v[name], rtol=0, atol=1e-10)


def test_by_hand():
    """u = v = 0, alpha = 1/2, one sample of class 0, rate 1. (i) u moves to (1/2, -1/2). (ii) The mixed logits are (1/4, -1/4), class 0
    has p = sigmoid(1/2); half of 1 - p goes to each gradient, so v moves to (q, -q), q = (1 - p)/2. alpha: v - u = q - 1/2, the
    gradient of u is -(1/2 + q), of v -q, their mean -(q + 1/4), both coordinates alike. Client 1 is the mirror image."""
    task, clients = one_pixel.task(), one_pixel.clients((0,), (1,))
    start = {"own.head.weight": torch.zeros(2, 2, 1, dtype=torch.float64), "alpha": torch.full((2,), 0.5, dtype=torch.float64)}
    result = APFL().fit(task, [one_pixel.state(0, 0)] * 2, clients, start, 1)
    q = (1 - 1 / (1 + math.exp(-1 / 2))) / 2
    alpha = 0.5 - (2 * (q - 1 / 2) * -(q + 1 / 4) + 0.01)
    for k, sign in ((0, 1), (1, -1)):
        assert result["model.head.weight"][k].flatten().tolist() == pytest.approx([sign / 2, -sign / 2])
        assert result["own.head.weight"][k].flatten().tolist() == pytest.approx([sign * q, -sign * q])
        assert result["alpha"][k].item() == pytest.approx(alpha)
        scores = ModelMixture().run(task, one_pixel.state(9, 9), slice_of(result, k), clients[k].stream("original")).scores
        mixed = sign * (alpha / 2 + (1 - alpha) * q)
        assert scores.flatten().tolist() == pytest.approx([mixed, -mixed])


def test_the_gradients_of_both_models_are_clipped():
    """One step of either: as long as the rate times the limit."""
    local = Local(lr=0.1, weight_decay=0.0, batch_size=4, epochs=1, clip=1e-3)
    task, clients = tiny.task(personal=local), tiny.clients((4,))
    start = APFL().init(task, clients)
    result = APFL().fit(task, [state_of(task.model)], clients, start, 1)
    for prefix in ("model.", "own."):
        moved = torch.cat([(part(result, prefix)[name] - tensor).flatten() for name, tensor in part(start, prefix).items()])
        assert moved.norm().item() == pytest.approx(1e-4, rel=1e-3)


def test_it_starts_from_the_first_received_model():
    task, clients = tiny.task(), tiny.clients()
    start = APFL().init(task, clients)
    for prefix in ("model.", "own."):
        assert all(torch.equal(tensor[2], state_of(task.model)[name]) for name, tensor in part(start, prefix).items())
    assert start["alpha"].tolist() == [0.5] * 3
    assert APFL().persistent


def test_nothing_given_is_changed():
    task, clients = tiny.task("batchnorm"), tiny.clients()
    start, received = APFL().init(task, clients), [state_of(task.model)] * 3
    before = {name: tensor.clone() for name, tensor in start.items()}
    result = APFL().fit(task, received, clients, start, 1)
    assert all(torch.equal(start[name], tensor) for name, tensor in before.items())
    assert all(torch.equal(tensor, received[0][name]) for name, tensor in state_of(task.model).items())
    assert not any(tensor.requires_grad for tensor in result.values())


def test_an_unknown_role_is_refused():
    with pytest.raises(ValueError, match="role of alpha"):
        APFL(alpha_role="local")


def test_norms_that_the_network_spares_feel_no_decay(monkeypatch):
    """Decay alone moves both models' norms where the network does not spare them."""
    strong, clients = Local(lr=1e-9, weight_decay=1e8, batch_size=4, epochs=1), tiny.clients()
    task = tiny.task("convolution", personal=strong)
    name, start = "extractor.1.weight", APFL().init(task, clients)
    moved = APFL().fit(task, [state_of(task.model)] * 3, clients, start, 1)
    monkeypatch.setattr(type(task.model), "feels_decay", lambda self, name: not name.startswith("extractor.1."))
    spared = APFL().fit(task, [state_of(task.model)] * 3, clients, start, 1)
    for part_of in ("model.", "own."):
        assert (moved[part_of + name] - 1).abs().min() > 0.05
        assert (spared[part_of + name] - 1).abs().max() < 1e-6
