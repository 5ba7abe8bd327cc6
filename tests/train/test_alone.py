import torch

from fedlib.train.alone import Alone
from tests import tiny
from tests.train.staying import trained


def test_a_client_does_not_see_the_others():
    alone = trained(Alone(), clients=tiny.clients()[:1]).received(4, 1)[0]
    among = trained(Alone()).received(4, 3)[0]
    assert all(torch.equal(alone[name], among[name]) for name in alone)
