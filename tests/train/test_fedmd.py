"""FedMD's rounds with its two learners, and new clients that start from scratch."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy, kl_div

from fedlib.train.fedmd import FedMD
from fedlib.train.hetero import HeteroTent
from fedlib.train.local import round_plan
from tests import tiny
from tests.oracles import fedtta as oracle
from tests.unequal import F64, NAMES, case, ours, public_batches, rounds


def test_tent_rounds_equal_the_loop():
    task, clients = case()
    method = FedMD(HeteroTent(0.1), NAMES, batch_size=4)
    server, after = rounds(task, clients, method, 1), rounds(task, clients, method, 2)
    answers = []
    for client in clients:
        sized = method.sized(task, client.id % 3, client.id)
        w = ours(server, client.id)
        parts = [(x, i) for x, i in zip(public_batches(task), torch.arange(7).split(4), strict=True)]
        losses = [
            lambda z, i=i: kl_div(z.log_softmax(1), server["model"]["personalised"][i].softmax(1), reduction="batchmean") for _, i in parts
        ]
        for (x, _), loss in zip(parts, losses, strict=True):
            w = oracle.steps_on_client(sized, w, [x], loss, 0.1, 1)[-1]
        for step in round_plan(client, task, 2):
            x, y = task.inputs(client.train.images[step.index]), client.train.labels[step.index]
            w = oracle.steps_on_client(sized, w, [x], lambda z, y=y: cross_entropy(z, y), 0.1, 1)[-1]
        for name, tensor in w.items():
            torch.testing.assert_close(ours(after, client.id)[name], tensor, rtol=0, atol=1e-9)
        order = torch.randperm(7, generator=task.generator("whole client", client.id, "public", 0))
        parts = [task.inputs(task.public[i]) for i in order.split(4)]

        def bits(z):
            return -(z.softmax(1) * z.log_softmax(1)).sum(1).mean() / torch.log(torch.tensor(2.0, dtype=F64))

        path = oracle.steps_on_client(sized, w, [torch.cat(parts)], bits, 0.1, 1)
        answers.append([oracle.network(sized.model, state, task.inputs(task.public)) for state in path])
    for name, which in (("base", 0), ("personalised", 1)):
        torch.testing.assert_close(after["model"][name], sum(a[which] for a in answers) / 5, rtol=0, atol=1e-9)


def test_first_round_digests_nothing_and_the_mean_is_uniform():
    """Two clients of unequal size by hand: the ensemble is the plain mean of what they say."""
    task, clients = case(sizes=(9, 5))
    method = FedMD(HeteroTent(), NAMES, batch_size=4)
    server = method.init(task, clients)
    messages = method.update(task, server, clients, 1)
    after = method.aggregate(task, server, messages, clients, 1)["model"]
    for name in ("base", "personalised"):
        torch.testing.assert_close(after[name], (messages[0][name] + messages[1][name]) / 2)
    # Not one number for all classes, which softmax would not see.
    draws = torch.Generator().manual_seed(0)
    noise = {n: torch.randn(t.shape, generator=draws, dtype=t.dtype) for n, t in server["model"].items()}
    noisy = server | {"model": noise}
    for first, second in zip(messages, method.update(task, noisy, clients, 1), strict=True):
        assert all(torch.equal(first[name], second[name]) for name in first)


def test_without_public_images():
    task, clients = case()
    with pytest.raises(ValueError, match="public"):
        FedMD(HeteroTent(), NAMES).init(replace(task, public=None), clients)


def test_networks_with_batch_norm_are_refused():
    with pytest.raises(ValueError, match="FedMD runs without batch norm only, and fedicon_cnn_small has it"):
        FedMD(HeteroTent(), ("mlp_small", "fedicon_cnn_small", "mlp")).init(replace(tiny.task(), public=torch.zeros(4, 1, 8, 8)), [])
