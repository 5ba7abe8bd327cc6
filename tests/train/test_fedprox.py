import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from fedlib.core import Local
from fedlib.train.fedavg import FedAvg
from fedlib.train.fedprox import FedProx
from fedlib.train.local import round_plan
from tests import one_pixel, tiny

LOCAL = Local(lr=0.1, weight_decay=0.01, batch_size=4, steps=4, clip=0.4, continued=True)


@pytest.mark.parametrize("chunk_size", [1, 3])
def test_equals_a_bare_loop(chunk_size):
    task, clients = tiny.task("convolution", local=LOCAL, chunk_size=chunk_size), tiny.clients()
    method = FedProx(mu=0.7)
    server = method.init(task, clients)
    for client, state in zip(clients, method.update(task, server, clients, 1), strict=True):
        w = {n: t.clone().requires_grad_() for n, t in server["model"].items()}
        for step in round_plan(client, task, 1):
            inputs = task.inputs(task.transform.augmented(client.train.images[step.index], step.draws))
            loss = cross_entropy(torch.func.functional_call(task.model, w, (inputs,)), client.train.labels[step.index])
            gradients = torch.autograd.grad(loss, list(w.values()))
            gradients = [g + 0.7 * (w[n] - server["model"][n]).detach() for n, g in zip(w, gradients, strict=True)]
            norm = math.sqrt(sum((g * g).sum().item() for g in gradients))
            scale = min(1, 0.4 / (norm + 1e-6))
            moved = [t - 0.1 * (scale * g + 0.01 * t) for t, g in zip(w.values(), gradients, strict=True)]
            w = {n: t.detach().requires_grad_() for n, t in zip(w, moved, strict=True)}
        for name in state:
            torch.testing.assert_close(state[name], w[name].detach(), rtol=0, atol=1e-9)


def test_two_steps_of_two_clients_by_hand():
    """From w = 0, client 0's first step leads to (1/2, -1/2). There the cross-entropy pulls by 1 - sigmoid(1), the proximal term with mu
    = 1/2 back by 1/4. Client 1 mirrors it, so the mean stays at 0 and both messages are opposite."""
    task, clients = one_pixel.task(Local(lr=1.0, weight_decay=0.0, batch_size=1, steps=2)), one_pixel.clients((0,), (1,))
    method, server = FedProx(mu=0.5), {"model": one_pixel.state(0, 0)}
    messages = method.update(task, server, clients, 1)
    first = 0.5 + (1 - 1 / (1 + math.exp(-1))) - 0.25
    assert messages[0]["head.weight"].flatten().tolist() == pytest.approx([first, -first])
    assert messages[1]["head.weight"].flatten().tolist() == pytest.approx([-first, first])
    after = method.aggregate(task, server, messages, clients, 1)["model"]["head.weight"]
    assert after.flatten().tolist() == pytest.approx([0, 0])


def test_no_pull_is_fedavg():
    task, clients = tiny.task(local=LOCAL), tiny.clients()
    server = FedProx().init(task, clients)
    for ours, theirs in zip(
        FedProx(mu=0, lr=0.2).update(task, server, clients, 3), FedAvg(lr=0.2).update(task, server, clients, 3), strict=True
    ):
        for name in ours:
            torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=1e-12)


def test_a_negative_pull_is_an_error():
    with pytest.raises(ValueError, match="mu"):
        FedProx(mu=-1)


def test_the_average_is_by_size():
    """Two clients of 4 and 12 images."""
    task, clients, method = tiny.task(), [tiny.client(0, 4), tiny.client(1, 12)], FedProx()
    server = method.init(task, clients)
    messages = [{name: torch.full_like(tensor, k) for name, tensor in server["model"].items()} for k in (0, 1)]
    after = method.aggregate(task, server, messages, clients, 1)["model"]
    assert after["extractor.1.weight"].unique().tolist() == [0.75]
