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


def test_the_average_is_by_size():
    """Two clients of 4 and 12 images."""
    task, clients, method = tiny.task(), [tiny.client(0, 4), tiny.client(1, 12)], FedRepLocal()
    server = method.init(task, clients)
    messages = [{name: torch.full_like(tensor, k) for name, tensor in state_of(task.model).items()} for k in (0, 1)]
    after = method.aggregate(task, server, messages, clients, 1)["model"]
    assert after["extractor.1.weight"].unique().tolist() == [0.75]
