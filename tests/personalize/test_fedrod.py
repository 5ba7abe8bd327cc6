import pytest
import torch

from fedlib.adapt.mixture import HeadSum
from fedlib.core import Local
from fedlib.models import state_of
from fedlib.personalize.fedrod import FedRoD
from fedlib.states import part, slice_of
from fedlib.train.local import plan
from tests import one_pixel, tiny
from tests.oracles import two_sided as oracle

LOCAL = Local(lr=0.1, momentum=0.5, weight_decay=0.05, batch_size=4, epochs=2)
HEAD = ("personal_head.weight", "personal_head.bias")


@pytest.mark.parametrize("chunk_size", [1, 3])
@pytest.mark.parametrize("kind", ["convolution", "batchnorm"])
def test_equals_a_bare_loop_over_two_rounds(chunk_size, kind):
    task, clients, method = tiny.task(kind, chunk_size=chunk_size, personal=LOCAL), tiny.clients(), FedRoD()
    personal = method.init(task, clients)
    heads = [[personal[name][k] for name in HEAD] for k in range(3)]
    for t in (1, 2):
        received = [state_of(tiny.net(kind, seed=10 * t + k)) for k in range(3)]
        personal = method.fit(task, received, clients, personal, t)
        for k, client in enumerate(clients):
            steps = plan(len(client.train), LOCAL, task, task.generator("personal", client.id, t))
            model, heads[k] = oracle.fedrod(task, received[k], heads[k], client.train, steps, LOCAL)
            for name, tensor in zip(HEAD, heads[k], strict=True):
                torch.testing.assert_close(personal[name][k], tensor, rtol=0, atol=1e-9)
            for name, tensor in part(personal, "model.").items():
                torch.testing.assert_close(tensor[k], model[name], rtol=0, atol=1e-9)


def test_by_hand():
    """All zero. Client 0 holds one sample of class 0: the adjusted probabilities are (2, 1)/3, so that g moves by (1/3, -1/3); the head's
    are (1, 1)/2, weight and bias move by (1/2, -1/2), which add up at x = 1. Client 1 is the mirror image with class 1."""
    task, clients = one_pixel.task(), one_pixel.clients((0,), (1,))
    zero = {"personal_head.weight": torch.zeros(2, 2, 1), "personal_head.bias": torch.zeros(2, 2)}
    personal = FedRoD().fit(task, [one_pixel.state(0, 0)] * 2, clients, {n: t.double() for n, t in zero.items()}, 1)
    for k, sign in ((0, 1), (1, -1)):
        assert personal["model.head.weight"][k].flatten().tolist() == pytest.approx([sign / 3, -sign / 3])
        assert personal["personal_head.bias"][k].tolist() == pytest.approx([sign / 2, -sign / 2])
        scores = HeadSum().run(task, one_pixel.state(9, 9), slice_of(personal, k), clients[k].stream("original")).scores
        assert scores.flatten().tolist() == pytest.approx([sign * 4 / 3, -sign * 4 / 3])


def test_heads_start_apart_with_a_bias():
    task, clients = tiny.task(), tiny.clients()
    start = FedRoD().init(task, clients)
    assert start["personal_head.bias"].shape == (3, 3)
    assert start["personal_head.weight"].dtype == torch.float64
    assert not torch.equal(start["personal_head.weight"][0], start["personal_head.weight"][1])
    assert torch.equal(start["personal_head.weight"], FedRoD().init(task, clients)["personal_head.weight"])
    assert FedRoD().persistent
