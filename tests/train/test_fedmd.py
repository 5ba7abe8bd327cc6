"""FedMD's rounds with its two learners, and new clients that start from scratch."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy, kl_div

from fedlib.adapt.fedmd import Newcomer
from fedlib.adapt.fedtta import PREFIX
from fedlib.adapt.whole_client import network_of
from fedlib.clients import Stream
from fedlib.models import MODELS
from fedlib.models.mlp import MLP
from fedlib.task import Local, part
from fedlib.train.fedmd import FedMD
from fedlib.train.fedtta import Rates
from fedlib.train.hetero import HeteroFedTTA, HeteroTent
from fedlib.train.local import round_plan
from tests import tiny
from tests.oracles import fedtta as oracle

LOCAL = Local(lr=0.1, weight_decay=1e-2, batch_size=4, steps=2, clip=0.5, continued=True)
RATES = Rates(0.3, 0.2, 0.05)
F64 = torch.float64
NAMES = ("narrow", "middle", "wide")


@pytest.fixture(autouse=True)
def networks(monkeypatch):
    """Three tiny MLPs of unequal width."""

    def build(width):
        def make(in_shape, n_classes):
            model = MLP(in_shape, n_classes)
            model.extractor[1] = torch.nn.Linear(model.extractor[1].in_features, width)
            model.extractor[3] = torch.nn.Linear(width, 5)
            model.head = torch.nn.Linear(5, n_classes)
            return model

        return make

    for name, width in zip(NAMES, (3, 4, 6), strict=True):
        monkeypatch.setitem(MODELS, name, build(width))


def case(chunk_size=1, sizes=(9, 5, 14, 6, 7)):
    task = tiny.task(local=LOCAL, augment="none", chunk_size=chunk_size)
    return replace(task, public=tiny.samples(7, 99).images), tiny.clients(sizes)


def rounds(task, clients, method, n):
    server = method.init(task, clients)
    for t in range(1, n + 1):
        server = method.aggregate(task, server, method.update(task, server, clients, t), clients, t)
    return server


def ours(server, client):
    """The state of a client among those of its size."""
    return {name: stack[client // 3] for name, stack in server[f"client_{client % 3}"].items()}


def public_batches(task, size=4):
    return [task.inputs(batch) for batch in task.public.split(size)]


def test_tent_rounds_equal_the_loop():
    task, clients = case()
    method = FedMD(HeteroTent(0.1), NAMES, batch_size=4)
    server, after = rounds(task, clients, method, 1), rounds(task, clients, method, 2)
    answers = []
    for client in clients:
        sized = method.sized(task, client.id % 3, client.id)
        w = ours(server, client.id)
        parts = [(x, i) for x, i in zip(public_batches(task), torch.arange(7).split(4), strict=True)]
        losses = [
            lambda z, i=i: kl_div(z.log_softmax(1), server["model"]["personalised"][i].softmax(1), reduction="batchmean") for _, i in parts
        ]
        for (x, _), loss in zip(parts, losses, strict=True):
            w = oracle.steps_on_client(sized, w, [x], loss, 0.1, 1)[-1]
        for step in round_plan(client, task, 2):
            x, y = task.inputs(client.train.images[step.index]), client.train.labels[step.index]
            w = oracle.steps_on_client(sized, w, [x], lambda z, y=y: cross_entropy(z, y), 0.1, 1)[-1]
        for name, tensor in w.items():
            torch.testing.assert_close(ours(after, client.id)[name], tensor, rtol=0, atol=1e-9)
        order = torch.randperm(7, generator=task.generator("whole client", client.id, "public", 0))
        parts = [task.inputs(task.public[i]) for i in order.split(4)]

        def bits(z):
            return -(z.softmax(1) * z.log_softmax(1)).sum(1).mean() / torch.log(torch.tensor(2.0, dtype=F64))

        path = oracle.steps_on_client(sized, w, parts, bits, 0.1, 1)
        answers.append([oracle.network(sized.model, state, task.inputs(task.public)) for state in path])
    for name, which in (("base", 0), ("personalised", 1)):
        torch.testing.assert_close(after["model"][name], sum(a[which] for a in answers) / 5, rtol=0, atol=1e-9)


@pytest.mark.parametrize("strength", [0.0, 0.8])
def test_digestion_of_both_models_equals_the_loop(strength):
    task, _ = case()
    method = FedMD(HeteroFedTTA(RATES, strength, hidden=(3, 4, 5)), NAMES, batch_size=4)
    sized = method.sized(task, 0, 0)
    state = method.learner.fresh(sized, 0, 0)
    draws = torch.Generator().manual_seed(0)
    ensemble = {name: torch.randn(7, 3, generator=draws, dtype=F64) for name in ("base", "personalised")}
    (digested,) = method.digested(sized, [state], ensemble, 1)
    w, a, momentum = network_of(state), part(state, PREFIX), {n: 0 * t for n, t in part(state, PREFIX).items()}
    for x, i in zip(public_batches(task), torch.arange(7).split(4), strict=True):
        leaves, judges = ({n: t.clone().requires_grad_() for n, t in s.items()} for s in (w, a))
        before = oracle.network(sized.model, leaves, x)
        inner = torch.autograd.grad(oracle.norm(oracle.judge(judges, before)), list(leaves.values()), create_graph=True)
        moved = {n: t - 0.3 * (g + 0.01 * t) for (n, t), g in zip(leaves.items(), inner, strict=True)}
        student = oracle.network(sized.model, moved, x).log_softmax(1)
        loss = kl_div(student, ensemble["personalised"][i].softmax(1), reduction="batchmean")
        loss = loss + strength * kl_div(before.log_softmax(1), ensemble["base"][i].softmax(1), reduction="batchmean")
        gradients = torch.autograd.grad(loss, [*leaves.values(), *judges.values()])
        u = oracle.clip(dict(zip(leaves, gradients, strict=False)), 0.5)
        v = oracle.clip(dict(zip(judges, gradients[len(leaves) :], strict=True)), 0.5)
        w = {n: t - 0.2 * (u[n] + 0.01 * t) for n, t in w.items()}
        momentum = {n: 0.9 * m + v[n] + 0.01 * a[n] for n, m in momentum.items()}
        a = {n: t - 0.05 * momentum[n] for n, t in a.items()}
    for name, tensor in (w | {f"{PREFIX}{n}": t for n, t in a.items()}).items():
        torch.testing.assert_close(digested[name], tensor, rtol=0, atol=1e-9)


@pytest.mark.parametrize("learner", [HeteroTent(), HeteroFedTTA(RATES, hidden=(3, 4, 5))])
def test_stacked_clients_equal_one_by_one(learner):
    one, stacked = (rounds(*case(chunk_size), FedMD(learner, NAMES, batch_size=4), 2) for chunk_size in (1, 3))
    for group in one:
        for name, tensor in one[group].items():
            torch.testing.assert_close(stacked[group][name], tensor, rtol=0, atol=1e-9)


def test_first_round_digests_nothing_and_the_mean_is_uniform():
    """Two clients of unequal size by hand: the ensemble is the plain mean of what they say."""
    task, clients = case(sizes=(9, 5))
    method = FedMD(HeteroTent(), NAMES, batch_size=4)
    server = method.init(task, clients)
    messages = method.update(task, server, clients, 1)
    after = method.aggregate(task, server, messages, clients, 1)["model"]
    for name in ("base", "personalised"):
        torch.testing.assert_close(after[name], (messages[0][name] + messages[1][name]) / 2)
    noisy = server | {"model": {name: tensor + 1 for name, tensor in server["model"].items()}}
    for first, second in zip(messages, method.update(task, noisy, clients, 1), strict=True):
        assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_newcomer_starts_from_scratch():
    """Fresh networks per client and round, two passes of digestion, one step; the federation's own clients matter by the ensemble alone."""
    task, clients = case()
    method = FedMD(HeteroTent(0.1), NAMES, batch_size=4)
    server = rounds(task, clients, method, 1)
    stream = Stream(tiny.samples(6, 7).images, "test", 8)
    output = Newcomer(method).run(replace(task, round=2), server["model"], {}, stream)
    sized = replace(method.sized(task, 2, "newcomer", 8, 2), round=2)
    (state,) = method.digested(sized, method.digested(sized, [method.learner.fresh(sized, 2, 8)], server["model"], 1), server["model"], 1)
    torch.testing.assert_close(output.scores, method.learner.answers(sized, state, stream)["personalised"])
    other = Newcomer(method).run(replace(task, round=3), server["model"], {}, stream)
    assert not torch.allclose(output.scores, other.scores)
    taught = {"personalised": torch.eye(3, dtype=F64)[torch.arange(7) % 3] * 20, "base": server["model"]["base"]}
    assert not torch.allclose(output.scores, Newcomer(method).run(replace(task, round=2), taught, {}, stream).scores)


def test_without_public_images():
    task, clients = case()
    with pytest.raises(ValueError, match="public"):
        FedMD(HeteroTent(), NAMES).init(replace(task, public=None), clients)
