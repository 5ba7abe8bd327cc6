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
from tests.excerpts import numbers
from tests.oracles import fedthe as oracle

RULES = ("code", "exclusive", "inclusive")

# Outputs of FedTHE's published code on a stream of 70 samples in batches of 32, with the inputs that they need: the history in its first
# dimension (samples 32 and 64 open a batch and are skipped), and the weights of samples 42 to 46, with the history that they start from.
FIRST_DIMENSION = """
1.5571544 2.3952768 1.8849663 1.6834731 1.5358971 1.885276 1.9801315 1.2810143 1.547786 1.9586869 1.1415411 0.7603676 1.9416384 1.7778959
2.0126791 0.6214702 1.7388017 0.8710757 1.2369353 1.9078279 1.4504138 0.2634554 1.7039623 2.1544478 1.0562904 1.7094519 1.2225829
1.3793777 1.4698814 2.6226754 1.9525963 2.1370211 1.6543556 1.9651626 1.8417431 1.3116145 1.7725716 1.5855222 1.125019 2.0888009 0.7537188
1.6872963 1.7985933 1.0059593 0.2317113 2.7339804 0 0.1721382 0.0455422 2.393898 1.6311163 2.003926 1.8185549 0.4556855 0.1039792 1.22246
1.5880706 1.3088474 1.6344103 3.3565917 0.2738167 3.7688756 0.2950329 2.0479827 1.5695237 0.047357 0.7771261 0.4747719 1.0113215 2.2959793
"""
FIRST_HISTORY = {
    0: 1.5571544, 1: 1.6409667, 2: 1.6653665, 30: 1.5993683, 31: 1.6531335, 32: 1.6531335, 33: 1.6843364,
    63: 1.5370016, 64: 1.5370016, 65: 1.3880371, 69: 1.326417,
}  # fmt: skip
HISTORY_BEFORE = """
1.5793116 0.8512695 1.5017258 1.7788067 0.4362898 0.4984186 0.8328439 0.4430718 0.6270639 0.8220729 1.0422095 0.6304755 1.2965133
1.0858002 1.2241865 0.7561797
"""
FEATURES = """
1.7985933 1.0398248 0.3836201 0 2.4200921 1.3452626 2.5466723 2.0930057 1.1008459 1.042556 0 0.9642648 0.2742345 1.9165789 2.531075
2.6309843
1.0059593 1.1944029 2.3034608 0.0789756 0 1.5138803 0.0905918 0.036546 1.4786888 0 1.6467779 2.9265597 0 0.7121069 0 2.577081
0.2317113 1.9728966 1.71234 0 0.0270134 2.50369 0.9517063 0.4623996 0.7243112 0.3466136 1.7565769 1.4982783 0.0239108 0.7411204 0.5113908
3.0567582
2.7339804 1.9594119 0 2.0786688 1.4819939 1.0600038 0.7427333 0.4573192 2.0373282 1.5173943 0 3.5714834 0.5769422 1.3137525 0 0.4586508
0 1.792259 1.6344106 1.0418851 0.5027474 1.5781518 0.179825 1.0684727 0.4257327 1.3386229 0.6082158 1.3894386 2.920794 1.4031057 2.7276442
0.4920139
"""
GLOBAL_LOGITS = """
-6.01936 -9.69522 0.8182 -2.25641 1.67278 0.60776 1.80998 3.08225 12.26941 -1.57568
-2.26012 -2.66217 -5.41449 -3.50721 3.07021 -2.54053 -0.22367 10.05083 3.39548 5.38464
-1.8772 -4.33829 -3.74042 -4.99762 1.69774 -0.47511 -1.08916 10.2996 4.76799 3.70355
-2.14533 -5.6255 -9.04442 0.72556 10.94096 -4.87642 10.3342 -1.62213 1.42031 2.01665
-1.03532 -3.27409 0.42664 -6.5181 -0.5814 8.41848 3.01987 0.27632 1.20087 -0.7701
"""
PERSONAL_LOGITS = """
-6.3524 -11.14351 -0.7795 -13.80503 -5.90988 -5.89516 -9.60933 -9.62252 8.14042 -9.7497
-3.39629 -3.28503 -6.71609 -11.93191 1.25289 -8.61871 -6.93881 5.09427 -1.00841 -0.09065
-2.18328 -6.15012 -5.62232 -13.52611 -2.32145 -4.35481 -9.49731 4.31107 1.1465 -1.19905
-3.14033 -4.98068 -9.40069 -10.04387 8.52518 -14.42729 1.71129 -10.41573 -4.63293 -5.27572
0.17174 -4.47312 0.34631 -16.00737 -4.82553 4.09641 -4.92233 -10.99861 -7.55863 -8.90352
"""
GLOBAL_DESCRIPTOR = """
1.422593 0.949095 0.946968 1.211124 0.848913 0.786729 0.811911 0.767332 1.060771 0.553907 0.751952 1.008731 1.0904 0.950279 1.146166
1.077681
"""
PERSONAL_DESCRIPTOR = """
1.460854 0.946085 1.556238 1.57961 0.405433 0.327054 0.548118 0.280086 0.286973 0.906639 0.90296 0.553366 1.228317 0.711107 1.169711
0.602397
"""
WEIGHTS = [0.5983172, 0.9401657, 0.9588657, 0.1031621, 0.7463135]


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


def test_history_is_the_published_codes():
    past = history(numbers(FIRST_DIMENSION, 70, 1), 0.1, "code", batch_size=32).flatten()
    assert {k: past[k].item() for k in FIRST_HISTORY} == pytest.approx(FIRST_HISTORY, rel=0, abs=2e-6)


def test_weights_are_the_published_codes():
    """A stream's first sample is its history: here that of the samples before stands in its place."""
    features = torch.cat([numbers(HISTORY_BEFORE, 1, 16), numbers(FEATURES, 5, 16)])
    logits = [torch.cat([torch.zeros(1, 10, dtype=torch.float64), numbers(z, 5, 10)]) for z in (GLOBAL_LOGITS, PERSONAL_LOGITS)]
    weight, _, _ = ensemble(features, *logits, numbers(GLOBAL_DESCRIPTOR, 16), numbers(PERSONAL_DESCRIPTOR, 16))
    assert weight[1:].tolist() == pytest.approx(WEIGHTS, rel=0, abs=5e-4)


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
