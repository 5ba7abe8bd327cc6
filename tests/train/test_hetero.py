"""What clients with unequal networks learn in a round of FedMD."""

import pytest
import torch
from torch.nn.functional import cross_entropy, kl_div

from fedlib.adapt.fedtta import PREFIX
from fedlib.states import network_of, part
from fedlib.train.fedmd import FedMD
from fedlib.train.hetero import HeteroFedTTA, HeteroTent
from fedlib.train.local import round_plan
from tests.oracles import fedtta as oracle
from tests.unequal import F64, NAMES, RATES, case, public_batches, rounds


@pytest.mark.parametrize(("passes", "revisits"), [(1, True), (2, False)])
@pytest.mark.parametrize("strength", [0.0, 0.8])
def test_both_models_equal_the_loop_with_one_momentum(strength, passes, revisits):
    """A client's digestion and revisit, and a newcomer's two passes: the momentum of the adaptation model starts once."""
    task, clients = case()
    method = FedMD(HeteroFedTTA(RATES, strength, hidden=(3, 4, 5)), NAMES, batch_size=4)
    sized = method.sized(task, 0, 0)
    state = method.learner.fresh(sized, 0, 0)
    draws = torch.Generator().manual_seed(0)
    ensemble = {name: torch.randn(7, 3, generator=draws, dtype=F64) for name in ("base", "personalised")}
    (learned,) = method.learned(sized, [state], ensemble, passes, clients[:1] if revisits else [], 1)

    def distance(i):
        teachers = [ensemble[name][i].softmax(1) for name in ("personalised", "base")]
        return lambda before, after: (
            kl_div(after.log_softmax(1), teachers[0], reduction="batchmean")
            + strength * kl_div(before.log_softmax(1), teachers[1], reduction="batchmean")
        )

    steps = [(x, distance(i)) for x, i in zip(public_batches(task), torch.arange(7).split(4), strict=True)] * passes
    for step in round_plan(clients[0], task, 1) if revisits else []:
        x, y = task.inputs(clients[0].train.images[step.index]), clients[0].train.labels[step.index]
        steps.append((x, lambda before, after, y=y: cross_entropy(after, y)))
    w, a, momentum = network_of(state), part(state, PREFIX), {n: 0 * t for n, t in part(state, PREFIX).items()}
    for x, loss in steps:
        leaves, judges = ({n: t.clone().requires_grad_() for n, t in s.items()} for s in (w, a))
        before = oracle.network(sized.model, leaves, x)
        inner = torch.autograd.grad(oracle.norm(oracle.judge(judges, before)), list(leaves.values()), create_graph=True)
        moved = {n: t - 0.3 * (g + 0.01 * t) for (n, t), g in zip(leaves.items(), inner, strict=True)}
        value = loss(before, oracle.network(sized.model, moved, x))
        gradients = torch.autograd.grad(value, [*leaves.values(), *judges.values()])
        u = oracle.clip(dict(zip(leaves, gradients, strict=False)), 0.5)
        v = oracle.clip(dict(zip(judges, gradients[len(leaves) :], strict=True)), 0.5)
        w = {n: t - 0.2 * (u[n] + 0.01 * t) for n, t in w.items()}
        momentum = {n: 0.9 * m + v[n] + 0.01 * a[n] for n, m in momentum.items()}
        a = {n: t - 0.05 * momentum[n] for n, t in a.items()}
    for name, tensor in (w | {f"{PREFIX}{n}": t for n, t in a.items()}).items():
        torch.testing.assert_close(learned[name], tensor, rtol=0, atol=1e-9)


@pytest.mark.parametrize("learner", [HeteroTent(), HeteroFedTTA(RATES, hidden=(3, 4, 5))])
def test_stacked_clients_equal_one_by_one(learner):
    one, stacked = (rounds(*case(chunk_size), FedMD(learner, NAMES, batch_size=4), 2) for chunk_size in (1, 3))
    for group in one:
        for name, tensor in one[group].items():
            torch.testing.assert_close(stacked[group][name], tensor, rtol=0, atol=1e-9)
