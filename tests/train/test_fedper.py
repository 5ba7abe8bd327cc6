import pytest
import torch

from fedlib.core import Local
from fedlib.models import build
from fedlib.train.fedavg import FedAvg
from fedlib.train.fedper import DONORS, FedPer, with_head
from tests import one_pixel, tiny
from tests.unequal import rounds

LOCAL = Local(lr=0.1, weight_decay=0.01, batch_size=4, steps=3, continued=True)
F64 = torch.float64


def test_round_by_hand():
    """One feature 2x under heads (0, 0): the residual (-1/2, 1/2) of label 0 moves the head by (1, -1); the body feels w . residual = 0.
    In round 2 logits are +-2, so the residual of the own label is +-(1 - s(4)): heads move by 2 (1 - s(4)), bodies by the same,
    at both clients upwards, since each has its own head."""
    task, clients = one_pixel.task(body=True), one_pixel.clients((0,), (1,))
    method = FedPer()
    server = method.init(task, clients)
    server["model"]["extractor.1.weight"][:] = 2
    server["model"][f"{DONORS}head.weight"][:] = 0
    server = method.aggregate(task, server, method.update(task, server, clients, 1), clients, 1)
    assert server["model"]["extractor.1.weight"].item() == 2
    assert server["model"][f"{DONORS}head.weight"].flatten().tolist() == pytest.approx([1, -1, -1, 1])
    server = method.aggregate(task, server, method.update(task, server, clients, 2), clients, 2)
    left = 1 - torch.sigmoid(torch.tensor(4.0, dtype=F64)).item()
    assert server["model"]["extractor.1.weight"].item() == pytest.approx(2 + 2 * left)
    assert server["model"][f"{DONORS}head.weight"][0].flatten().tolist() == pytest.approx([1 + 2 * left, -1 - 2 * left])


@pytest.mark.parametrize("chunk_size", [1, 3])
def test_equals_separate_models_with_averaged_bodies(chunk_size):
    task, clients = tiny.task("convolution", local=LOCAL, chunk_size=chunk_size), tiny.clients()
    server = rounds(task, clients, FedPer(), 2)["model"]
    states = [FedPer().init(task, clients)["model"]] * 3
    states = [with_head(state, k) for k, state in enumerate(states)]
    for t in (1, 2):
        trained = [
            FedAvg().update(tiny.task("convolution", local=LOCAL), {"model": s}, [c], t)[0] for s, c in zip(states, clients, strict=True)
        ]
        body = {n: sum(len(c.train) * s[n] for c, s in zip(clients, trained, strict=True)) / 28 for n in trained[0] if "extractor" in n}
        states = [state | body for state in trained]
    for k, state in enumerate(states):
        for name, tensor in with_head(server, k).items():
            torch.testing.assert_close(tensor, state[name], rtol=0, atol=1e-9)
    assert not torch.allclose(server[f"{DONORS}head.weight"][0], server[f"{DONORS}head.weight"][1])


@pytest.mark.parametrize(("head", "personal"), [("block", {"extractor.hidden", "head"}), ("last", {"head"})])
def test_heads_of_a_convolutional_network(head, personal):
    model = build("convnet_small", (1, 8, 8), 3, seed=0)
    task = tiny.task()
    task = type(task)(model, task.transform, 3, task.schedule, 0)
    names = FedPer(head).init(task, tiny.clients())["model"]
    assert {n.removeprefix(DONORS).rpartition(".")[0] for n in names if n.startswith(DONORS)} - {""} == personal


def test_clients_that_are_absent_keep_their_heads():
    task, clients = tiny.task(local=LOCAL), tiny.clients()
    method = FedPer()
    server = rounds(task, clients, method, 1)
    after = method.aggregate(task, server, method.update(task, server, clients[1:], 2), clients[1:], 2)["model"]
    heads, before = after[f"{DONORS}head.weight"], server["model"][f"{DONORS}head.weight"]
    assert torch.equal(heads[0], before[0])
    assert not torch.equal(heads[1], before[1])
