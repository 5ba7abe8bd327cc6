import pytest
import torch

from fedlib.models import state_of
from fedlib.train.fedavg import FedAvg
from fedlib.train.qffl import LOSS, QFFL
from tests import tiny


def one_round(method, task, clients):
    server = method.init(task, clients)
    messages = method.update(task, server, clients, 1)
    return server["model"], messages, method.aggregate(task, server, messages, clients, 1)["model"]


@pytest.mark.parametrize("q", [0.5, 1.0])
def test_equals_the_formula_written_out(q):
    task, clients = tiny.task("batchnorm"), tiny.clients()
    before, messages, after = one_round(QFFL(q), task, clients)
    rate = task.schedule.local.lr
    names = [name for name, _ in task.model.named_parameters()]
    vectors = [torch.cat([m[name].flatten() for name in names]) for m in messages]
    start = torch.cat([before[name].flatten() for name in names])
    top, bottom = torch.zeros_like(start), 0.0
    for client, trained in zip(clients, vectors, strict=True):
        logits = task.predict(before, client.train.images)[1]
        loss = sum(-logits[i].log_softmax(0)[y] for i, y in enumerate(client.train.labels)) / len(client.train)
        delta = (start - trained) / rate
        top, bottom = top + loss**q * delta, bottom + q * loss ** (q - 1) * (delta**2).sum() + loss**q / rate
    result = torch.cat([after[name].flatten() for name in names])
    torch.testing.assert_close(result, start - top / bottom, rtol=1e-9, atol=1e-12)
    assert (result - start).abs().max() > 1e-4


def test_batch_norm_statistics_are_averaged_by_samples():
    task, clients = tiny.task("batchnorm"), tiny.clients()
    _, messages, after = one_round(QFFL(), task, clients)
    name = "extractor.1.running_mean"
    expected = sum(len(c.train) * m[name] for c, m in zip(clients, messages, strict=True)) / sum(len(c.train) for c in clients)
    torch.testing.assert_close(after[name], expected)
    assert LOSS not in after
    assert set(after) == set(state_of(task.model))


def test_q_zero_is_the_uniform_mean():
    task, clients = tiny.task(), tiny.clients()
    _, _, ours = one_round(QFFL(0.0), task, clients)
    _, _, uniform = one_round(FedAvg(), task, clients)
    for name, tensor in uniform.items():
        torch.testing.assert_close(ours[name], tensor)


def test_negative_q_is_refused():
    with pytest.raises(ValueError, match="q must be 0 or more"):
        QFFL(-1.0)
