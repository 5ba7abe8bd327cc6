import torch

from fedlib.core import Local
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
