import torch

from fedlib.train.alone import Alone
from tests import tiny
from tests.train.staying import trained


def test_a_client_does_not_see_the_others():
    alone = trained(Alone(), clients=tiny.clients()[:1]).received(4, 1)[0]
    among = trained(Alone()).received(4, 3)[0]
    assert all(torch.equal(alone[name], among[name]) for name in alone)


def test_who_takes_no_part_gets_the_mean_by_size():
    """Two clients of 4 and 12 images."""
    task, clients, method = tiny.task(), [tiny.client(0, 4), tiny.client(1, 12)], Alone()
    server = method.init(task, clients)
    messages = [{name: torch.full_like(tensor, k) for name, tensor in server["model"].items()} for k in (0, 1)]
    assert method.aggregate(task, server, messages, clients, 1)["model"]["head.weight"].unique().tolist() == [0.75]
