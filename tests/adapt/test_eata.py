import numpy as np
import pytest
import torch

from fedlib.adapt.eata import EATA, Filter
from fedlib.adapt.tent import Tent, affine
from fedlib.core import Stream
from fedlib.models import state_of
from fedlib.personalize.fisher import WithFisher
from fedlib.states import slice_of
from tests import tiny
from tests.oracles import eata as oracle

INF = float("inf")


def stream(n=23):
    return Stream(tiny.samples(n, 5).images, "original", 0)


def problem():
    task = tiny.task("batchnorm")
    # Larger weights give certain answers, which the filters let pass.
    state = state_of(task.model)
    return task, state | {"head.weight": 20 * state["head.weight"]}


@pytest.mark.parametrize(("margin", "redundancy"), [(0.4, 0.4), (0.8, 0.9), (0.2, 0.05)])
def test_filters_equal_the_loop(margin, redundancy):
    """Batches of which some teach nothing; the running mean goes on over the stream."""
    draws = torch.Generator().manual_seed(0)
    teach, mean = Filter(margin, redundancy), None
    taught = []
    for scale in (4.0, 3.0, 0.1, 5.0, 2.0):
        logits = scale * torch.randn(16, 4, generator=draws, dtype=torch.float64)
        expected, mean = oracle.batch_loss(logits.softmax(1).numpy(), mean, margin, redundancy)
        value = teach(logits)
        assert (value is None) == (expected is None)
        taught.append(expected is not None)
        if expected is not None:
            assert value.item() == pytest.approx(expected, rel=1e-9)
        if mean is not None:
            np.testing.assert_allclose(teach.mean, mean, rtol=1e-9)
    assert any(taught)
    assert not all(taught)


def test_weights_are_constant_in_the_gradient():
    logits = torch.tensor([[3.0, 0.0, 0.5]], dtype=torch.float64, requires_grad=True)
    Filter(INF, INF, weighted=False)(logits).backward()
    plain = logits.grad.clone()
    logits.grad = None
    value = Filter(0.9, INF)(logits)
    value.backward()
    shares = logits.detach().softmax(1)
    entropy = -(shares * shares.log()).sum().item()
    torch.testing.assert_close(logits.grad, plain * np.exp(0.9 * np.log(3) - entropy))


def test_without_filters_weights_and_anchor_it_is_tent():
    task, state = problem()
    eata = EATA(margin=INF, redundancy=INF, anchor=0.0, weighted=False, batch_size=8, lr=0.01)
    tent = Tent(lr=0.01, batch_size=8, optimizer="adam")
    assert torch.equal(eata.run(task, state, {}, stream()).scores, tent.run(task, state, {}, stream()).scores)


def test_nothing_reliable_is_batch_statistics_alone():
    task, state = problem()
    still = EATA(margin=1e-9, anchor=0.0, batch_size=8).run(task, state, {}, stream()).scores
    slow = Tent(lr=1e-12, batch_size=8, optimizer="adam").run(task, state, {}, stream()).scores
    torch.testing.assert_close(still, slow)


def test_a_strong_anchor_holds():
    task, state = problem()
    client = tiny.client(0, 30)
    personal = slice_of(WithFisher().fit(task, [state], [client], {}, 1), 0)
    model = state | {name.removeprefix("model."): t for name, t in personal.items() if name.startswith("model.")}
    options = {"margin": INF, "redundancy": INF, "weighted": False, "batch_size": 4, "lr": 0.01}
    still = EATA(margin=1e-9, anchor=0.0, batch_size=4).run(task, model, {}, stream()).scores
    gaps = [(EATA(anchor=a, **options).run(task, state, personal, stream()).scores - still).abs().max().item() for a in (1e-6, 1e4)]
    assert gaps[1] < 0.9 * gaps[0]


def test_needs_the_fisher_information_and_batch_norm():
    task, state = problem()
    with pytest.raises(ValueError, match="WithFisher"):
        EATA().run(task, state, {}, stream())
    with pytest.raises(ValueError, match="has none"):
        EATA(anchor=0.0).run(tiny.task("plain"), state_of(tiny.net()), {}, stream())


@pytest.mark.parametrize("fields", [{"margin": 0.0}, {"redundancy": -1.0}, {"anchor": -0.1}])
def test_bad_arguments(fields):
    with pytest.raises(ValueError, match="out of range"):
        EATA(**fields)


def test_the_anchor_by_hand(monkeypatch):
    """All 4 affine parameters of two channels 1/2 away, at Fisher information 2 and an anchor of 3: 3 * 4 * 2 / 4."""
    task, state = problem()
    found = []

    def step_after(task, state, stream, names, loss, local, penalty):
        found.append(penalty({name: state[name] + 0.5 for name in names}))
        return torch.zeros(len(stream), 3)

    monkeypatch.setattr("fedlib.adapt.eata.step_after", step_after)
    fisher = {f"fisher.{name}": torch.full_like(state[name], 2.0) for name in affine(task.model)}
    EATA(anchor=3.0).run(task, state, fisher, stream(4))
    assert found[0].item() == pytest.approx(6)
