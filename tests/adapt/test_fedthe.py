import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import linear

from fedlib.adapt.fedthe import FedTHE, ensemble, history, moving_average
from fedlib.models import state_of
from fedlib.personalize.head import PersonalHead
from tests import tiny
from tests.oracles import fedthe as oracle

RULES = ("code", "exclusive", "inclusive")


def problem(n=37, d=6, classes=5, seed=0, dtype=torch.float64):
    """Rectified features that drift along the stream, two heads that partly agree, descriptors on either side."""
    g = torch.Generator().manual_seed(seed)
    features = torch.relu(torch.randn(n, d, generator=g, dtype=torch.float64) + torch.linspace(-0.5, 1, n, dtype=torch.float64)[:, None])
    heads = torch.randn(2, classes, d, generator=g, dtype=torch.float64)
    both = linear(features, heads[0]), linear(features, 0.4 * heads[0] + heads[1])
    descriptors = torch.rand(2, d, generator=g, dtype=torch.float64)
    return [t.to(dtype) for t in (features, *both, *descriptors)]


def assert_agrees(arguments, tolerance, **options):
    for ours, theirs in zip(ensemble(*arguments, **options), oracle.ensemble(*arguments, **options), strict=True):
        assert ours.dtype == arguments[0].dtype
        torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("batch_size", [1, 8, 64])
def test_equals_the_plain_loop_in_float64(rule, batch_size):
    assert_agrees(problem(), 1e-9, history_rule=rule, batch_size=batch_size)


@pytest.mark.parametrize("rule", RULES)
def test_equals_the_plain_loop_in_float32(rule):
    assert_agrees(problem(dtype=torch.float32), 1e-4, history_rule=rule, batch_size=8)


@pytest.mark.parametrize(
    "options",
    [{"alpha": 0.05, "beta": 0.1}, {"beta": 1.0}, {"lr": 0.01}, {"steps": 3}, {"steps": 0}, {"shared": True}, {"compounded": True}],
)
@pytest.mark.parametrize("weighting", ["similarity", "alignment", "entropy", "half"])
def test_options_equal_the_plain_loop(options, weighting):
    assert_agrees(problem(n=20), 1e-9, batch_size=8, weighting=weighting, **options)


@pytest.mark.parametrize("shared", [False, True])
def test_early_stop_equals_the_plain_loop(shared):
    """Nearly equal heads and descriptors: some batches stop at once, some on the way, some never."""
    features, logits, other, descriptor, _ = problem(n=60)
    scale = torch.logspace(-6, -3, 12, dtype=torch.float64).repeat_interleave(5)[:, None]
    arguments = (features, logits, logits + scale * (other - logits), descriptor, descriptor)
    for batch_size in (1, 5):
        options = {"batch_size": batch_size, "shared": shared, "history_rule": "inclusive"}
        assert_agrees(arguments, 1e-9, early_stop=True, **options)
        stopped, full = ensemble(*arguments, early_stop=True, **options)[0], ensemble(*arguments, **options)[0]
        assert (stopped == 0.5).any()
        assert ((stopped - full).abs() > 1e-3).any()
        assert ((stopped - full).abs() < 1e-12).any()


