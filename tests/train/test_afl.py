import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from fedlib.core import Local
from fedlib.train.afl import AFL
from fedlib.train.fedavg import FedAvg
from tests import one_pixel, tiny

LOCAL = Local(lr=0.1, weight_decay=0.01, batch_size=4, steps=3, continued=True)


def test_round_by_hand():
    """w = (1, -1): label 0 loses -log s(2), label 1 two more. Rate 1/8 moves the mixture from (1/2, 1/2) by -+1/8; the models are averaged
    with the mixture from before."""
    task, clients = one_pixel.task(), one_pixel.clients((0,), (1,))
    method = AFL(mixture_lr=0.125)
    server = method.init(task, clients) | {"model": one_pixel.state(1, -1)}
    messages = method.update(task, server, clients, 1)
    low = math.log(1 + math.exp(-2))
    assert [m["loss"].item() for m in messages] == pytest.approx([low, low + 2])
    server = method.aggregate(task, server, messages, clients, 1)
    assert server["mixture"]["weights"].tolist() == pytest.approx([0.375, 0.625])
    # Both gradients by hand: 1 - s(2) towards label 0, s(2) towards label 1.
    s = 1 / (1 + math.exp(-2))
    assert server["model"]["head.weight"][0].item() == pytest.approx(1 + (1 - s) / 2 - s / 2)


def test_a_round_is_weighted_by_the_mixture_and_stays_on_the_simplex():
    task, clients = tiny.task(local=LOCAL), tiny.clients()
    method, server = AFL(mixture_lr=0.4), None
    server = method.init(task, clients)
    assert server["mixture"]["weights"].tolist() == pytest.approx([9 / 28, 5 / 28, 14 / 28])
    for t in range(1, 6):
        mixture, before = server["mixture"]["weights"], server["model"]
        messages = method.update(task, server, clients, t)
        for client, message in zip(clients, messages, strict=True):
            logits = torch.func.functional_call(task.model, before, (task.inputs(client.train.images),))
            torch.testing.assert_close(message["loss"], cross_entropy(logits, client.train.labels))
        server = method.aggregate(task, server, messages, clients, t)
        expected = sum(weight * message["head.weight"] for weight, message in zip(mixture, messages, strict=True))
        torch.testing.assert_close(server["model"]["head.weight"], expected)
        weights = server["mixture"]["weights"]
        assert weights.sum().item() == pytest.approx(1)
        assert weights.min() >= 0
    assert (weights - mixture).abs().max() > 0


def test_without_a_rate_it_is_fedavg():
    task, clients = tiny.task(local=LOCAL), tiny.clients()
    ours, theirs = AFL(mixture_lr=0.0), FedAvg(weighting="samples")
    server = ours.init(task, clients)
    first = ours.aggregate(task, server, ours.update(task, server, clients, 1), clients, 1)["model"]
    second = theirs.aggregate(task, server, theirs.update(task, server, clients, 1), clients, 1)["model"]
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=0, atol=1e-12)


def test_absent_clients_keep_their_weight_until_the_projection():
    task, clients = tiny.task(local=LOCAL), tiny.clients((8, 8))
    method = AFL(mixture_lr=0.1)
    server = method.init(task, clients)
    messages = method.update(task, server, clients[1:], 1)
    loss = messages[0]["loss"].item()
    weights = method.aggregate(task, server, messages, clients[1:], 1)["mixture"]["weights"]
    assert weights.tolist() == pytest.approx([0.5 - 0.05 * loss, 0.5 + 0.05 * loss])


def test_a_cohort_without_weight_leaves_the_model_as_it_was():
    task, clients = tiny.task(local=LOCAL), tiny.clients((8, 8))
    method = AFL(mixture_lr=0.1)
    server = method.init(task, clients) | {"mixture": {"weights": torch.tensor([1.0, 0.0], dtype=torch.float64)}}
    after = method.aggregate(task, server, method.update(task, server, clients[1:], 1), clients[1:], 1)
    assert after["model"] is server["model"]
    assert after["mixture"]["weights"][1] > 0
