import pytest
import torch
from torch.func import functional_call

from fedlib.adapt.fedsr import FedSRPredict
from fedlib.core import Stream
from fedlib.train.fedsr import FedSR, representation
from tests import tiny

F64 = torch.float64


def test_prediction_averages_over_draws():
    task, clients = tiny.task(), tiny.clients()
    state = FedSR().init(task, clients)["model"]
    stream = Stream(tiny.samples(7).images, "test", 3)
    scores = FedSRPredict(draws=4000).run(task, state, {}, stream).scores
    torch.testing.assert_close(scores.exp().sum(1), torch.ones(7, dtype=F64))
    assert torch.equal(scores, FedSRPredict(draws=4000).run(task, state, {}, stream).scores)
    mean, scale = representation(task.model, state, task.inputs(stream.images))
    noise = torch.randn(4000, *mean.shape, generator=torch.Generator().manual_seed(1), dtype=F64)
    expected = functional_call(task.model.head, {"weight": state["head.weight"], "bias": state["head.bias"]}, (mean + scale * noise,))
    torch.testing.assert_close(scores.exp(), expected.softmax(-1).mean(0), rtol=0, atol=0.02)
    with pytest.raises(ValueError, match="fedsr"):
        FedSRPredict().run(task, {"head.weight": state["head.weight"]}, {}, stream)
