from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, one_hot

from fedlib.adapt.fedadg import FedADGPredict
from fedlib.core import Local, NoAdapt, Stream
from fedlib.stages.stacks import in_stacks
from fedlib.states import part
from fedlib.train import fedadg
from fedlib.train.fedadg import NOISE, FedADG
from fedlib.train.fedavg import FedAvg
from fedlib.train.local import batch_of, round_plan
from tests import tiny

LOCAL = Local(lr=0.1, weight_decay=0.01, batch_size=4, steps=3, clip=5.0, continued=True)
F64 = torch.float64
NAMES = {"0": "1", "2": "3"}  # layers of the discriminator without and with the projection before them


def oracle(task, method, server, k, client):
    """Three torch optimisers on three modules, one step of each per batch."""
    network = tiny.net()
    network.load_state_dict(server["model"])
    g = nn.Sequential(nn.Linear(NOISE + 3, 6), nn.LeakyReLU(), nn.Linear(6, 5), nn.ReLU()).double()
    g.load_state_dict(server["generator"])
    projection = server["client_discriminator"]["0.weight"][k]
    d = nn.Sequential(nn.Linear(5, 4), nn.LeakyReLU(), nn.Linear(4, 1), nn.Sigmoid()).double()
    d.load_state_dict({n: server["client_discriminator"][f"{NAMES[n[0]]}{n[1:]}"][k] for n in d.state_dict()})
    optimizers = [
        torch.optim.SGD(m.parameters(), lr=lr, weight_decay=0.01)
        for m, lr in ((d, method.adversarial_lr), (network, 0.1), (g, method.adversarial_lr))
    ]
    draws = task.generator("noise", client.id, 1)
    for step in round_plan(client, task, 1):
        inputs, labels = batch_of(task, client.train, step)
        y = one_hot(labels, 3).double()
        u = torch.rand(len(y), NOISE, generator=draws, dtype=F64)

        def verdict(features, y=y):
            return d(torch.cat([y, features], 1) @ projection.T)

        def loss(which, y=y, u=u, inputs=inputs, labels=labels):
            real, made = network.extractor(inputs), g(torch.cat([u, y], 1))
            if which == 0:
                return -(verdict(made) ** 2 + (1 - verdict(real)) ** 2).mean()
            if which == 1:
                return cross_entropy(network.head(real), labels) + method.beta * ((1 - verdict(real)) ** 2).mean()
            return ((1 - verdict(made)) ** 2).mean()

        for which, (module, optimizer) in enumerate(zip((d, network, g), optimizers, strict=True)):
            for m in (d, network, g):
                m.zero_grad()
            loss(which).backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 5.0)
            optimizer.step()
    return network.state_dict(), g.state_dict(), d.state_dict()


def test_equals_three_optimisers():
    task, clients = tiny.task(local=LOCAL, augment="none"), tiny.clients()
    method = FedADG(beta=0.7, adversarial_lr=0.3, widths=(6, 4))
    server = method.init(task, clients)
    for k, (client, message) in enumerate(zip(clients, method.update(task, server, clients, 1), strict=True)):
        network, g, d = oracle(task, method, server, k, client)
        for name, tensor in network.items():
            torch.testing.assert_close(message[name], tensor, rtol=0, atol=1e-9)
        for name, tensor in g.items():
            torch.testing.assert_close(message[f"generator.{name}"], tensor, rtol=0, atol=1e-9)
        assert not torch.equal(g["0.weight"], server["generator"]["0.weight"])
        for name, tensor in d.items():
            torch.testing.assert_close(message[f"discriminator.{NAMES[name[0]]}{name[1:]}"], tensor, rtol=0, atol=1e-9)
        assert torch.equal(message["discriminator.0.weight"], server["client_discriminator"]["0.weight"][k])


def test_generator_travels_and_discriminators_stay():
    task, clients = tiny.task(local=LOCAL), tiny.clients()
    method = FedADG(widths=(6, 4))
    server = method.init(task, clients)
    messages = method.update(task, server, clients, 1)
    after = method.aggregate(task, server, messages, clients, 1)
    expected = sum(len(c.train) * m["generator.0.bias"] for c, m in zip(clients, messages, strict=True)) / 28
    torch.testing.assert_close(after["generator"]["0.bias"], expected)
    for k, message in enumerate(messages):
        for name, tensor in part(message, "discriminator.").items():
            assert torch.equal(after["client_discriminator"][name][k], tensor)


def test_without_the_adversary_it_is_fedavg():
    task, clients = tiny.task(local=LOCAL), tiny.clients()
    method = FedADG(beta=0.0, lr=0.2, widths=(6, 4))
    server = method.init(task, clients)
    ours = method.aggregate(task, server, method.update(task, server, clients, 1), clients, 1)["model"]
    plain = FedAvg(weighting="samples", lr=0.2)
    theirs = plain.aggregate(task, server, plain.update(task, server, clients, 1), clients, 1)["model"]
    for name in theirs:
        torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize("features", [None, 4])
def test_stacked_clients_equal_one_by_one(monkeypatch, features):
    """Three rounds of clients with 9, 5 and 14 images, whose last batches and numbers of steps differ, in stacks of two and in one of
    three."""
    local = replace(LOCAL, steps=None, epochs=2)
    stacks, found = [], []
    monkeypatch.setattr(fedadg, "in_stacks", lambda order, size, run: stacks.append(size) or in_stacks(order, size, run))
    for chunk_size in (1, 2, 3):
        task, clients = tiny.task(local=local, chunk_size=chunk_size), tiny.clients()
        method = FedADG(beta=0.7, adversarial_lr=0.3, widths=(6, 4), features=features)
        server = method.init(task, clients)
        for t in (1, 2, 3):
            server = method.aggregate(task, server, method.update(task, server, clients, t), clients, t)
        found.append(server)
    assert stacks == [1] * 3 + [2] * 3 + [3] * 3
    for other in found[1:]:
        for group in ("model", "generator", "client_discriminator"):
            for name, tensor in found[0][group].items():
                torch.testing.assert_close(other[group][name], tensor, rtol=0, atol=1e-10)


def test_a_layer_of_features_before_the_head():
    """As wide as asked for, after the network's own features, trained, and part of the prediction."""
    task, clients = tiny.task(local=LOCAL), tiny.clients()
    method = FedADG(widths=(6, 4), features=7)
    server = method.init(task, clients)
    assert server["model"]["head.weight"].shape == (3, 7)
    assert server["generator"]["2.weight"].shape == (7, 6)
    after = method.aggregate(task, server, method.update(task, server, clients, 1), clients, 1)["model"]
    (layer,) = [name for name, tensor in after.items() if tensor.shape == (7, 5)]
    assert not torch.equal(after[layer], server["model"][layer])
    stream = Stream(tiny.samples(6, 7).images, "test", 8)
    inputs = task.inputs(stream.images).flatten(1)
    hidden = torch.tanh(inputs @ after["extractor.0.1.weight"].T + after["extractor.0.1.bias"])
    hidden = torch.relu(hidden @ after["extractor.1.weight"].T + after["extractor.1.bias"])
    torch.testing.assert_close(FedADGPredict(7).run(task, after, {}, stream).scores, hidden @ after["head.weight"].T + after["head.bias"])
    plain = FedAvg().init(task, clients)["model"]
    assert torch.equal(FedADGPredict().run(task, plain, {}, stream).scores, NoAdapt().run(task, plain, {}, stream).scores)
