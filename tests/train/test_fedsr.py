import pytest
import torch
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import cross_entropy, softplus

from fedlib.augment.transform import Transform
from fedlib.core import Local, Task
from fedlib.models import build
from fedlib.train.fedsr import REFERENCE, SIGMA, FedSR, alignment, representation
from fedlib.train.local import batch_of, round_plan
from tests import tiny

LOCAL = Local(lr=0.05, weight_decay=0.01, batch_size=4, steps=3, continued=True)
F64 = torch.float64


def test_alignment_is_the_divergence_of_gaussians():
    draws = torch.Generator().manual_seed(0)
    mean, scale = torch.randn(6, 5, generator=draws, dtype=F64), torch.rand(6, 5, generator=draws, dtype=F64) + 0.1
    reference = {"mean": torch.randn(3, 5, generator=draws, dtype=F64), "scale": torch.randn(3, 5, generator=draws, dtype=F64)}
    reference["factor"] = torch.tensor(1.3, dtype=F64)
    labels = torch.tensor([0, 1, 2, 2, 1, 0])
    target = Normal(reference["mean"][labels], softplus(reference["scale"][labels]))
    expected = kl_divergence(Normal(1.3 * mean, 1.3 * scale), target).sum(1)
    torch.testing.assert_close(alignment(mean, scale, reference, labels), expected)


@pytest.mark.parametrize("name", ["mlp", "convnet_small"])
def test_two_halves_are_one_doubled_layer(name):
    model = build(name, (1, 8, 8), 3, seed=0).double()
    task = Task(model, Transform((0.5,), (0.5,), "none"), 3, tiny.task().schedule, 0, dtype=F64)
    state = FedSR().init(task, tiny.clients())["model"]
    inputs = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=F64)
    mean, scale = representation(model, state, inputs)
    body = model.extractor.body if name.startswith("conv") else model.extractor
    index, layer = [(i, layer) for i, layer in enumerate(body) if hasattr(layer, "weight")][-1]
    doubled = torch.nn.functional.conv2d if name.startswith("conv") else torch.nn.functional.linear
    options = {"padding": 2} if name.startswith("conv") else {}
    weight, bias = (torch.cat([getattr(layer, part), state[f"{SIGMA}{part}"]]) for part in ("weight", "bias"))
    hidden = doubled(body[:index](inputs), weight, bias, **options)
    for half, found in zip(hidden.chunk(2, dim=1), (mean, scale), strict=True):
        expected = body[index + 1 :](half)
        torch.testing.assert_close(found, expected if found is mean else softplus(expected))


def test_update_equals_a_bare_loop():
    task, clients = tiny.task(local=LOCAL, augment="none"), tiny.clients()
    method = FedSR(l2r=0.3, cmi=0.2)
    server = method.init(task, clients)
    for k, (client, state) in enumerate(zip(clients, method.update(task, server, clients, 1), strict=True)):
        w = server["model"] | {f"{REFERENCE}{n}": t[k] for n, t in server["client_reference"].items()}
        with torch.random.fork_rng():
            torch.manual_seed(int(torch.randint(2**62, (), generator=task.generator("local", client.id, 1))))
            for step in round_plan(client, task, 1):
                w = {n: t.detach().clone().requires_grad_() for n, t in w.items()}
                inputs, labels = batch_of(task, client.train, step)
                flat = inputs.flatten(1)
                mu = torch.tanh(flat @ w["extractor.1.weight"].T + w["extractor.1.bias"])
                sigma = softplus(torch.tanh(flat @ w["sigma.weight"].T + w["sigma.bias"]))
                z = mu + sigma * torch.randn_like(mu)
                factor, spread = w["reference.factor"], softplus(w["reference.scale"])[labels]
                target = Normal(w["reference.mean"][labels], spread)
                divergence = kl_divergence(Normal(factor * mu, factor * sigma), target).sum(1).mean()
                loss = cross_entropy(z @ w["head.weight"].T + w["head.bias"], labels)
                loss = loss + 0.3 * z.square().sum(1).sqrt().mean() + 0.2 * divergence
                loss.backward()
                w = {n: t - 0.05 * (t.grad + 0.01 * t) for n, t in w.items()}
        for name in state:
            torch.testing.assert_close(state[name], w[name].detach(), rtol=0, atol=1e-9)


def test_references_stay_with_their_client():
    task, clients = tiny.task(local=LOCAL), tiny.clients()
    method = FedSR(cmi=0.5)
    server = method.init(task, clients)
    messages = method.update(task, server, clients, 1)
    after = method.aggregate(task, server, messages, clients, 1)
    for k, message in enumerate(messages):
        assert torch.equal(after["client_reference"]["mean"][k], message[f"{REFERENCE}mean"])
    assert not torch.allclose(after["client_reference"]["mean"][0], after["client_reference"]["mean"][1])
    assert set(after["model"]) == set(server["model"])
    expected = sum(len(c.train) * m["sigma.weight"] for c, m in zip(clients, messages, strict=True)) / 28
    torch.testing.assert_close(after["model"]["sigma.weight"], expected)


@pytest.mark.parametrize("name", ["mlp", "convnet_small", "cnn"])
def test_bodies_that_end_in_a_plain_layer_are_taken(name):
    FedSR().check_network(build(name, (3, 32, 32), 3, seed=0))


@pytest.mark.parametrize("name", ["resnet20gn", "cct4", "shallow_cnn"])
def test_other_bodies_are_refused(name):
    with pytest.raises(ValueError, match="doubles the last layer of the body"):
        FedSR().check_network(build(name, (3, 32, 32), 3, seed=0))
