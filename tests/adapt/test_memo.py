import math

import pytest
import torch

from fedlib.adapt.memo import MEMO, marginal_entropy
from fedlib.core import Local
from fedlib.models import state_of
from tests import tiny
from tests.oracles import tuning as oracle


def test_marginal_entropy_by_hand():
    """Two views that are sure of different classes: the mean is (1/2, 1/2)."""
    logits = torch.tensor([[50.0, 0.0], [0.0, 50.0]], dtype=torch.float64)
    assert marginal_entropy(logits).item() == pytest.approx(math.log(2), abs=1e-12)
    assert marginal_entropy(logits[:1]).item() == pytest.approx(0, abs=1e-12)
    assert marginal_entropy(torch.zeros(4, 3)).item() == pytest.approx(math.log(3), abs=1e-6)
    skewed = torch.tensor([[0.6, 0.4], [0.2, 0.8]], dtype=torch.float64).log()
    assert marginal_entropy(skewed).item() == pytest.approx(-(0.4 * math.log(0.4) + 0.6 * math.log(0.6)), abs=1e-12)


def test_marginal_entropy_and_its_gradient_equal_the_definition():
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    expected = oracle.entropy_of_the_mean(logits.softmax(1))
    torch.testing.assert_close(marginal_entropy(logits), expected)
    gradients = [torch.autograd.grad(value, logits)[0] for value in (marginal_entropy(logits), expected)]
    torch.testing.assert_close(*gradients)


def test_extreme_logits_stay_finite():
    assert torch.isfinite(marginal_entropy(torch.tensor([[1e4, -1e4, 0.0]]))).all()


@pytest.mark.parametrize("chunk_size", [1, 4])
@pytest.mark.parametrize(("base", "lr"), [("global", None), ("personal", None), ("personal", 5e-2)])
def test_equals_copies_of_the_module(chunk_size, base, lr):
    """The personal rate and weight decay act unless a rate is given."""
    task = tiny.task("convolution", chunk_size=chunk_size, personal=Local(lr=0.3, weight_decay=0.02, epochs=1))
    stream, received = tiny.client(0).stream("original", limit=5), state_of(task.model)
    tuned = state_of(tiny.net("convolution", seed=3))
    module = tiny.net("convolution", seed=0 if base == "global" else 3)
    optimizer_of = lambda p: torch.optim.SGD(p, lr or 0.3, weight_decay=0.02)  # noqa: E731
    expected = oracle.tune(task, module, stream, lambda m, x, i: m(x), optimizer_of, steps=3, n_views=4)
    personal = {f"model.{name}": tensor for name, tensor in tuned.items()}
    output = MEMO(base, views=4, steps=3, lr=lr).run(task, received, personal, stream)
    torch.testing.assert_close(output.scores, expected, rtol=0, atol=1e-10)


def test_its_own_momentum_takes_the_place_of_the_personal_phases():
    def scores(phase, momentum):
        task = tiny.task("convolution", personal=Local(lr=0.3, momentum=phase, weight_decay=0.02, epochs=1))
        stream, received = tiny.client(0).stream("original", limit=5), state_of(task.model)
        return MEMO("global", views=4, steps=3, momentum=momentum).run(task, received, {}, stream).scores

    assert torch.equal(scores(0.9, 0.0), scores(0.0, None))
    assert torch.equal(scores(0.0, 0.9), scores(0.9, None))
    assert not torch.equal(scores(0.9, 0.0), scores(0.9, None))


def test_bad_base():
    with pytest.raises(ValueError, match="personal"):
        MEMO(base="local")


@pytest.mark.parametrize("chunk_size", [1, 4])
def test_linear_probing_then_fine_tuning_equals_copies_of_the_module(chunk_size):
    """Two steps on the head alone, one on all parameters, with fresh views throughout."""
    task = tiny.task("convolution", chunk_size=chunk_size, personal=Local(lr=0.3, weight_decay=0.02, epochs=1))
    stream, state = tiny.client(0).stream("original", limit=5), state_of(task.model)
    expected = oracle.probe_and_tune(task, task.model, stream, head_steps=2, steps=1, n_views=4, lr=0.3, weight_decay=0.02)
    output = MEMO("global", views=4, head_steps=2, steps=1).run(task, state, {}, stream)
    torch.testing.assert_close(output.scores, expected, rtol=0, atol=1e-10)
    whole = MEMO("global", views=4, steps=3).run(task, state, {}, stream)
    assert (output.scores - whole.scores).abs().max() > 1e-4


def test_moments_are_kept_where_it_is_asked_for():
    task = tiny.task("convolution", personal=Local(lr=0.3, momentum=0.9, weight_decay=0.02, epochs=1))
    stream, state = tiny.client(0).stream("original", limit=5), state_of(task.model)
    optimizer_of = lambda p: torch.optim.SGD(p, 0.3, momentum=0.9, weight_decay=0.02)  # noqa: E731
    expected = oracle.tune_with_one_optimizer(task, task.model, stream, optimizer_of, steps=2, n_views=4)
    scores = MEMO("global", views=4, carry=True).run(task, state, {}, stream).scores
    torch.testing.assert_close(scores, expected, rtol=0, atol=1e-10)


def test_it_goes_on_at_the_rate_at_which_the_personal_phase_ended():
    stream = tiny.client(0).stream("original", limit=3)
    runs = []
    for local in (Local(lr=0.3, epochs=3, milestone=2), Local(lr=0.03, epochs=3), Local(lr=0.3, epochs=2, milestone=2)):
        task = tiny.task("convolution", personal=local)
        runs.append(MEMO("global", views=4).run(task, state_of(task.model), {}, stream).scores)
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
