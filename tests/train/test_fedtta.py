"""Meta-training of FedTTA and FedTTA-Prox, and the facts about its gradients."""

from dataclasses import replace

import pytest
import torch

from fedlib.adapt.fedtta import PREFIX, judge_of
from fedlib.core import Local, Schedule
from fedlib.states import network_of, part
from fedlib.train.fedavg import FedAvg
from fedlib.train.fedtta import FedTTA, Rates, divergence, inner_step
from fedlib.train.local import round_plan, stacked_batch
from tests import one_pixel, tiny
from tests.oracles import fedtta as oracle

RATES = Rates(0.3, 0.2, 0.05)
LOCAL = Local(lr=0.1, weight_decay=1e-2, batch_size=4, steps=3, clip=0.5, continued=True)
F64 = torch.float64


def task(kind="plain", **fields):
    return tiny.task(kind, **{"local": LOCAL, "augment": "none"} | fields)


def started(method, task, clients):
    """A server state off the initial one, so that the proximal term is not at its minimum."""
    server = method.init(task, clients)
    draws = torch.Generator().manual_seed(1)
    moved = {n: t + 0.3 * torch.randn(t.shape, generator=draws, dtype=t.dtype) for n, t in server["model"].items()}
    return server | {"model": moved}


def meta_loss(method, task, server, client, round=1):
    """Loss of the client's first batch, and its gradients by name."""
    loss = method.loss(task, server["model"], round)
    batch = tuple(t[0] for t in stacked_batch(task, [client.train], [round_plan(client, task, round)[0]]))
    leaves = {n: t.clone().requires_grad_() for n, t in server["model"].items()}
    value = loss(network_of(leaves), part(leaves, PREFIX), batch)
    gradients = torch.autograd.grad(value, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return value.detach(), dict(zip(leaves, gradients, strict=True))


@pytest.mark.parametrize("kind", ["plain", "convolution"])
@pytest.mark.parametrize("mu", [0.0, 0.4])
@pytest.mark.parametrize("chunk_size", [1, 3])
def test_equals_the_loop(kind, mu, chunk_size):
    t, clients, method = task(kind, chunk_size=chunk_size), tiny.clients(), FedTTA(RATES, mu=mu)
    server = started(method, t, clients)
    for client, state in zip(clients, method.update(t, server, clients, 1), strict=True):
        start, plan = network_of(server["model"]), round_plan(client, t, 1)
        weights, adaptation = oracle.meta_train(t, start, part(server["model"], PREFIX), client.train, plan, RATES, mu=mu, received=start)
        expected = weights | {f"{PREFIX}{n}": a for n, a in adaptation.items()}
        assert set(state) == set(expected)
        for name in state:
            torch.testing.assert_close(state[name], expected[name], rtol=0, atol=1e-9)
        assert any((state[n] - server["model"][n]).abs().max() > 1e-4 for n in state if n.startswith(PREFIX))


def test_gradient_against_finite_differences():
    t, (client, *_), method = task(), tiny.clients(), FedTTA(RATES, mu=0.4)
    server = started(method, t, [client])
    _, gradients = meta_loss(method, t, server, client)
    # The received model of the proximal term stays where it is while the local one moves.
    fixed, draws = server["model"], torch.Generator().manual_seed(2)
    for chosen in (lambda n: not n.startswith(PREFIX), lambda n: n.startswith(PREFIX)):
        direction = {n: torch.randn(x.shape, generator=draws, dtype=F64) * chosen(n) for n, x in fixed.items()}
        values = []
        for sign in (1, -1):
            moved = {n: x + sign * 1e-6 * direction[n] for n, x in fixed.items()}
            loss = method.loss(t, fixed, 1)
            batch = tuple(b[0] for b in stacked_batch(t, [client.train], [round_plan(client, t, 1)[0]]))
            values.append(loss(network_of(moved), part(moved, PREFIX), batch).item())
        slope = sum((gradients[n] * direction[n]).sum() for n in fixed).item()
        assert (values[0] - values[1]) / 2e-6 == pytest.approx(slope, rel=1e-5)


def test_hybrid_keeps_the_adaptation_gradient_and_drops_the_hessian():
    t, (client, *_) = task(), tiny.clients()
    server = started(FedTTA(RATES), t, [client])
    exact, hybrid = (meta_loss(FedTTA(RATES, mu=0.4, order=order), t, server, client) for order in ("second", "hybrid"))
    torch.testing.assert_close(exact[0], hybrid[0])
    for name, gradient in hybrid[1].items():
        if name.startswith(PREFIX):
            torch.testing.assert_close(gradient, exact[1][name])
    assert sum(exact[1][n].abs().sum() for n in exact[1] if n.startswith(PREFIX)) > 1e-3
    assert (hybrid[1]["head.weight"] - exact[1]["head.weight"]).abs().max() > 1e-3


def test_the_hybrid_step_counts_as_the_identity_with_its_decay():
    t, (client, *_) = task(), tiny.clients()
    model = started(FedTTA(RATES), t, [client])["model"]
    network = {name: tensor.requires_grad_() for name, tensor in network_of(model).items()}
    inputs, weights = t.inputs(client.train.images), torch.full((9,), 1 / 9, dtype=F64)
    options = {"lr": 0.3, "weight_decay": 0.5, "order": "hybrid"}
    _, moved = inner_step(t.model, judge_of(model), network, part(model, PREFIX), inputs, weights, **options)
    slopes = torch.autograd.grad(sum(tensor.sum() for tensor in moved.values()), list(network.values()))
    assert all(torch.equal(slope, torch.ones_like(slope)) for slope in slopes)


def test_without_inner_step_it_is_fedavg_and_g_does_not_learn():
    t, clients = task(), tiny.clients()
    still = FedTTA(Rates(0.0, 0.1, 0.05, momentum=0.0))
    server = still.init(t, clients)
    plain = FedAvg(weighting="samples").update(replace(t, model=t.model), {"model": network_of(server["model"])}, clients, 1)
    for ours, theirs in zip(still.update(t, server, clients, 1), plain, strict=True):
        for name, tensor in theirs.items():
            torch.testing.assert_close(ours[name], tensor, rtol=0, atol=1e-12)
        for name in (n for n in ours if n.startswith(PREFIX)):
            shrunk = server["model"][name] * (1 - 0.05 * LOCAL.weight_decay) ** LOCAL.steps
            torch.testing.assert_close(ours[name], shrunk, rtol=0, atol=1e-12)


def test_divergence_is_torchs_and_follows_its_option():
    draws = torch.Generator().manual_seed(0)
    teacher, student = (torch.randn(5, 3, generator=draws, dtype=F64) for _ in range(2))
    expected = torch.nn.functional.kl_div(student.log_softmax(1), teacher.softmax(1), reduction="batchmean")
    torch.testing.assert_close(divergence(teacher, student, torch.full((5,), 0.2, dtype=F64)), expected)
    t, (client, *_) = task(), tiny.clients()
    server = started(FedTTA(RATES), t, [client])
    # From the received model itself both directions vanish to second order; away from it they differ.
    loss = [FedTTA(RATES, mu=1.0, kl=kl).loss(t, FedTTA(RATES).init(t, [client])["model"], 1) for kl in ("code", "paper")]
    batch = tuple(b[0] for b in stacked_batch(t, [client.train], [round_plan(client, t, 1)[0]]))
    code, paper = (one(network_of(server["model"]), part(server["model"], PREFIX), batch) for one in loss)
    assert abs(code - paper) > 1e-3


def test_one_step_by_hand():
    """Two clients of one white image; the hand-set g returns the first logit, so the inner step lowers w_0 by 1/2 (its rate).

    From w = (1, 0): w~ = (1/2, 0), p = sigmoid(1/2). The norm is linear in w, so u = (p_0 - y_0, p_1 - y_1) without a Hessian. The weight a
    of each layer scales the inner gradient: v_a = (p_0 - y_0) (-1/2)."""
    local = Local(lr=1.0, weight_decay=0.0, batch_size=1, steps=1)
    t, clients = one_pixel.task(local), one_pixel.clients((0,), (1,))
    method = FedTTA(Rates(0.5, 1.0, 1.0, momentum=0.0), hidden=1)
    server = method.init(t, clients)
    layers = {f"{PREFIX}layers.{i}.weight": torch.ones(1, 1, dtype=F64) for i in (2, 4, 6)}
    layers |= {f"{PREFIX}layers.{i}.bias": torch.zeros(1, dtype=F64) for i in (0, 2, 4, 6)}
    server["model"] |= one_pixel.state(1, 0) | layers | {f"{PREFIX}layers.0.weight": torch.tensor([[1.0, 0.0]], dtype=F64)}
    p = torch.sigmoid(torch.tensor(0.5)).item()
    messages = method.update(t, server, clients, 1)
    for message, first in zip(messages, (p - 1, p), strict=True):
        assert message["head.weight"].flatten().tolist() == pytest.approx([1 - first, first])
        assert message[f"{PREFIX}layers.6.weight"].item() == pytest.approx(1 + first / 2)
    after = method.aggregate(t, server, messages, clients, 1)["model"]
    assert after["head.weight"].flatten().tolist() == pytest.approx([1 - (2 * p - 1) / 2, (2 * p - 1) / 2])


def test_rates_decay_and_average_is_by_size():
    t, clients = task(local=replace(LOCAL, decay=0.5)), tiny.clients((8, 4))
    method = FedTTA(RATES)
    server = method.init(t, clients)
    half = FedTTA(Rates(0.15, 0.1, 0.025))
    late = replace(LOCAL, decay=1.0)
    for ours, theirs in zip(method.update(t, server, clients[:1], 2), half.update(task(local=late), server, clients[:1], 2), strict=True):
        for name in ours:
            torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=1e-12)
    messages = method.update(t, server, clients, 1)
    mean = method.aggregate(t, server, messages, clients, 1)["model"]["head.bias"]
    torch.testing.assert_close(mean, (2 * messages[0]["head.bias"] + messages[1]["head.bias"]) / 3)


@pytest.mark.parametrize("options", [{"kl": "reverse"}, {"order": "first"}])
def test_bad_options(options):
    with pytest.raises(ValueError, match="unknown"):
        FedTTA(**options)


def test_momentum_of_the_schedule_has_no_say():
    clients, method = tiny.clients(), FedTTA(RATES)
    plain, heavy = (task(local=replace(LOCAL, momentum=momentum)) for momentum in (0.0, 0.9))
    server = method.init(plain, clients)
    for ours, theirs in zip(method.update(plain, server, clients, 1), method.update(heavy, server, clients, 1), strict=True):
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_rate_that_falls_within_a_round_is_refused():
    FedTTA().check_schedule(Schedule(local=Local(epochs=4)))
    with pytest.raises(ValueError, match="take no milestone, got 2"):
        FedTTA().check_schedule(Schedule(local=Local(epochs=4, milestone=2)))
