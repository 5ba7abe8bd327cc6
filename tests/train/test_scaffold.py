from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy

from fedlib.core import Local, Schedule
from fedlib.train.fedavg import FedAvg
from fedlib.train.local import round_plan
from fedlib.train.scaffold import SCAFFOLD
from tests import one_pixel, tiny

LOCAL = Local(lr=0.1, weight_decay=0.01, batch_size=4, steps=4, continued=True)


def rounds(task, clients, method, n, cohort=None):
    server = method.init(task, clients)
    for t in range(1, n + 1):
        members = [clients[k] for k in cohort(t)] if cohort else clients
        server = method.aggregate(task, server, method.update(task, server, members, t), members, t)
    return server


def oracle(task, clients, server_lr, n):
    """The algorithm box, one client and one step at a time."""
    w = {name: t.detach().clone() for name, t in task.model.named_parameters()}
    c, own = {name: 0 * t for name, t in w.items()}, [{name: 0 * t for name, t in w.items()} for _ in clients]
    for t in range(1, n + 1):
        lr, results = LOCAL.lr * 0.9 ** (t - 1), []
        for k, client in enumerate(clients):
            y = {name: x.clone() for name, x in w.items()}
            for step in round_plan(client, task, t):
                leaves = {name: x.clone().requires_grad_() for name, x in y.items()}
                inputs = task.inputs(task.transform.augmented(client.train.images[step.index], step.draws))
                loss = cross_entropy(torch.func.functional_call(task.model, leaves, (inputs,)), client.train.labels[step.index])
                gradients = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
                y = {name: x - lr * (gradients[name] + LOCAL.weight_decay * x + c[name] - own[k][name]) for name, x in y.items()}
            new = {name: own[k][name] - c[name] + (w[name] - y[name]) / (LOCAL.steps * lr) for name in w}
            results.append((y, new))
        c = {name: c[name] + sum(new[name] - own[k][name] for k, (_, new) in enumerate(results)) / len(clients) for name in c}
        w = {name: w[name] + server_lr * sum(y[name] - w[name] for y, _ in results) / len(clients) for name in w}
        own = [new for _, new in results]
    return w, c


@pytest.mark.parametrize("chunk_size", [1, 3])
def test_equals_the_algorithm_box(chunk_size):
    task = tiny.task("convolution", local=replace(LOCAL, decay=0.9), chunk_size=chunk_size)
    server = rounds(task, tiny.clients(), SCAFFOLD(server_lr=1.5), 3)
    w, c = oracle(task, tiny.clients(), 1.5, 3)
    for name in w:
        torch.testing.assert_close(server["model"][name], w[name], rtol=0, atol=1e-9)
        torch.testing.assert_close(server["control"][name], c[name], rtol=0, atol=1e-9)


def test_control_is_the_mean_of_the_clients_controls():
    """Also when only some clients take part in a round."""
    server = rounds(tiny.task(local=LOCAL), tiny.clients(), SCAFFOLD(), 3, lambda t: (0, 1, 2) if t == 1 else (0, 2))
    for name, control in server["control"].items():
        torch.testing.assert_close(control, server["client_control"][name].mean(0), rtol=0, atol=1e-12)
        assert control.abs().max() > 1e-4


def test_two_rounds_by_hand():
    """Labels 0 and 1 pull w = (0, 0) by +-(1/2, -1/2); the mean does not move, the controls become the two pulls. In round 2 they cancel
    them: no client leaves w any more."""
    task, clients = one_pixel.task(), one_pixel.clients((0,), (1,))
    method = SCAFFOLD(server_lr=1.0)
    server = method.init(task, clients) | {"model": one_pixel.state(0, 0)}
    messages = method.update(task, server, clients, 1)
    assert messages[0]["head.weight"].flatten().tolist() == pytest.approx([0.5, -0.5])
    server = method.aggregate(task, server, messages, clients, 1)
    assert server["model"]["head.weight"].flatten().tolist() == pytest.approx([0, 0])
    assert server["client_control"]["head.weight"].flatten().tolist() == pytest.approx([-0.5, 0.5, 0.5, -0.5])
    for message in method.update(task, server, clients, 2):
        assert message["head.weight"].flatten().tolist() == pytest.approx([0, 0])


def test_first_round_is_fedavg():
    task, clients = tiny.task(local=LOCAL), tiny.clients()
    ours = rounds(task, clients, SCAFFOLD(server_lr=1.0), 1)["model"]
    theirs = rounds(task, clients, FedAvg(), 1)["model"]
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=1e-12)


def test_statistics_of_batch_norm_are_averaged():
    """A server's step of 3/2 from a variance of 1 towards 0.1 would end below zero."""
    task, clients, method = tiny.task("batchnorm"), tiny.clients(), SCAFFOLD(server_lr=1.5)
    server = method.init(task, clients)
    messages = [{n: torch.full_like(t, 0.1) for n, t in server["model"].items()} for _ in clients]
    messages = [m | {f"control.{n}": torch.zeros_like(t) for n, t in server["control"].items()} for m in messages]
    after = method.aggregate(task, server, messages, clients, 1)["model"]
    assert after["extractor.1.running_var"].tolist() == pytest.approx([0.1, 0.1])
    torch.testing.assert_close(after["head.bias"], server["model"]["head.bias"] + 1.5 * (0.1 - server["model"]["head.bias"]))


@pytest.mark.parametrize("told", [{"momentum": 0.9}, {"optimizer": "adam"}, {"milestone": 2}])
def test_refuses_phases_that_hide_the_mean_gradient(told):
    SCAFFOLD().check_schedule(Schedule(local=Local(clip=10.0, decay=0.9)))
    with pytest.raises(ValueError, match="plain steps of one rate"):
        SCAFFOLD().check_schedule(Schedule(local=Local(**told)))
