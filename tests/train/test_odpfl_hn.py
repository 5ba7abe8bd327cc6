import pytest
import torch

from fedlib.core import Local
from fedlib.models import build
from fedlib.states import part
from fedlib.train import odpfl_hn
from fedlib.train.fedavg import FedAvg
from fedlib.train.odpfl_hn import ODPFLHN, hidden_of, written
from tests import tiny
from tests.oracles.odpfl_hn import network_for

LOCAL = Local(lr=0.1, weight_decay=0.01, batch_size=4, steps=3, continued=True)
F64 = torch.float64


def test_round_is_one_step_down_the_average_pseudo_loss():
    """The server's step is a plain gradient step on sum_k n_k/n <theta_k, theta_k - theta_k'>, the difference held constant."""
    task, clients = tiny.task(local=LOCAL, augment="none"), tiny.clients()
    method = ODPFLHN(lr=0.1, encoder_lr=0.4, hyper_lr=0.7)
    server = method.init(task, clients)
    model = {n: t.clone().requires_grad_() for n, t in server["model"].items()}
    loss = 0
    for client in clients:
        theta = network_for(task, model, client.train.images)
        start = {n: t.detach() for n, t in theta.items()}
        (end,) = FedAvg(lr=0.1).update(task, {"model": start}, [client], 1)
        loss = loss + len(client.train) / 28 * sum((theta[n] * (start[n] - end[n])).sum() for n in theta)
    loss.backward()
    after = method.aggregate(task, server, method.update(task, server, clients, 1), clients, 1)["model"]
    for name, tensor in model.items():
        rate = 0.4 if name.startswith("encoder.") else 0.7
        torch.testing.assert_close(after[name], (tensor - rate * tensor.grad).detach(), rtol=0, atol=1e-9)
        assert tensor.grad.abs().max() > 0


def test_two_clients_by_hand():
    """With a trunk that always gives h = (1, 0, ..), only the first column and the bias of an output layer matter: clients with opposite
    differences and equal sizes cancel, one client alone moves both by rate times its difference."""
    task = tiny.task(local=LOCAL)
    method = ODPFLHN(hyper_lr=0.5)
    server = method.init(task, tiny.clients())
    h = torch.zeros(100, dtype=F64)
    h[0] = 1
    zeros = {n: torch.zeros_like(t) for n, t in server["model"].items() if not n.startswith("out.")}
    step = {f"step.{n}": torch.ones_like(t) for n, t in task.model.named_parameters()}
    one, other = zeros | step | {"hidden": h}, zeros | {n: -t for n, t in step.items()} | {"hidden": h}
    clients = tiny.clients((6, 6))
    both = method.aggregate(task, server, [one, other], clients, 1)["model"]
    alone = method.aggregate(task, server, [one], clients[:1], 1)["model"]
    for name, tensor in server["model"].items():
        torch.testing.assert_close(both[name], tensor)
    moved = server["model"]["out.head.bias.weight"] - alone["out.head.bias.weight"]
    assert moved[:, 0].tolist() == [0.5] * 3
    assert moved[:, 1:].abs().max() == 0
    torch.testing.assert_close(alone["out.head.bias.bias"], server["model"]["out.head.bias.bias"] - 0.5)


@pytest.mark.parametrize(("name", "encoder"), [("mlp", [200, 32]), ("convnet_small", [16, 32, 32])])
def test_shapes(name, encoder):
    """The MLP's encoder is 784-200-32; a convolutional one has the body, then a linear layer."""
    model = build(name, (1, 8, 8), 3, seed=0)
    task = tiny.task()
    task = type(task)(model, task.transform, 3, task.schedule, 0)
    state = ODPFLHN().init(task, [])["model"]
    assert [t.shape[0] for n, t in part(state, "encoder.").items() if n.endswith("weight")] == encoder
    assert [tuple(t.shape) for n, t in part(state, "trunk.").items() if n.endswith("weight")] == [(100, 32)] + [(100, 100)] * 3
    network = written(model, state, hidden_of(task, state, torch.zeros(2, 1, 8, 8, dtype=torch.uint8)))
    assert {n: t.shape for n, t in network.items()} == {n: t.shape for n, t in model.named_parameters()}


def test_a_client_is_encoded_in_batches(monkeypatch):
    """Its embedding and the gradients that are carried back are those of all its images at once."""
    task, clients = tiny.task(augment="none"), [tiny.client(0, 11)]
    server = ODPFLHN().init(task, clients)
    embedding = lambda: odpfl_hn.embedding_of(task, server["model"], clients[0].train.images)  # noqa: E731
    whole, (message,) = embedding(), ODPFLHN().update(task, server, clients, 1)
    monkeypatch.setattr(odpfl_hn, "BATCH", 4)
    torch.testing.assert_close(embedding(), whole)
    for name, tensor in ODPFLHN().update(task, server, clients, 1)[0].items():
        torch.testing.assert_close(tensor, message[name])
