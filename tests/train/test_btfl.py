import pytest
import torch
from torch import nn

from fedlib.augment.transform import Transform
from fedlib.core import Client, Local, Samples, Schedule, Task
from fedlib.models import Net
from fedlib.train.btfl import SparseFedAvg
from fedlib.train.fedavg import FedAvg
from tests import tiny


def test_one_step_by_hand():
    """One white pixel, one feature f = v = 2, two classes with zero heads: cross-entropy moves neither v nor, with one image of each
    class, the head. The penalty's gradient for v is l1 / 32 times the number of images, whatever the batch's mean."""
    model = Net(nn.Sequential(nn.Flatten(), nn.Linear(1, 1, bias=False)), nn.Linear(1, 2, bias=False)).double()
    local = Local(lr=1.0, weight_decay=0.0, epochs=1)
    task = Task(model, Transform((0.0,), (1.0,), "none"), 2, Schedule(rounds=1, local=local), seed=0, dtype=torch.float64)
    state = {"extractor.1.weight": torch.full((1, 1), 2.0).double(), "head.weight": torch.zeros(2, 1).double()}
    samples = Samples(torch.full((2, 1, 1, 1), 255, dtype=torch.uint8), torch.tensor([0, 1]))
    message = SparseFedAvg(0.8).update(task, {"model": state}, [Client(0, samples, samples)], 1)[0]
    assert message["extractor.1.weight"].item() == pytest.approx(2 - 0.8 / 32 * 2)
    assert message["head.weight"].flatten().tolist() == [0, 0]


def test_vanishing_penalty_is_fedavg():
    task, clients = tiny.task(), tiny.clients()
    server = FedAvg().init(task, clients)
    plain, sparse = (method.update(task, server, clients, 1) for method in (FedAvg(), SparseFedAvg(1e-13)))
    for a, b in zip(plain, sparse, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_penalty_shrinks_features():
    task, clients = tiny.task(local=Local(lr=0.1, batch_size=4, epochs=5)), tiny.clients()
    server = FedAvg().init(task, clients)
    sizes = []
    for method in (FedAvg(), SparseFedAvg(2.0)):
        after = method.aggregate(task, server, method.update(task, server, clients, 1), clients, 1)["model"]
        sizes.append(task.predict(after, clients[0].train.images)[0].abs().mean().item())
    assert sizes[1] < 0.9 * sizes[0]


def test_stacked_clients_equal_single_ones():
    """Short last batches are padded in a stack; the padding must not be penalised."""
    clients = tiny.clients()
    states = []
    for chunk_size in (1, 3):
        task = tiny.task(chunk_size=chunk_size)
        states.append(SparseFedAvg(0.5).update(task, FedAvg().init(task, clients), clients, 1))
    for a, b in zip(*states, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_no_penalty_is_refused():
    with pytest.raises(ValueError, match="use FedAvg"):
        SparseFedAvg(0.0)
