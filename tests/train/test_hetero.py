"""What clients with unequal networks learn in a round of FedMD."""

import pytest
import torch
from torch.nn.functional import kl_div

from fedlib.adapt.fedtta import PREFIX
from fedlib.adapt.whole_client import network_of
from fedlib.task import part
from fedlib.train.fedmd import FedMD
from fedlib.train.hetero import HeteroFedTTA, HeteroTent
from tests.oracles import fedtta as oracle
from tests.unequal import F64, NAMES, RATES, case, public_batches, rounds


@pytest.mark.parametrize("strength", [0.0, 0.8])
def test_digestion_of_both_models_equals_the_loop(strength):
    task, _ = case()
    method = FedMD(HeteroFedTTA(RATES, strength, hidden=(3, 4, 5)), NAMES, batch_size=4)
    sized = method.sized(task, 0, 0)
    state = method.learner.fresh(sized, 0, 0)
    draws = torch.Generator().manual_seed(0)
    ensemble = {name: torch.randn(7, 3, generator=draws, dtype=F64) for name in ("base", "personalised")}
    (digested,) = method.digested(sized, [state], ensemble, 1)
    w, a, momentum = network_of(state), part(state, PREFIX), {n: 0 * t for n, t in part(state, PREFIX).items()}
    for x, i in zip(public_batches(task), torch.arange(7).split(4), strict=True):
        leaves, judges = ({n: t.clone().requires_grad_() for n, t in s.items()} for s in (w, a))
        before = oracle.network(sized.model, leaves, x)
        inner = torch.autograd.grad(oracle.norm(oracle.judge(judges, before)), list(leaves.values()), create_graph=True)
        moved = {n: t - 0.3 * (g + 0.01 * t) for (n, t), g in zip(leaves.items(), inner, strict=True)}
        student = oracle.network(sized.model, moved, x).log_softmax(1)
        loss = kl_div(student, ensemble["personalised"][i].softmax(1), reduction="batchmean")
        loss = loss + strength * kl_div(before.log_softmax(1), ensemble["base"][i].softmax(1), reduction="batchmean")
        gradients = torch.autograd.grad(loss, [*leaves.values(), *judges.values()])
        u = oracle.clip(dict(zip(leaves, gradients, strict=False)), 0.5)
        v = oracle.clip(dict(zip(judges, gradients[len(leaves) :], strict=True)), 0.5)
        w = {n: t - 0.2 * (u[n] + 0.01 * t) for n, t in w.items()}
        momentum = {n: 0.9 * m + v[n] + 0.01 * a[n] for n, m in momentum.items()}
        a = {n: t - 0.05 * momentum[n] for n, t in a.items()}
    for name, tensor in (w | {f"{PREFIX}{n}": t for n, t in a.items()}).items():
        torch.testing.assert_close(digested[name], tensor, rtol=0, atol=1e-9)


@pytest.mark.parametrize("learner", [HeteroTent(), HeteroFedTTA(RATES, hidden=(3, 4, 5))])
def test_stacked_clients_equal_one_by_one(learner):
    one, stacked = (rounds(*case(chunk_size), FedMD(learner, NAMES, batch_size=4), 2) for chunk_size in (1, 3))
    for group in one:
        for name, tensor in one[group].items():
            torch.testing.assert_close(stacked[group][name], tensor, rtol=0, atol=1e-9)
