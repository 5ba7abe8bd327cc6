import torch

from fedlib.train.fedbn import FedBN
from tests import tiny


def test_the_average_is_by_size():
    """Two clients of 4 and 12 images: the shared part is their mean, batch norm stays apart."""
    clients = [tiny.client(0, 4), tiny.client(1, 12)]
    task, method = tiny.task("batchnorm"), FedBN()
    server = method.init(task, clients)
    messages = [{name: torch.full_like(t, k) for name, t in server["model"].items()} for k in (0, 1)]
    after = method.aggregate(task, server, messages, clients, 1)
    assert after["model"]["head.weight"].unique().tolist() == [0.75]
    assert after["client_model"]["extractor.1.weight"][:, 0].tolist() == [0, 1]
