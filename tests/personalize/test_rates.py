from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from fedlib.adapt.atp import modules
from fedlib.personalize import rates as rates_file
from fedlib.personalize.rates import Rates
from fedlib.tools.seeding import numpy_generator
from tests import tiny
from tests.adapt.cases import case
from tests.oracles import atp as oracle
from tests.oracles.batch_adaptation import loaded


def problem(targets=1):
    task, state, _ = case()
    clients = [replace(tiny.client(k), val=tiny.samples(n, 50 + k)) for k, n in enumerate((7, 4, 6))]
    return task, state, clients + [tiny.client(9 + k, source=False) for k in range(targets)]


def fit(task, state, clients, **fields):
    return Rates(**{"rounds": 3, "cohort": 2, "lr": 0.2, "batch_size": 3} | fields).fit(task, [state] * len(clients), clients, {}, 1)


def test_equals_a_plain_loop_with_uneven_batches():
    task, state, clients = problem()
    part, model = fit(task, state, clients), loaded(task, state)
    rng = numpy_generator(task.seed, "rate cohorts", 3, 2)
    rates = torch.zeros(len(modules(task.model)), dtype=torch.float64)
    for t in range(3):
        torch.testing.assert_close(part["shared.history"][t], rates, rtol=1e-8, atol=1e-12)
        refined = []
        for k in rng.choice([0, 1, 2], 2, replace=False):
            val, own = clients[k].val, rates
            # Seven images: batches of three and four, since a batch of one joins the one before.
            edges = {7: (0, 3, 7), 4: (0, 4), 6: (0, 3, 6)}[len(val)]
            for start, end in pairwise(edges):
                own = oracle.refine(model, own, task.inputs(val.images[start:end]), val.labels[start:end], 0.2)
            refined.append(own)
        rates = sum(refined) / 2
    torch.testing.assert_close(part["shared.rates"], rates, rtol=1e-8, atol=1e-12)
    assert part["shared.rates"].abs().max() > 1e-3


def test_each_client_works_with_the_model_that_it_received():
    """As with FedBN, whose batch norm never travels."""
    task, state, clients = problem(targets=0)
    flipped = state | {"head.weight": state["head.weight"].flip(0)}
    states = [state, flipped, state]
    part = Rates(rounds=1, cohort=3, lr=0.2, batch_size=100).fit(task, states, clients, {}, 1)
    zero = torch.zeros(len(modules(task.model)), dtype=torch.float64)
    refined = [
        oracle.refine(loaded(task, own), zero, task.inputs(client.val.images), client.val.labels, 0.2)
        for own, client in zip(states, clients, strict=True)
    ]
    torch.testing.assert_close(part["shared.rates"], sum(refined) / 3, rtol=1e-8, atol=1e-12)


def test_losses_are_those_of_the_adapted_models():
    task, state, clients = problem()
    part = fit(task, state, clients, rounds=1, cohort=3, batch_size=100)
    model, zero = loaded(task, state), torch.zeros(len(modules(task.model)), dtype=torch.float64)
    expected = []
    for client in clients[:3]:
        plain, _ = oracle.moved(model, zero, task.inputs(client.val.images))
        expected.append(torch.nn.functional.cross_entropy(plain(task.inputs(client.val.images)), client.val.labels))
    assert part["shared.losses"].item() == pytest.approx(torch.stack(expected).mean().item())


def test_directions_kept_or_computed_anew_give_the_same(monkeypatch):
    kept = fit(*problem())
    monkeypatch.setattr(rates_file, "KEPT_BYTES", 0)
    anew = fit(*problem())
    assert all(torch.equal(kept[name], anew[name]) for name in kept)


def test_target_clients_do_not_matter():
    with_targets, without = fit(*problem(targets=2)), fit(*problem(targets=0))
    assert torch.equal(with_targets["shared.rates"], without["shared.rates"])


@pytest.mark.parametrize("only", ["params", "stats"])
def test_ablations_leave_the_other_rates_at_zero(only):
    task, state, clients = problem()
    rates = fit(task, state, clients, only=only, grad_norm="numel")["shared.rates"]
    statistic = torch.tensor(["running" in name for name in modules(task.model)])
    assert (rates[statistic] != 0).all() == (only == "stats")
    assert (rates[~statistic] != 0).all() == (only == "params")


def test_larger_cohorts_than_clients_are_refused():
    with pytest.raises(ValueError, match="cohort of 4 needs as many source clients with validation samples, but there are 3"):
        fit(*problem(), cohort=4)
    with pytest.raises(ValueError, match="rounds >= 1"):
        Rates(rounds=0)


def test_names_that_nothing_knows_are_refused():
    for wrong in ({"grad_norm": "x"}, {"only": "x"}):
        with pytest.raises(ValueError, match="'x'"):
            Rates(**wrong)


def test_cohorts_follow_the_runs_seed(monkeypatch):
    asked = []
    monkeypatch.setattr(rates_file, "numpy_generator", lambda seed, *purpose: asked.append(seed) or numpy_generator(seed, *purpose))
    task, *rest = problem()
    fit(replace(task, seed=5), *rest)
    assert asked == [5]


def test_rates_that_diverge_say_so(monkeypatch):
    monkeypatch.setattr(rates_file, "gradient_and_loss", lambda *given: (torch.full_like(given[1], float("nan")), torch.tensor(0.0)))
    with pytest.raises(FloatingPointError, match=r"learning the rates diverged after 0 of 3 rounds: take steps \(lr\) below 0.2"):
        fit(*problem())
