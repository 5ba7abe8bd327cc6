import math

import pytest
import torch

from fedlib.core import Local
from fedlib.models import state_of
from fedlib.train.fedrep import FedRep
from fedlib.train.local import plan
from tests import one_pixel, tiny
from tests.oracles import local as oracle

LOCAL = Local(lr=0.1, momentum=0.9, weight_decay=0.05, batch_size=4, epochs=2)


@pytest.mark.parametrize("chunk_size", [1, 3])
def test_equals_two_bare_loops(chunk_size):
    """Head with the body fixed, then body with the head fixed, each with a fresh optimiser."""
    task, cohort = tiny.task("convolution", chunk_size=chunk_size, local=LOCAL), tiny.clients()
    server = FedRep().init(task, cohort)
    messages = FedRep().update(task, server, cohort, 3)
    for message, client in zip(messages, cohort, strict=True):
        expected = server["model"]
        for phase in ("head.", "extractor."):
            steps = plan(len(client.train), LOCAL, task, task.generator("local", phase, client.id, 3))
            moves = lambda name, phase=phase: name.startswith(phase)  # noqa: E731
            expected = oracle.train(task, expected, client.train, steps, LOCAL, trainable=moves)
        for name, tensor in expected.items():
            torch.testing.assert_close(message[name], tensor, rtol=0, atol=1e-10)
            assert not torch.equal(message[name], server["model"][name])


def test_one_round_of_two_clients_by_hand():
    """From w = (0, 0) and b = 1 a head step on label 0 leads to w = (1/2, -1/2). Then the body: class 0 has probability p = sigmoid(b),
    its slope in b is p - 1, so b grows by 1 - sigmoid(1). The other client sees the mirror image in the head and the same body."""
    task, clients = one_pixel.task(body=True), one_pixel.clients((0,), (1, 1))
    server = {"model": one_pixel.state(0, 0, body=1)}
    messages = FedRep().update(task, server, clients, 1)
    grown = 2 - 1 / (1 + math.exp(-1))
    for message, sign in zip(messages, (1, -1), strict=True):
        assert message["head.weight"].flatten().tolist() == pytest.approx([sign / 2, -sign / 2])
        assert message["extractor.1.weight"].item() == pytest.approx(grown)
    after = FedRep().aggregate(task, server, messages, clients, 1)["model"]
    assert after["head.weight"].flatten().tolist() == pytest.approx([0, 0])
    assert after["extractor.1.weight"].item() == pytest.approx(grown)


def test_the_rate_decays():
    task = one_pixel.task(Local(lr=1.0, weight_decay=0.0, epochs=1, decay=0.5), body=True)
    message = FedRep().update(task, {"model": one_pixel.state(0, 0, body=1)}, one_pixel.clients((0,)), 2)[0]["head.weight"]
    assert message.flatten().tolist() == pytest.approx([1 / 4, -1 / 4])


def test_it_starts_from_the_network():
    task = tiny.task()
    assert torch.equal(FedRep().init(task, [])["model"]["head.weight"], state_of(task.model)["head.weight"])
