import pytest
import torch

from fedlib.models import state_of
from fedlib.train.fedavg import FedAvg
from fedlib.train.qffl import LOSS, QFFL
from tests import tiny

MEAN = "extractor.1.running_mean"


def one_round(method, task, clients):
    server = method.init(task, clients)
    messages = method.update(task, server, clients, 1)
    return server["model"], messages, method.aggregate(task, server, messages, clients, 1)["model"]


def losses(task, model, clients):
    """Mean cross-entropy of each client's training part, sample by sample."""
    logits = [task.predict(model, client.train.images)[1] for client in clients]
    return [
        sum(-rows[i].log_softmax(0)[y] for i, y in enumerate(c.train.labels)) / len(c.train)
        for rows, c in zip(logits, clients, strict=True)
    ]


@pytest.mark.parametrize("q", [0.5, 1.0, 3.0])
def test_whole_state_is_the_loss_weighted_mean(q):
    task, clients = tiny.task("batchnorm"), tiny.clients()
    before, messages, after = one_round(QFFL(q), task, clients)
    weights = [len(c.train) * f**q for c, f in zip(clients, losses(task, before, clients), strict=True)]
    for name in [*dict(task.model.named_parameters()), MEAN]:
        expected = sum(w * m[name] for w, m in zip(weights, messages, strict=True)) / sum(weights)
        torch.testing.assert_close(after[name], expected, rtol=1e-8, atol=1e-10)
    assert LOSS not in after
    assert set(after) == set(state_of(task.model))


def test_q_zero_is_fedavg_by_samples():
    task, clients = tiny.task("batchnorm"), tiny.clients()
    _, _, ours = one_round(QFFL(0.0), task, clients)
    _, _, fedavg = one_round(FedAvg(weighting="samples"), task, clients)
    for name, tensor in fedavg.items():
        torch.testing.assert_close(ours[name], tensor)


def test_negative_q_is_refused():
    with pytest.raises(ValueError, match="q must be 0 or more"):
        QFFL(-1.0)
