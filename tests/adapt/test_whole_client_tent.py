import pytest
import torch

from fedlib.adapt.whole_client import TentAll, entropy, network_of
from fedlib.core import Local, Stream
from fedlib.train.fedavg import FedAvg
from tests import one_pixel, tiny
from tests.oracles import fedtta as oracle

F64 = torch.float64


def setup():
    task = tiny.task(local=Local(lr=0.1, weight_decay=0.0, batch_size=4, clip=10.0), augment="none")
    return task, FedAvg().init(task, [])["model"], Stream(tiny.samples(10, 3).images, "test", 5)


def bits(logits):
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean() / torch.log(torch.tensor(2.0, dtype=F64))


def test_steps_equal_the_loop_and_lower_entropy():
    task, state, stream = setup()
    order = torch.randperm(10, generator=task.generator("whole client", 5, "test", 0))
    batches = [task.inputs(stream.images[index]) for index in order.split(4)]
    path = oracle.steps_on_client(task, state, [torch.cat(batches)], bits, 0.3, 2)  # the mean over images, however they are cut
    for steps in (0, 1, 2):
        scores = TentAll(0.3, steps).run(task, state, {}, stream).scores
        torch.testing.assert_close(scores, oracle.network(task.model, path[steps], task.inputs(stream.images)), rtol=0, atol=1e-9)
    assert entropy(scores) < entropy(TentAll(0.3, 0).run(task, state, {}, stream).scores)


def test_one_step_by_hand():
    """Two parameters, one white image, logits (w, 0), p = s(w): the entropy in bits has the slope -w p (1 - p) / ln 2 in the first."""
    task = one_pixel.task(Local(lr=1.0, weight_decay=0.0, batch_size=1))
    scores = TentAll(0.5).run(task, one_pixel.state(1, 0), {}, Stream(one_pixel.white(0).images, "test", 0)).scores
    p = torch.sigmoid(torch.tensor(1.0)).item()
    slope = p * (1 - p) * 1.4426950408889634
    assert scores.flatten().tolist() == pytest.approx([1 + 0.5 * slope, -0.5 * slope])


def test_personal_parts_replace_the_received_ones():
    task, state, stream = setup()
    personal = {"model.head.bias": torch.tensor([9.0, 0.0, 0.0], dtype=F64)}
    assert TentAll(0.1).run(task, state, personal, stream).scores.argmax(1).tolist() == [0] * 10
    assert list(network_of(state | {"adaptation.x": state["head.bias"]})) == list(state)
