import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from fedlib.augment.transform import Transform
from fedlib.core import Client, Local, Samples, Schedule, Task
from fedlib.models import Net
from fedlib.train.fedavg import FedAvg, class_counts, mean
from tests import tiny


def two_parameter_task(local):
    """One pixel in, two classes, no bias: logits (w_0 x, w_1 x); white pixels give x = 1."""
    model = Net(nn.Flatten(), nn.Linear(1, 2, bias=False)).double()
    return Task(model, Transform((0.0,), (1.0,), "none"), 2, Schedule(rounds=1, local=local), seed=0, dtype=torch.float64)


def white(labels):
    return Samples(torch.full((len(labels), 1, 1, 1), 255, dtype=torch.uint8), torch.tensor(labels))


def two_clients():
    return [Client(0, white([0]), white([])), Client(1, white([1, 1, 0]), white([]))]


@pytest.mark.parametrize(("weighting", "shares"), [("uniform", (0.5, 0.5)), ("samples", (0.25, 0.75))])
def test_one_step_of_two_clients_by_hand(weighting, shares):
    """From w = (0, 0) both classes have probability 1/2, so the gradient of a sample is +-1/2; client 1's mean is (1, 2)/3 against
    1/2. Rate 1 moves client 0 by (1/2, -1/2) and client 1 by (-1/6, 1/6)."""
    task, method = two_parameter_task(Local(lr=1.0, weight_decay=0.0, epochs=1)), FedAvg(weighting=weighting)
    server = {"model": {"head.weight": torch.zeros(2, 1, dtype=torch.float64)}}
    messages = method.update(task, server, two_clients(), 1)
    assert messages[0]["head.weight"].flatten().tolist() == pytest.approx([1 / 2, -1 / 2])
    assert messages[1]["head.weight"].flatten().tolist() == pytest.approx([-1 / 6, 1 / 6])
    after = method.aggregate(task, server, messages, two_clients(), 1)["model"]["head.weight"].flatten().tolist()
    assert after == pytest.approx([shares[0] / 2 - shares[1] / 6, -shares[0] / 2 + shares[1] / 6])


def test_balanced_softmax_step_by_hand():
    """Client 1 holds classes (1, 2): from w = 0 the adjusted probabilities are (2, 3)/5, so the step is (1/3 - 2/5, 2/3 - 3/5)."""
    task = two_parameter_task(Local(lr=1.0, weight_decay=0.0, epochs=1))
    server = {"model": {"head.weight": torch.zeros(2, 1, dtype=torch.float64)}}
    message = FedAvg(loss="balanced_softmax").update(task, server, two_clients(), 1)[1]
    assert message["head.weight"].flatten().tolist() == pytest.approx([-1 / 15, 1 / 15])


def test_weight_decay_by_hand():
    """Equal weights, one sample of each class: the data gradient vanishes and only the decay acts."""
    task = two_parameter_task(Local(lr=0.5, weight_decay=0.1, epochs=1))
    server = {"model": {"head.weight": torch.full((2, 1), 2.0, dtype=torch.float64)}}
    message = FedAvg().update(task, server, [Client(0, white([0, 1]), white([]))], 1)[0]
    assert message["head.weight"].flatten().tolist() == pytest.approx([1.9, 1.9])


def test_class_counts_include_absent_classes():
    counts = class_counts(tiny.task(), [Client(0, white([1, 1]), white([]))])
    assert counts[0]["class_counts"].tolist() == [0, 2, 0]


def test_mean_of_buffers_and_counters():
    states = [{"a": torch.tensor([1.0, 2.0]), "n": torch.tensor(3)}, {"a": torch.tensor([3.0, 6.0]), "n": torch.tensor(5)}]
    result = mean(states, [3.0, 1.0])
    assert result["a"].tolist() == [1.5, 3.0]
    assert result["n"].item() == 3
    result["n"].add_(1)
    assert states[0]["n"].item() == 3


def test_initial_state_is_the_networks_own():
    task = tiny.task()
    assert torch.equal(FedAvg().init(task, [])["model"]["head.weight"], task.model.head.weight)


def test_rounds_draw_anew():
    task = tiny.task(local=Local(lr=0.1, batch_size=4, epochs=1))
    server, cohort = FedAvg().init(task, []), tiny.clients()
    first, again, second = (FedAvg().update(task, server, cohort, t)[0]["head.weight"] for t in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def test_learning_lowers_the_loss():
    task = tiny.task(local=Local(lr=0.3, batch_size=4, epochs=20))
    server, samples = FedAvg().init(task, []), tiny.samples(40)
    message = FedAvg().update(task, server, [replace(tiny.client(0), train=samples)], 1)[0]
    loss = nn.functional.cross_entropy(task.predict(message, samples.images)[1], samples.labels).item()
    assert loss < 0.5 * math.log(3)


def test_bad_names():
    with pytest.raises(ValueError, match="balanced_softmax"):
        FedAvg(loss="balanced")
    with pytest.raises(ValueError, match="samples"):
        FedAvg(weighting="size")
