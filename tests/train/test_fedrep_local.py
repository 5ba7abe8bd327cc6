import torch

from fedlib.core import Local
from fedlib.models import state_of
from fedlib.train.fedrep_local import FedRepLocal
from tests import tiny


def test_fedrep_trains_head_then_body():
    """No body epoch: only the head has moved. The head's phase is E epochs, whatever the body's."""
    clients, task = tiny.clients(), tiny.task(local=Local(lr=0.1, batch_size=4, epochs=1, weight_decay=0.0))
    still, moving = FedRepLocal(body_epochs=0), FedRepLocal()
    server = still.init(task, clients)
    first, second = (method.update(task, server, clients, 1)[0] for method in (still, moving))
    assert torch.equal(first["extractor.1.weight"], server["model"]["extractor.1.weight"])
    assert not torch.equal(second["extractor.1.weight"], server["model"]["extractor.1.weight"])
    assert torch.equal(first["head.weight"], second["head.weight"])
    assert not torch.equal(first["head.weight"], server["model"]["head.weight"])


def test_the_average_is_by_size():
    """Two clients of 4 and 12 images."""
    task, clients, method = tiny.task(), [tiny.client(0, 4), tiny.client(1, 12)], FedRepLocal()
    server = method.init(task, clients)
    messages = [{name: torch.full_like(tensor, k) for name, tensor in state_of(task.model).items()} for k in (0, 1)]
    after = method.aggregate(task, server, messages, clients, 1)["model"]
    assert after["extractor.1.weight"].unique().tolist() == [0.75]
