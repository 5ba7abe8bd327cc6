from dataclasses import replace

import torch

from fedlib.adapt.fedmd import Newcomer
from fedlib.core import Stream
from fedlib.train.fedmd import FedMD
from fedlib.train.hetero import HeteroTent
from tests import tiny
from tests.unequal import F64, LOCAL, NAMES, case, rounds


def test_a_newcomer_starts_from_scratch():
    """Fresh networks per client and round, two passes of digestion at the last finished round's rate, one step; the federation's own
    clients matter by the ensemble alone."""
    task, clients = case()
    task = replace(task, schedule=replace(task.schedule, local=replace(LOCAL, decay=0.5)))
    method = FedMD(HeteroTent(0.1), NAMES, batch_size=4)
    server = rounds(task, clients, method, 1)
    stream = Stream(tiny.samples(6, 7).images, "test", 8)
    output = Newcomer(method).run(replace(task, round=2), server["model"], {}, stream)
    sized = replace(method.sized(task, 2, "newcomer", 8, 2), round=2)
    (state,) = method.learned(sized, [method.learner.fresh(sized, 2, 8)], server["model"], 2, [], 1)
    torch.testing.assert_close(output.scores, method.learner.answers(sized, state, stream)["personalised"])
    other = Newcomer(method).run(replace(task, round=3), server["model"], {}, stream)
    assert not torch.allclose(output.scores, other.scores)
    taught = {"personalised": torch.eye(3, dtype=F64)[torch.arange(7) % 3] * 20, "base": server["model"]["base"]}
    assert not torch.allclose(output.scores, Newcomer(method).run(replace(task, round=2), taught, {}, stream).scores)
