from dataclasses import replace

import pytest
import torch
from torch import nn

from fedlib.adapt.knn_per import KNNPer
from fedlib.augment.transform import Transform
from fedlib.core import Client, Local, Samples, Schedule, Task
from fedlib.models import Net, state_of
from fedlib.personalize.knn_per import LocalMemory
from fedlib.states import slice_of
from fedlib.train.local import batch_of, plan
from tests import tiny
from tests.oracles import knn_per as oracle


def fitted(task, clients):
    states, method = [state_of(tiny.net(seed=k)) for k in range(len(clients))], LocalMemory(k=3, scale=0.05)
    return states, method.fit(task, states, clients, method.init(task, clients), 2)


def test_weights_equal_a_search_by_plain_loops():
    """Memory of one augmented pass over uneven clients, blended by the oracle for all 101 weights on the validation part."""
    task, clients = tiny.task(), [replace(c, val=tiny.samples(20, 50 + c.id)) for c in tiny.clients()]
    states, personal = fitted(task, clients)
    mixes = []
    for k, client in enumerate(clients):
        local = Local(batch_size=4, epochs=1)
        batches = [batch_of(task, client.train, step) for step in plan(len(client.train), local, task, task.generator("personal", k, 2))]
        model = tiny.net(seed=k).eval()
        with torch.no_grad():
            keys = torch.cat([model.extractor(x) for x, _ in batches])
        labels = torch.cat([y for _, y in batches])
        n = len(client.train)
        assert personal["key_count"][k] == n
        torch.testing.assert_close(personal["keys"][k][:n], keys)
        assert torch.equal(personal["key_labels"][k][:n], labels)
        features, logits = task.predict(states[k], client.val.images)
        correct = []
        for i in range(101):
            rows = oracle.blend(features.numpy(), keys.numpy(), labels.numpy(), logits.numpy(), k=3, scale=0.05, mix=i / 100)
            correct.append(sum(max(range(3), key=row.__getitem__) == y for row, y in zip(rows, client.val.labels.tolist(), strict=True)))
        mixes.append(correct.index(max(correct)) / 100)
    assert personal["mix"].tolist() == pytest.approx(mixes)
    assert len(set(mixes)) > 1


def test_tests_are_never_read():
    """Clients without any test, or with other tests and labels, get the same memory and weight."""
    task, clients = tiny.task(), tiny.clients()
    other = [replace(c, tests={"original": (tiny.samples(5, 900 + c.id),)}) for c in clients]
    (_, first), (_, second), (_, third) = (fitted(task, group) for group in (clients, other, [replace(c, tests={}) for c in clients]))
    assert all(torch.equal(first[name], second[name]) and torch.equal(first[name], third[name]) for name in first)
    moved = [replace(c, val=Samples(c.val.images, (c.val.labels + 1) % 3)) for c in clients]
    assert not torch.equal(fitted(task, moved)[1]["mix"], first["mix"])


def test_by_hand():
    """A model that always says class 0 by 0.3, and a memory that knows: dark is class 0, bright is class 1. Client 0 validates on a
    bright sample of class 1: the memory is right alone, the first weight wins. Client 1's bright validation sample is of class 0: the
    model wins as soon as 0.3 mix > 1 - mix, at 0.77."""
    model = Net(nn.Flatten(), nn.Linear(1, 2)).double()
    task = Task(model, Transform((0.0,), (1.0,), "none"), 2, Schedule(), seed=0, dtype=torch.float64)
    images = lambda *values: torch.tensor(values, dtype=torch.uint8).view(-1, 1, 1, 1)  # noqa: E731
    train = Samples(images(0, 255), torch.tensor([0, 1]))
    tests = {"original": (Samples(images(250, 10), torch.tensor([1, 0])),)}
    clients = [Client(k, train, Samples(images(250), torch.tensor([1 - k])), tests) for k in (0, 1)]
    state = {"head.weight": torch.zeros(2, 1, dtype=torch.float64), "head.bias": torch.tensor([0.3, 0.0], dtype=torch.float64)}
    personal = LocalMemory(k=1).fit(task, [state, state], clients, {}, 1)
    assert personal["mix"].tolist() == pytest.approx([0, 0.77])
    scores = [KNNPer().run(task, state, slice_of(personal, k), clients[k].stream("original")).scores for k in (0, 1)]
    assert scores[0].flatten().tolist() == pytest.approx([0, 1, 1, 0])
    assert scores[1].flatten().tolist() == pytest.approx([0.231, 0.23, 0.461, 0])


def test_no_validation_part():
    clients = [replace(c, val=Samples(c.val.images[:0], c.val.labels[:0])) for c in tiny.clients()]
    with pytest.raises(ValueError, match=r"validation.*client 0"):
        fitted(tiny.task(), clients)


def test_bad_options():
    for options in ({"k": 0}, {"scale": 0}, {"candidates": 1}):
        with pytest.raises(ValueError, match="range"):
            LocalMemory(**options)
