import pytest
import torch

from fedlib.core import Local
from fedlib.models import state_of
from fedlib.train.fedrep import FedRep
from fedlib.train.fedrep_local import FedRepLocal
from tests import tiny


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_first_round_is_fedthes_with_one_epoch_of_the_body(epochs):
    clients, task = tiny.clients(), tiny.task(local=Local(lr=0.1, batch_size=4, epochs=epochs, weight_decay=0.0))
    ours, theirs = (method.update(task, method.init(task, clients), clients, 1)[0] for method in (FedRepLocal(), FedRep()))
    assert torch.equal(ours["head.weight"], theirs["head.weight"])
    assert torch.equal(ours["extractor.1.weight"], theirs["extractor.1.weight"]) == (epochs == 1)


def test_a_number_of_steps_is_the_heads_alone():
    """Six steps of four images are two epochs over nine; the body has one either way."""
    results = []
    for asked in ({"epochs": 2}, {"steps": 6}):
        task, clients = tiny.task(local=Local(lr=0.1, batch_size=4, **asked)), tiny.clients((9,))
        results += FedRepLocal().update(task, FedRepLocal().init(task, clients), clients, 1)
    assert all(torch.equal(tensor, results[1][name]) for name, tensor in results[0].items())


def test_the_average_is_by_size():
    """Two clients of 4 and 12 images."""
    task, clients, method = tiny.task(), [tiny.client(0, 4), tiny.client(1, 12)], FedRepLocal()
    server = method.init(task, clients)
    messages = [{name: torch.full_like(tensor, k) for name, tensor in state_of(task.model).items()} for k in (0, 1)]
    after = method.aggregate(task, server, messages, clients, 1)["model"]
    assert after["extractor.1.weight"].unique().tolist() == [0.75]
