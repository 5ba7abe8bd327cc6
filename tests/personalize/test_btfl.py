import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedlib.adapt.btfl import frequency_table
from fedlib.models import Net, state_of
from fedlib.personalize.btfl import BTFLPersonal, mean_entropy
from fedlib.personalize.head import PersonalHead
from tests import tiny


def rectified_task(**fields):
    """The tiny task with features that are never negative."""
    task = tiny.task(augment="none", **fields)
    return replace(task, model=Net(nn.Sequential(*list(task.model.extractor)[:2], nn.ReLU()), task.model.head))


@pytest.fixture(scope="module")
def fitted():
    task, clients = rectified_task(), tiny.clients()
    received = [state_of(task.model)] * len(clients)
    method = BTFLPersonal()
    first = method.fit(task, received, clients, method.init(task, clients), 1)
    return task, clients, received, first, method.fit(task, received, clients, first, 2)


def test_tables_and_entropies_of_the_training_part(fitted):
    """Without augmentation one pass over the training part meets every sample once."""
    task, clients, received, _, personal = fitted
    for k, client in enumerate(clients):
        features, global_logits = task.predict(received[k], client.train.images)
        torch.testing.assert_close(personal["table"][k], frequency_table(features), rtol=0, atol=1e-12)
        logits = functional.linear(features, personal["model.head.weight"][k])
        expected = torch.stack([mean_entropy(logits), mean_entropy(global_logits)])
        torch.testing.assert_close(personal["entropies"][k], expected, rtol=1e-9, atol=1e-9)
    assert personal["table"][:, 1].std() > 0


def test_tables_of_the_others_and_of_all(fitted):
    table = fitted[-1]["table"]
    torch.testing.assert_close(fitted[-1]["others_table"][0], table[1:].mean(0), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(fitted[-1]["shared.table"], table.mean(0), rtol=1e-12, atol=1e-12)


def test_the_head_is_fedthes_and_persists(fitted):
    task, clients, received, first, second = fitted
    method = PersonalHead()
    theirs = method.fit(task, received, clients, method.init(task, clients), 1)
    assert torch.equal(first["model.head.weight"], theirs["model.head.weight"])
    assert not torch.equal(first["model.head.weight"], second["model.head.weight"])
    again = method.fit(task, received, clients, theirs, 2)
    assert torch.equal(second["model.head.weight"], again["model.head.weight"])


def test_negative_features_are_refused():
    task, clients = tiny.task(), tiny.clients()
    method = BTFLPersonal()
    with pytest.raises(ValueError, match="ReLU"):
        method.fit(task, [state_of(task.model)] * 3, clients, method.init(task, clients), 1)


def test_mean_entropy():
    logits = torch.tensor([[0.0, 0.0], [math.log(3), 0.0]], dtype=torch.float64)
    expected = (math.log(2) + math.log(4) - 0.75 * math.log(3)) / 2
    assert mean_entropy(logits).item() == pytest.approx(expected, abs=1e-12)
