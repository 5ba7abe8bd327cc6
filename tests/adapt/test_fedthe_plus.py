import pytest
import torch
from torch import nn
from torch.nn.functional import linear

from fedlib.adapt.fedthe import FedTHE
from fedlib.adapt.fedthe_plus import FedTHEPlus
from fedlib.models import state_of
from tests import tiny
from tests.oracles import tuning as oracle


class TwoHeads(nn.Module):
    def __init__(self, net, weight):
        super().__init__()
        self.net, self.weight = net, nn.Parameter(weight.clone())


def problem(chunk_size, kind="convolution", dtype=torch.float64):
    task = tiny.task(kind, chunk_size=chunk_size, dtype=dtype)
    g = torch.Generator().manual_seed(0)
    personal = {
        "model.head.weight": torch.randn(3, 5, generator=g, dtype=torch.float64).to(dtype),
        "descriptor": torch.rand(5, generator=g, dtype=torch.float64).to(dtype),
        "shared.descriptor": torch.rand(5, generator=g, dtype=torch.float64).to(dtype),
    }
    return task, state_of(task.model), personal, tiny.client(0).stream("original", limit=6)


@pytest.mark.parametrize("kind", ["convolution", "batchnorm"])
@pytest.mark.parametrize("chunk_size", [1, 4])
def test_equals_copies_of_the_module_with_the_weight_fixed(kind, chunk_size):
    task, state, personal, stream = problem(chunk_size, kind)
    weight = FedTHE(batch_size=4).run(task, state, personal, stream).extras["weight"]

    def forward(module, inputs, i):
        features = module.net.extractor(inputs)
        return weight[i] * module.net.head(features) + (1 - weight[i]) * linear(features, module.weight)

    module = TwoHeads(tiny.net(kind), personal["model.head.weight"])
    expected = oracle.tune(task, module, stream, forward, lambda p: torch.optim.SGD(p, 0.05), steps=3, n_views=4)
    output = FedTHEPlus(FedTHE(batch_size=4), views=4, lr=0.05).run(task, state, personal, stream)
    torch.testing.assert_close(output.scores, expected, rtol=0, atol=1e-10)
    assert torch.equal(output.extras["weight"], weight)
    assert (output.scores - FedTHE(batch_size=4).run(task, state, personal, stream).scores).abs().max() > 1e-4


def test_without_steps_it_is_fedthe():
    task, state, personal, stream = problem(4)
    plus, plain = (method.run(task, state, personal, stream) for method in (FedTHEPlus(steps=0), FedTHE()))
    torch.testing.assert_close(plus.scores, plain.scores)


@pytest.mark.parametrize("chunk_size", [1, 4])
def test_a_personal_head_may_have_a_bias(chunk_size):
    task, state, personal, stream = problem(chunk_size)
    biased = personal | {"model.head.bias": torch.tensor([3.0, 0.0, -3.0], dtype=torch.float64)}
    still, plain = (method.run(task, state, biased, stream).scores for method in (FedTHEPlus(steps=0), FedTHE()))
    torch.testing.assert_close(still, plain)
    assert (still - FedTHE().run(task, state, personal, stream).scores).abs().max() > 0.1
    tuned = FedTHEPlus(views=4, lr=0.05).run(task, state, biased, stream).scores
    assert 1e-6 < (tuned - still).abs().max() < 3


def test_float32_is_close_to_float64():
    outputs = [FedTHEPlus(views=4).run(*problem(1, dtype=dtype)).scores for dtype in (torch.float32, torch.float64)]
    assert outputs[0].dtype == torch.float32
    torch.testing.assert_close(outputs[0].double(), outputs[1], rtol=0, atol=1e-4)


def test_without_a_personal_head():
    task, state, _, stream = problem(1)
    with pytest.raises(ValueError, match="PersonalHead"):
        FedTHEPlus().run(task, state, {}, stream)
