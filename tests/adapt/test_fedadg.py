import torch

from fedlib.adapt.fedadg import FedADGPredict
from fedlib.core import NoAdapt
from fedlib.models import state_of
from fedlib.train.fedadg import FedADG, with_features
from tests import tiny


def test_predicts_with_the_layer_that_training_put_before_the_head():
    task, stream = tiny.task(dtype=torch.float64), tiny.client(0).stream("original")
    server = FedADG(features=4, widths=(6, 5)).init(task, tiny.clients())
    output = FedADGPredict(4).run(task, server["model"], {}, stream)
    network = with_features(task, 4).eval()
    assert network.head.in_features == 4
    network.load_state_dict(server["model"])
    torch.testing.assert_close(output.scores, network(task.inputs(stream.images)).detach(), rtol=0, atol=1e-12)
    assert not task._passes  # of a network that is built anew for every stream


def test_without_a_layer_it_is_no_adaptation():
    task, stream = tiny.task(), tiny.client(0).stream("original")
    state = state_of(tiny.net(seed=1))
    assert torch.equal(FedADGPredict().run(task, state, {}, stream).scores, NoAdapt().run(task, state, {}, stream).scores)
