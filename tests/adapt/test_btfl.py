"""BTFL: reference numbers, the per-sample oracle, identities of the integral, and what the carry over the stream may depend on."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlib.adapt import btfl
from tests.oracles import btfl as oracle

ENTROPIES = {"personal_entropy": 0.8, "global_entropy": 1.1}
PAPER = {
    "reference_entropy": 1.1, "smoothing": 0.0, "squash": False, "integral": "exact", "mixture": "probability",
    "cap_rule": "rescale",
}  # fmt: skip

# Three samples of a run of the published code: 16 binary codes, 10 classes, the table of one of four clients (300 images each).
CODES = ["0101101111110100", "0101001111110100", "0110110101010011"]
OWN_ONES = [101, 206, 120, 119, 201, 30, 287, 289, 289, 285, 291, 295, 105, 118, 113, 28]
OTHER_ONES = [405, 474, 654, 258, 516, 244, 509, 414, 660, 346, 383, 576, 272, 312, 281, 151]
GLOBAL_LOGITS = [
    [-0.4809963, 3.2917109, 0.3243405, -0.8130612, 0.1256126, -1.3168504, -0.3132335, -1.4916029, 1.3726965, -2.7395334],
    [0.3265686, 4.3683748, -1.4555172, -1.0935307, 2.3100574, -4.5671797, 0.2239429, -1.2008295, 0.4566936, -2.5256620],
    [0.2717864, -0.4615361, -1.4909606, -2.1813860, -0.3262736, -0.2742163, 0.0049309, 4.3488035, -1.1763241, 1.4791286],
]
PERSONAL_LOGITS = [
    [1.6179514, 6.9822531, 2.4557326, -1.0515747, -1.1907505, -1.2664461, -1.2210637, -1.3945906, -1.0594856, -1.4238933],
    [2.8215123, 9.4035835, -0.0781056, -0.9758216, -1.1176669, -1.7562983, -1.2575088, -2.1024802, -1.4192716, -1.9237437],
    [3.0730162, 2.8984544, 0.8861419, -0.9006217, -1.5470129, -1.4674070, -0.8059938, -1.3461846, -0.5440503, -0.2629980],
]
# That run's external and internal events among 100 samples, and alpha and beta after each batch of 32: the cap of 16 acts after the third.
EXTERNAL = [50, 53, 61, 62, 64, 68, 70, 72, 78, 80, 83, 84, 85, 87, 91, 92, 93]
INTERNAL = [0, 8, 29, 36, 39, 46, 48, 49]
PRIORS = [[1, 1], [1, 4], [5, 9], [2.0666666666666664, 1.5333333333333332], [2.0666666666666664, 1.5333333333333332]]
# Its lambda and weight of one sample in each of the four batches.
LAMBDAS = [0.7581586, 0.84501487, 0.2, 0.2]
STREAM_WEIGHTS = [0.5359939, 0.2229869, 0.7127548, 0.8288508]
REFERENCE_ENTROPIES = {"personal_entropy": 0.12255574762821198, "global_entropy": 0.5935577750205994}


def two_level_table(ones, total):
    share = torch.tensor(ones, dtype=torch.float64) / total
    return torch.stack([1 - share, share])


def problem(n=90, d=12, classes=5, levels=2, seed=0, dtype=torch.float64):
    """Random features, logits and tables on which external, internal and no events all occur."""
    g = torch.Generator().manual_seed(seed)
    rand = lambda *shape: torch.rand(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    scales = 0.2 + 1.8 * rand(2, d)
    own, other = (rand(40, d) * scale for scale in scales)
    features = rand(n, d) * scales[(rand(n) < 0.5).long()]
    global_logits = 3 * torch.randn(n, classes, generator=g, dtype=torch.float64) * rand(n, 1)
    personal_logits = 4 * torch.randn(n, classes, generator=g, dtype=torch.float64) * rand(n, 1)
    tables = [btfl.frequency_table(own, levels), btfl.frequency_table(other, levels)]
    return [value.to(dtype) for value in (features, global_logits, personal_logits, *tables)]


def run_oracle(inputs, **options):
    return oracle.interpolate(*(value.double().numpy() for value in inputs), **options)


def evidence(features, global_logits, personal_logits, *tables, **options):
    return btfl.evidence(features, *(z.double().log_softmax(1) for z in (global_logits, personal_logits)), *tables, **options)


def test_published_code_on_three_samples():
    features = torch.tensor([[float(c) for c in code] for code in CODES], dtype=torch.float64)
    inputs = (
        features,
        torch.tensor(GLOBAL_LOGITS, dtype=torch.float64),
        torch.tensor(PERSONAL_LOGITS, dtype=torch.float64),
        two_level_table(OWN_ONES, 300),
        two_level_table(OTHER_ONES, 900),
    )
    lam, events = evidence(*inputs, **REFERENCE_ENTROPIES)
    torch.testing.assert_close(lam, torch.tensor([0.7581586, 1.4000322, 0.2], dtype=torch.float64), rtol=0, atol=5e-6)
    assert events.tolist() == [[False, True], [False, True], [True, False]]
    weight, scores, _ = btfl.interpolate(*(v[:2] for v in inputs[:3]), *inputs[3:], **REFERENCE_ENTROPIES)
    torch.testing.assert_close(weight, torch.tensor([0.5359939, 0.4341678], dtype=torch.float64), rtol=0, atol=1e-6)
    first = torch.tensor([-4.6711817, -0.1599652, -3.8507910, -6.0878430], dtype=torch.float64)
    torch.testing.assert_close(scores[0, :4], first, rtol=0, atol=5e-6)


@pytest.mark.parametrize(
    ("alpha", "beta", "lam", "code", "exact"),
    [
        (1, 1, 0.2, 0.7367810950918908, 0.7470506523643436),
        (5, 1, 1.0, 0.784762888918792, 0.8333333333333334),
        (299, 1, 1.0, 0.0809399858137285, 0.9966666666666667),
        (150, 1, 1 / 11, 0.26091253371871487, 0.9993906200290814),
        (1, 150, 1 / 11, 0.035779248509701864, 0.06476881105076247),
        (1, 150, 11.0, 0.00035293134172977177, 0.0006093799709185575),
        (299, 1, 11.0, 0.07298476977786254, 0.9655551778383474),
        (299, 150, 1 / 11, 0.9562610984517541, 0.9562610984517542),
        (1.1, 1.4, 11.0, 0.11413032797044838, 0.11586382871280432),
        (32, 32, 0.9, 0.5259120025782507, 0.5259120025782505),
    ],
)
def test_integral_reference(alpha, beta, lam, code, exact):
    assert btfl.mixture_weight(alpha, beta, lam).item() == pytest.approx(code, abs=1e-9)
    assert btfl.mixture_weight(alpha, beta, lam, "exact").item() == pytest.approx(exact, abs=1e-9)


def test_published_code_over_a_stream():
    events = torch.zeros(100, 2, dtype=torch.bool)
    events[EXTERNAL, 0] = events[INTERNAL, 1] = True
    priors = btfl.prior_scan(events, batch_size=32, cap=16)
    torch.testing.assert_close(priors, torch.tensor(PRIORS, dtype=torch.float64), rtol=0, atol=1e-9)
    assert btfl.mixture_weight(*priors[:-1].unbind(1), torch.tensor(LAMBDAS)).tolist() == pytest.approx(STREAM_WEIGHTS, rel=0, abs=1e-5)


@pytest.mark.parametrize("batch_size", [1, 7, 32, 90])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_oracle(batch_size, dtype):
    inputs = problem(dtype=dtype)
    expected = run_oracle(inputs, batch_size=batch_size, **ENTROPIES)
    events = evidence(*inputs, **ENTROPIES)[1]
    np.testing.assert_array_equal(events, expected[4])
    assert events.sum(0).min() >= 5
    for got, want in zip(btfl.interpolate(*inputs, batch_size=batch_size, **ENTROPIES), expected, strict=False):
        assert got.dtype == dtype
        tolerance = 1e-9 if dtype == torch.float64 else 1e-4
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "options",
    [
        PAPER,
        {"integral": "exact"},
        {"mixture": "probability"},
        {"cap_rule": "rescale"},
        {"cap_rule": "rescale", "integral": "exact", "cap": 5},
        {"cap_rule": "rescale", "mixture": "probability"},
        {"squash": False, "clip": 3.0},
        {"smoothing": 0.0},
        {"reference_entropy": 1.1},
        {"cap": 5, "kb": 10.0},
        {"cap": math.inf},
    ],
    ids=lambda options: "paper" if options is PAPER else ",".join(options),
)
def test_switches_equal_oracle_and_matter(options):
    inputs = problem()
    expected = run_oracle(inputs, batch_size=4, **{**ENTROPIES, **options})
    got = btfl.interpolate(*inputs, batch_size=4, **{**ENTROPIES, **options})
    for value, want in zip(got, expected, strict=False):
        np.testing.assert_allclose(value, want, rtol=1e-8, atol=1e-8)
    default = btfl.interpolate(*inputs, batch_size=4, **ENTROPIES)
    assert (got[1] - default[1]).abs().max() > 1e-4


def test_more_levels():
    inputs = problem(levels=4)
    options = {"smoothing": 0.1, **ENTROPIES}
    np.testing.assert_allclose(btfl.interpolate(*inputs, **options)[0], run_oracle(inputs, **options)[0], rtol=0, atol=1e-9)


@settings(deadline=None, max_examples=25)
@given(st.floats(1, 60), st.floats(1, 60), st.floats(0.05, 20))
def test_integral_identities(alpha, beta, lam):
    weight = lambda *arguments: btfl.mixture_weight(*arguments, "exact").item()  # noqa: E731
    assert weight(alpha, beta, 1.0) == pytest.approx(alpha / (alpha + beta), abs=1e-13)
    assert weight(alpha, beta, lam) + weight(beta, alpha, 1 / lam) == pytest.approx(1, abs=1e-12)
    assert weight(alpha, beta, lam) == pytest.approx(oracle.weight_exact(alpha, beta, lam), abs=1e-8)
    assert weight(alpha, beta, lam * 1.1) < weight(alpha, beta, lam)
    assert weight(alpha * 1.1, beta, lam) > weight(alpha, beta, lam) > weight(alpha, beta * 1.1, lam)
    code = btfl.mixture_weight(alpha, beta, lam).item()
    assert code <= weight(alpha, beta, lam) + 1e-4
    assert btfl.mixture_weight(alpha, beta, lam * 1.1).item() < code
    if abs(lam - 1) > 0.05:
        closed = (1 - lam + lam * math.log(lam)) / (1 - lam) ** 2
        assert weight(1, 1, lam) == pytest.approx(closed, abs=1e-11)


def test_external_events_alone_lead_to_the_global_head_only_under_the_exact_integral():
    """A prior that was rescaled at its cap over ten batches of external events: the trapezoid leaves out where it has piled up."""
    alpha, beta, lam = (torch.tensor([v], dtype=torch.float64) for v in (16.0, 16.0 / 51, 1.0))
    assert btfl.mixture_weight(alpha, beta, lam, "exact").item() > 0.9
    assert btfl.mixture_weight(alpha, beta, lam, "trapezoid").item() < 0.9


def test_integral_takes_arrays():
    lam = np.array([0.2, 1.0, 5.0])
    for integral in btfl.INTEGRALS:
        single = [btfl.mixture_weight(2.0, 3.0, value, integral).item() for value in lam]
        np.testing.assert_allclose(btfl.mixture_weight(2.0, 3.0, lam, integral), single, rtol=1e-14)


@pytest.mark.parametrize("batch_size", [1, 7, 32])
@pytest.mark.parametrize("block", [1, 16, 89])
def test_blocks_change_nothing(block, batch_size, monkeypatch):
    """Also where a batch lies across two blocks, or is larger than one."""
    inputs, options = problem(), {"batch_size": batch_size, **ENTROPIES}
    whole = btfl.interpolate(*inputs, **options)
    monkeypatch.setattr(btfl, "BLOCK", block)
    for got, want in zip(btfl.interpolate(*inputs, **options), whole, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("cut", [5, 28, 84])
def test_what_comes_later_changes_nothing_before(cut):
    *stream, personal_table, global_table = problem()
    options = {"batch_size": 7, "cap": 6, **ENTROPIES}
    whole = btfl.interpolate(*stream, personal_table, global_table, **options)
    first = btfl.interpolate(*(part[:cut] for part in stream), personal_table, global_table, **options)
    for together, separate in zip(whole, first, strict=True):
        torch.testing.assert_close(together[:cut], separate, rtol=1e-12, atol=1e-12)


def test_order_inside_a_batch_does_not_matter():
    features, global_logits, personal_logits, *tables = problem(n=64)
    order = torch.cat([torch.randperm(32, generator=torch.Generator().manual_seed(1)) + start for start in (0, 32)])
    straight = btfl.interpolate(features, global_logits, personal_logits, *tables, **ENTROPIES)
    shuffled = btfl.interpolate(features[order], global_logits[order], personal_logits[order], *tables, **ENTROPIES)
    for a, b in zip(straight, shuffled, strict=True):
        torch.testing.assert_close(a[order], b, rtol=1e-12, atol=1e-12)


def test_a_batch_is_scored_with_the_prior_before_it():
    events = torch.tensor([[True, False]] * 3 + [[False, True]] * 2 + [[False, False]])
    assert btfl.prior_scan(events, batch_size=2, cap=100).tolist() == [[1, 1], [3, 1], [4, 2], [4, 3]]
    # Restart: the sum falls from 7 to 2 + cap / 10, split as 4 to 3.
    last = btfl.prior_scan(events, batch_size=2, cap=6.5)[-1]
    assert last.tolist() == pytest.approx([1 + 0.65 * 4 / 7, 1 + 0.65 * 3 / 7], abs=1e-15)
    # A sum equal to the cap does not exceed it.
    assert btfl.prior_scan(events, batch_size=2, cap=7)[-1].tolist() == [4, 3]


def test_a_rescaled_prior_keeps_its_mean():
    events = torch.tensor([[True, False]] * 6 + [[False, True]] * 2)
    priors = btfl.prior_scan(events, batch_size=4, cap=5, cap_rule="rescale")
    # (1, 1) and four external events, brought from 6 to 5; then two of each.
    assert priors.tolist() == [[1, 1], pytest.approx([25 / 6, 5 / 6]), pytest.approx([5 * 37 / 54, 5 * 17 / 54])]
    assert btfl.prior_scan(events, batch_size=4, cap=6, cap_rule="rescale")[1].tolist() == [5, 1]


def test_a_prior_survives_any_number_of_one_sided_batches():
    """Scaled down some thousand times without being added to, a parameter would end at zero, where there is no prior any more."""
    priors = btfl.prior_scan(torch.tensor([[True, False]]).expand(20_000, 2), batch_size=4, cap=2, cap_rule="rescale")
    assert (priors > 0).all()
    assert priors[-1].tolist() == pytest.approx([2, 0])
    for integral in btfl.INTEGRALS:
        assert btfl.mixture_weight(*priors[-1], torch.tensor(1.0), integral).isfinite()


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from([(True, False), (False, True), (False, False)]), max_size=80), st.integers(1, 9), st.floats(2, 40))
def test_cap_rules_keep_a_prior(events, batch_size, cap):
    """Neither rule lets the sum exceed the cap for long, turns the mean to the other side, or acts below the cap."""
    events = torch.tensor(events, dtype=torch.bool).view(-1, 2)
    free, restarted, rescaled = (
        btfl.prior_scan(events, batch_size=batch_size, **options)
        for options in ({"cap": math.inf}, {"cap": cap}, {"cap": cap, "cap_rule": "rescale"})
    )
    assert (rescaled > 0).all()
    assert (rescaled.sum(1) <= cap + 1e-9).all()
    assert (restarted >= 1).all()
    assert (restarted.sum(1) <= max(cap, 2 + cap / 10) + 1e-9).all()
    below = (free.sum(1) <= cap).long().cumprod(0).bool()
    for capped in (restarted, rescaled):
        assert torch.equal(capped[below], free[below])
    first = int(below.sum())
    if first < len(free):
        mean = lambda prior: (prior[first, 0] / prior[first].sum()).item()  # noqa: E731
        assert mean(rescaled) == pytest.approx(mean(free), abs=1e-12)
        assert abs(mean(restarted) - 0.5) <= abs(mean(free) - 0.5) + 1e-12


def test_kernel_follows_the_published_code_where_nothing_is_said():
    """The functions' defaults are the code's; only the method's are the paper's."""
    inputs = problem()
    code = btfl.interpolate(*inputs, batch_size=4, mixture="log", cap_rule="restart", **ENTROPIES)
    for got, want in zip(btfl.interpolate(*inputs, batch_size=4, **ENTROPIES), code, strict=True):
        assert torch.equal(got, want)
    assert (btfl.BTFL().mixture, btfl.BTFL().cap_rule) == ("probability", "rescale")


def test_binary_codes_split_at_atanh_half():
    features = torch.linspace(0, 3, 1001, dtype=torch.float64)[:, None]
    assert torch.equal(btfl.quantize(features), (features > 0.549306).long())
    assert btfl.quantize(torch.tensor([[0.0, 10.0]]), levels=4).tolist() == [[0, 3]]


@pytest.mark.parametrize("bad", [-1e-6, -3.0, math.nan])
def test_negative_features_raise(bad):
    with pytest.raises(ValueError, match="negative"):
        btfl.quantize(torch.tensor([[0.5, bad]]))


def test_equal_likelihoods_give_lambda_one_and_no_event():
    features, _, personal_logits, own, _ = problem(n=8)
    entropy = torch.special.entr(personal_logits.softmax(1)).sum(1).max().item()
    for squash in (True, False):
        lam, events = evidence(
            features, personal_logits, personal_logits, own, own,
            personal_entropy=entropy, global_entropy=entropy, reference_entropy=entropy, squash=squash,
        )  # fmt: skip
        assert torch.equal(lam, torch.ones(8, dtype=torch.float64))
        assert not events.any()


def test_extreme_entropies_keep_lambda_at_its_bound():
    """A very confident personal head makes the exponent of an unsure sample overflow; lambda then favours the global head."""
    features, global_logits, personal_logits, *tables = problem(n=6, dtype=torch.float32)
    lam, _ = evidence(features, global_logits, 0 * personal_logits, *tables, personal_entropy=1e-12, global_entropy=1.4)
    assert torch.equal(lam, torch.full((6,), 0.2, dtype=torch.float64))
    options = {"personal_entropy": 1e-12, "global_entropy": 1.4, "reference_entropy": 1e-12}
    lam, _ = evidence(features, 0 * global_logits, 0 * personal_logits, *tables, **options)
    assert ((lam >= 0.2) & (lam <= 5)).all()


def test_frequency_table_and_leave_one_out():
    tables = torch.stack([btfl.frequency_table(problem(seed=seed)[0], levels=3) for seed in range(4)])
    torch.testing.assert_close(tables.sum(1), torch.ones(4, 12, dtype=torch.float64))
    assert btfl.frequency_table(torch.tensor([[0.0, 1.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0]])).tolist() == [[0.75, 0.75], [0.25, 0.25]]
    for k, table in enumerate(btfl.leave_one_out(tables)):
        torch.testing.assert_close(table, tables[[i for i in range(4) if i != k]].mean(0), rtol=1e-12, atol=1e-12)


def test_without_events_the_weight_depends_on_lambda_alone():
    features, global_logits, personal_logits, own, other = problem()
    # No entropy lies below a vanishing threshold, so neither event can occur.
    options = {"personal_entropy": 1e-9, "global_entropy": 1e-9, "cap": math.inf}
    weight, _, prior = btfl.interpolate(features, global_logits, personal_logits, own, other, batch_size=5, **options)
    assert torch.equal(prior, torch.ones_like(prior))
    backwards = [value.flip(0) for value in (features, global_logits, personal_logits)]
    torch.testing.assert_close(btfl.interpolate(*backwards, own, other, batch_size=5, **options)[0].flip(0), weight, rtol=0, atol=1e-12)


def test_a_global_entropy_of_zero_is_a_threshold_that_no_entropy_is_below():
    inputs = problem()
    lam, events = evidence(*inputs, personal_entropy=0.8, global_entropy=0.0)
    usual, _ = evidence(*inputs, **ENTROPIES)
    assert torch.equal(lam, usual)
    assert not events[:, 0].any()
    assert events[:, 1].any()


def test_empty_stream():
    features, global_logits, personal_logits, *tables = problem()
    weight, scores, prior = btfl.interpolate(features[:0], global_logits[:0], personal_logits[:0], *tables, **ENTROPIES)
    assert (weight.shape, scores.shape, prior.shape) == ((0,), (0, 5), (0, 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"integral": "exakt"}, "exact"),
        ({"mixture": "logs"}, "log"),
        ({"cap_rule": "scale"}, "rescale"),
        ({"personal_entropy": 0.0}, "entropies"),
        ({"reference_entropy": 0.0}, "entropies"),
        ({"global_entropy": -0.1}, "entropies"),
        ({"global_entropy": math.nan}, "entropies"),
        ({"kb": 0.0}, "kb"),
        ({"smoothing": 0.5}, "smoothing"),
        ({"batch_size": 0}, "batch_size"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        btfl.interpolate(*problem(n=4), **{**ENTROPIES, **options})