def test_a_batch_that_stopped_does_not_go_on():
    """The second sample's smoothed feature 0.1 + 0.9 * 0.3^k is midway between the descriptors in the first step and off it later."""
    column = lambda *values: torch.tensor(values, dtype=torch.float64)[:, None]  # noqa: E731
    logits = torch.tensor([[1.0, 0.0]], dtype=torch.float64).repeat(2, 1)
    arguments = column(0, 1), logits, logits.flip(1), column(0)[0], column(0.74)[0]
    options = {"history_rule": "inclusive", "batch_size": 1, "weighting": "alignment", "compounded": True}
    assert_agrees(arguments, 1e-9, early_stop=True, **options)
    stopped, full = (ensemble(*arguments, early_stop=stop, **options)[0][1].item() for stop in (True, False))
    assert stopped == 0.5
    assert full > 0.9


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 70), st.integers(1, 40), st.floats(0.01, 0.99), st.sampled_from(RULES), st.integers(1, 50))
def test_history_equals_one_sample_after_another(n, batch_size, alpha, rule, block):
    features = problem(n=n)[0]
    expected = oracle.past_of(features, alpha, rule, batch_size)
    torch.testing.assert_close(history(features, alpha, rule, batch_size), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(moving_average(features, alpha, block), oracle.past_of(features, alpha, "inclusive", 1), rtol=0, atol=1e-12)


def test_history_by_hand():
    features = torch.tensor([[1.0], [3.0], [5.0], [7.0]])
    assert history(features, 0.5, "inclusive").flatten().tolist() == [1, 2, 3.5, 5.25]
    assert history(features, 0.5, "exclusive").flatten().tolist() == [1, 1, 2, 3.5]
    # The third sample opens the second batch and is skipped.
    assert history(features, 0.5, "code", batch_size=2).flatten().tolist() == [1, 2, 2, 4.5]
    assert history(features, 0.5, "code", batch_size=1).flatten().tolist() == [1, 1, 1, 1]


def test_first_steps_by_hand():
    """Equal heads leave only the distances: the global descriptor is nearer, so Adam's first step is + the rate on its logit."""
    features, logits = torch.zeros(3, 2, dtype=torch.float64), torch.tensor([[1.0, 0.0, -1.0]], dtype=torch.float64).repeat(3, 1)
    other = logits.flip(1)
    near, far = torch.tensor([0.0, 1.0], dtype=torch.float64), torch.tensor([3.0, 4.0], dtype=torch.float64)
    weight, blended, _ = ensemble(features, logits, other, near, far, steps=1, weighting="alignment")
    assert weight.tolist() == pytest.approx([1 / (1 + math.exp(-0.2))] * 3, abs=1e-6)
    torch.testing.assert_close(blended, weight[:, None] * logits + (1 - weight[:, None]) * other)
    back = ensemble(features, logits, other, far, near, steps=1, weighting="alignment")[0]
    assert back.tolist() == pytest.approx([1 / (1 + math.exp(0.2))] * 3, abs=1e-6)
    # Each of the 20 steps moves the logits by up to the rate.
    final = ensemble(features, logits, other, near, far)[0]
    assert final.min() > 0.95
    assert final.max() < 1 / (1 + math.exp(-4))


def test_entropy_alone_prefers_the_surer_head():
    sure, unsure = torch.tensor([[8.0, 0.0, 0.0]]), torch.tensor([[0.5, 0.0, 0.0]])
    z, descriptor = torch.zeros(1, 2), torch.zeros(2)
    assert ensemble(z, sure, unsure, descriptor, descriptor, weighting="entropy")[0] > 0.9
    assert ensemble(z, unsure, sure, descriptor, descriptor, weighting="entropy")[0] < 0.1


@pytest.mark.parametrize("rule", RULES)
def test_later_samples_change_nothing(rule):
    features, *logits, g, p = problem(n=50)
    whole = ensemble(features, *logits, g, p, history_rule=rule, batch_size=8)
    cut = ensemble(features[:24], *(t[:24] for t in logits), g, p, history_rule=rule, batch_size=8)
    for a, b in zip(cut, whole, strict=True):
        torch.testing.assert_close(a, b[:24], rtol=1e-12, atol=1e-12)


def test_empty_stream():
    features, *logits, g, p = problem(n=4)
    weight, scores, past = ensemble(features[:0], *(t[:0] for t in logits), g, p)
    assert (weight.shape, scores.shape, past.shape) == ((0,), (0, 5), (0, 6))


def run_on_a_stream(method, dtype=torch.float64, kind="plain"):
    task, client = tiny.task(kind, dtype=dtype), tiny.client(0)
    state, head = state_of(task.model), PersonalHead()
    fitted = head.fit(task, [state], [client], head.init(task, [client]), 1)
    personal = {name: t if name.startswith("shared.") else t[0] for name, t in fitted.items()}
    stream = client.stream("original")
    return task, state, personal, stream, method.run(task, state, personal, stream)


@pytest.mark.parametrize("compounded", [False, True])
def test_the_method_hands_the_right_things_to_the_solver(compounded):
    task, state, personal, stream, output = run_on_a_stream(FedTHE(batch_size=4, compounded=compounded))
    features, logits = task.predict(state, stream.images)
    weight, scores, _ = oracle.ensemble(
        features,
        logits,
        features @ personal["model.head.weight"].T,
        personal["shared.descriptor"],
        personal["descriptor"],
        batch_size=4,
        lr=FedTHE().lr,
        compounded=compounded,
    )
    torch.testing.assert_close(output.scores, scores, rtol=0, atol=1e-9)
    torch.testing.assert_close(output.extras["weight"], weight, rtol=0, atol=1e-9)


def test_zero_steps_are_the_mean_of_both_heads():
    task, state, personal, stream, output = run_on_a_stream(FedTHE(steps=0))
    features, logits = task.predict(state, stream.images)
    torch.testing.assert_close(output.scores, (logits + features @ personal["model.head.weight"].T) / 2)


def test_each_stream_starts_afresh():
    task, state, personal, stream, first = run_on_a_stream(FedTHE())
    FedTHE().run(task, state, personal, tiny.client(1).stream("corrupted"))
    assert torch.equal(FedTHE().run(task, state, personal, stream).scores, first.scores)


def test_without_a_personal_head():
    task, client = tiny.task(), tiny.client(0)
    with pytest.raises(ValueError, match=r"descriptor.*PersonalHead"):
        FedTHE().run(task, state_of(task.model), {}, client.stream("original"))


@pytest.mark.parametrize("bad", [{"history_rule": "codes"}, {"weighting": "both"}, {"beta": 1.1}, {"alpha": -0.1}, {"batch_size": 0}])
def test_bad_fields(bad):
    with pytest.raises(ValueError):
        FedTHE(**bad)
