"""BTFL (Zhou & Liu, KDD 2025): a Bayesian weight between the global and the personal head, one per test sample.

m is the probability that a sample of the stream is external (another client's distribution), with a Beta(alpha, beta) prior carried
over the stream and set to (1, 1) at the start of each. Per sample: binary feature codes (5) give likelihoods under the client's own table
of code frequencies and under the other clients' (6); both heads' entropies rectify the likelihood ratio lambda (14)-(15); the weight of the
global head is the mean of m / (m + (1 - m) lambda) under the prior (16)-(21). Samples on which likelihoods and both entropies agree
(9)-(11) are external or internal events; after each batch they update the prior (7)-(8), Algorithm 1, whose sum a cap holds down. The
prediction mixes both heads' probabilities with the weight (3), (21). No gradients.

Only the event counts couple samples: one pass over the stream gives lambda and events, a scan over batches the priors, one integral
the weights. Scalars per sample are computed in float64.

Paper and code: ``BTFL`` reads three steps as the paper does: it mixes probabilities, where the code mixes logarithms (``mixture="log"``),
a prior above its cap is rescaled, its mean kept, where the code restarts it near 2 + cap / 10 (``cap_rule="restart"``), and it integrates
over [0, 1], where the code's ``trapezoid`` on [0.01, 0.99] loses nearly all of a prior that external events alone have shaped. Everything
else follows the code by default. The paper has the mean of all tables instead (``table="mean"``; ``leave_one_out`` makes the others'
mean), no smoothing (``smoothing=0``), the global head's own training entropy in its exponent (``reference="global"``) and no squash of
lambda (``squash=False``, clipped). The functions below have the code's choices as defaults. The code gives lambda = 0 to a ratio of
exactly 1; here it is 1.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedlib.adapt.batchwise import entropies
from fedlib.core import Output, State, Stream, Task
from fedlib.states import own_head, require
from fedlib.tools.names import check_name

INTEGRALS = ("trapezoid", "exact")
MIXTURES = ("log", "probability")
CAP_RULES = ("restart", "rescale")
TABLES = {"others": "others_table", "mean": "shared.table"}
REFERENCES = ("constant", "global")

# Lowest frequency whose logarithm is taken; acts only without smoothing.
FREQUENCY_FLOOR = 1e-6
# Least parameter of a prior, which stays above zero in single precision, too.
LEAST_PRIOR = 1e-30
# Largest entropy exponent. Beyond it lambda is at its bound anyway.
EXPONENT_LIMIT = 80.0
# Samples that are looked at together: what is computed for them stays in the processor's caches.
BLOCK = 1024


def quantize(features: Tensor, levels: int = 2) -> Tensor:
    """Codes round(tanh(f) (levels - 1)), int64 in 0..levels-1, of non-negative features [N, d]; eq. (5). For two levels: f > 0.5493."""
    if levels < 2:
        raise ValueError(f"BTFL: levels must be 2 or more, got {levels}")
    if features.numel() and not features.min().item() >= 0:
        raise ValueError("BTFL needs features that are not negative (and not NaN): put a ReLU between extractor and head")
    return torch.round(torch.tanh(features) * (levels - 1)).long()


def frequency_table(features: Tensor, levels: int = 2) -> Tensor:
    """Share of the M training features [M, d] with each code, [levels, d]; eq. (6). Columns sum to one."""
    if len(features) == 0:
        raise ValueError("BTFL: a frequency table needs at least one training feature, got none")
    codes = quantize(features, levels)
    return torch.stack([(codes == level).to(features.dtype).mean(0) for level in range(levels)])


def leave_one_out(tables: Tensor) -> Tensor:
    """For each client the mean of the *other* clients' tables; tables [K, levels, d], K >= 2 -> same shape."""
    if len(tables) < 2:
        raise ValueError(f"BTFL: the mean of the other clients' tables needs at least 2 clients, got {len(tables)}")
    return (tables.sum(0) - tables) / (len(tables) - 1)


def log_likelihood(codes: Tensor, table: Tensor, smoothing: float = 0.2) -> Tensor:
    """Sum over dimensions of log((1 - smoothing levels) p + smoothing), float64 [N]; codes [N, d], table [levels, d] of frequencies p."""
    levels = len(table)
    if not 0 <= smoothing * levels < 1:
        raise ValueError(f"BTFL: smoothing must lie in [0, 1/levels), got {smoothing} with {levels} levels")
    smoothed = (1 - smoothing * levels) * table.double() + smoothing
    logs = smoothed.clamp_min(FREQUENCY_FLOOR).log()
    # A product for each level is faster than looking every code up.
    return logs[0].sum() + sum((codes == level).double() @ (logs[level] - logs[0]) for level in range(1, levels))


def evidence(
    features: Tensor,
    global_log: Tensor,
    personal_log: Tensor,
    personal_table: Tensor,
    global_table: Tensor,
    *,
    personal_entropy: float,
    global_entropy: float,
    reference_entropy: float = math.log(100),
    kb: float = 4.0,
    smoothing: float = 0.2,
    squash: bool = True,
    clip: float = 50.0,
) -> tuple[Tensor, Tensor]:
    """What each sample says by itself: lambda, float64 [N], and events, bool [N, 2] (external, internal).

    global_log, personal_log: log-probabilities of the heads, float64 [N, C]; the rest as in ``interpolate``.
    """
    # The global entropy is a threshold only, nothing is divided by it.
    if min(personal_entropy, reference_entropy) <= 0 or not global_entropy >= 0:
        raise ValueError(
            "BTFL: entropies must be positive, the global one at least zero, "
            f"got personal {personal_entropy}, global {global_entropy}, reference {reference_entropy}"
        )
    if kb <= 0 or clip < 1:
        raise ValueError(f"BTFL: kb must be positive and clip 1 or more, got kb={kb}, clip={clip}")
    codes = quantize(features, len(personal_table))
    internal_log = log_likelihood(codes, personal_table, smoothing)
    external_log = log_likelihood(codes, global_table, smoothing)
    personal_h, global_h = entropies(personal_log), entropies(global_log)

    external = (internal_log < external_log) & (global_h < global_entropy) & (personal_h > personal_entropy)
    internal = (internal_log > external_log) & (personal_h < personal_entropy) & (global_h > global_entropy)

    internal_power = (personal_h / personal_entropy - 1).clamp_max(EXPONENT_LIMIT).exp()
    external_power = (global_h / reference_entropy - 1).clamp_max(EXPONENT_LIMIT).exp()
    log_ratio = (internal_power * internal_log - external_power * external_log) / features.shape[1]
    # The squash is symmetric: the larger of ratio and 1 / ratio is bounded by 1 + kb, then put back on its side of 1.
    distance = torch.expm1(log_ratio.abs())
    bound = 1 + kb * torch.tanh(distance) if squash else (1 + distance).clamp_max(clip)
    return torch.where(log_ratio > 0, bound, 1 / bound), torch.stack([external, internal], 1)


def prior_scan(events: Tensor, *, batch_size: int = 32, cap: float = 16, cap_rule: str = "restart") -> Tensor:
    """Beta parameters (alpha, beta) before each batch and, in the last row, after the stream: float64 [batches + 1, 2].

    events: bool [N, 2] (external, internal), in stream order. A sum above ``cap`` is brought down with its mean kept: ``rescale`` to the
    cap, ``restart`` to cap / 10 on top of a fresh (1, 1). math.inf: never.
    """
    check_name(cap_rule, CAP_RULES, "cap rule")
    if batch_size < 1 or cap <= 0:
        raise ValueError(f"BTFL: batch_size and cap must be positive, got {batch_size} and {cap}")
    fresh, kept = (0, cap) if cap_rule == "rescale" else (1, cap / 10)
    batches = -(-len(events) // batch_size)
    padded = functional.pad(events.double(), (0, 0, 0, batches * batch_size - len(events)))
    alpha, beta = 1.0, 1.0
    priors = [alpha, beta]
    for external, internal in padded.view(batches, batch_size, 2).sum(1).tolist():
        alpha += external
        beta += internal
        total = alpha + beta
        if total > cap:
            # Scaling down what no batch adds to would end at zero, which is no Beta distribution.
            alpha, beta = (max(fresh + kept * value / total, LEAST_PRIOR) for value in (alpha, beta))
        priors += (alpha, beta)
    return torch.tensor(priors, dtype=torch.float64, device=events.device).view(-1, 2)


def mixture_weight(alpha: Tensor, beta: Tensor, lam: Tensor, integral: str = "trapezoid") -> Tensor:
    """Mean of m / (m + (1 - m) lambda) for m ~ Beta(alpha, beta), float64 in (0, 1), broadcast over tensors or arrays; eqs. (16)-(19).

    ``trapezoid``: 100 points on [0.01, 0.99] without renormalising the cut tails (the published code); ``exact``: closed form.
    alpha, beta > 0; lambda in [1e-4, 1e4].
    """
    check_name(integral, INTEGRALS, "integral")
    alpha, beta, lam = (torch.as_tensor(value, dtype=torch.float64) for value in (alpha, beta, lam))
    if not bool(((lam >= 1e-4) & (lam <= 1e4) & (alpha > 0) & (beta > 0)).all()):
        raise ValueError("BTFL: the integral needs lambda in [1e-4, 1e4] and positive alpha, beta")
    return _trapezoid(alpha, beta, lam) if integral == "trapezoid" else _closed_form(alpha, beta, lam)


def _trapezoid(alpha: Tensor, beta: Tensor, lam: Tensor) -> Tensor:
    points = torch.linspace(0.01, 0.99, 100, dtype=torch.float64, device=lam.device)
    widths = torch.full_like(points, 0.98 / 99)
    widths[[0, -1]] /= 2
    alpha, beta = torch.broadcast_tensors(alpha, beta)
    log_norm = torch.lgamma(alpha + beta) - torch.lgamma(alpha) - torch.lgamma(beta)
    basis = torch.stack([points.log(), torch.log1p(-points), torch.ones_like(points)])
    density = (torch.stack([alpha - 1, beta - 1, log_norm], -1) @ basis).exp_()
    return (density / torch.lerp(lam[..., None], lam.new_ones(()), points)) @ (widths * points)


def _closed_form(alpha: Tensor, beta: Tensor, lam: Tensor) -> Tensor:
    """w = alpha / (alpha + beta) F(1, beta; alpha + beta + 1; 1 - lambda) for lambda <= 1; its mirror image gives 1 - w otherwise."""
    alpha, beta, lam = torch.broadcast_tensors(alpha, beta, lam)
    mirrored = lam > 1
    first, second = torch.where(mirrored, beta, alpha), torch.where(mirrored, alpha, beta)
    z = 1 - torch.where(mirrored, 1 / lam, lam)
    term = first / (first + second)
    total = term.clone()
    # All terms are positive and shrink at least like z^n, so the rest after a term is below term z / (1 - z).
    n = 0
    while bool((term * z > 1e-16 * (1 - z)).any()):
        term = term * z * (second + n) / (first + second + 1 + n)
        total += term
        n += 1
    return torch.where(mirrored, 1 - total, total)


def interpolate(
    features: Tensor,
    global_logits: Tensor,
    personal_logits: Tensor,
    personal_table: Tensor,
    global_table: Tensor,
    *,
    personal_entropy: float,
    global_entropy: float,
    reference_entropy: float = math.log(100),
    cap: float = 16,
    kb: float = 4.0,
    smoothing: float = 0.2,
    batch_size: int = 32,
    integral: str = "trapezoid",
    mixture: str = "log",
    cap_rule: str = "restart",
    squash: bool = True,
    clip: float = 50.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Weight of the global head [N], log scores [N, C] and prior [N, 2] (alpha, beta) used, for a whole stream in order.

    features [N, d] >= 0; global_logits, personal_logits [N, C]; tables [levels, d] of the client and of the others (``frequency_table``,
    ``leave_one_out``). personal_entropy, global_entropy: mean entropies in nats of the heads on the client's training part, thresholds of
    the events; the former also scales the personal exponent, reference_entropy the global one. cap, cap_rule: as in ``prior_scan``. kb:
    lambda is squashed into [1 / (1 + kb), 1 + kb]; with squash off it is clipped to [1 / clip, clip]. smoothing: of the tables at look-up.
    A batch uses the prior left by the batches before it. mixture: of log-probabilities, or of probabilities (scores are then the logarithm
    of the mixture). Outputs have the features' dtype.
    """
    check_name(mixture, MIXTURES, "mixture")
    options = {"reference_entropy": reference_entropy, "kb": kb, "smoothing": smoothing, "squash": squash, "clip": clip}
    entropies = {"personal_entropy": personal_entropy, "global_entropy": global_entropy}
    global_log, personal_log = global_logits.double().log_softmax(1), personal_logits.double().log_softmax(1)
    blocks = zip(*(stream.split(BLOCK) for stream in (features, global_log, personal_log)), strict=True)
    found = [evidence(*block, personal_table, global_table, **entropies, **options) for block in blocks]
    lam, events = (torch.cat(parts) for parts in zip(*found, strict=True))
    priors = prior_scan(events, batch_size=batch_size, cap=cap, cap_rule=cap_rule)[:-1, None]
    n, batches = len(features), len(priors)
    by_batch = functional.pad(lam, (0, batches * batch_size - n), value=1.0).view(batches, batch_size)
    rows = max(1, BLOCK // batch_size)
    batched = zip(priors.split(rows), by_batch.split(rows), strict=True)
    weight = torch.cat([mixture_weight(*p.unbind(-1), ratios, integral) for p, ratios in batched]).flatten()[:n, None]
    prior = priors.expand(-1, batch_size, -1).flatten(0, 1)[:n]
    if mixture == "log":
        scores = weight * global_log + (1 - weight) * personal_log
    else:
        scores = torch.logaddexp(weight.log() + global_log, torch.log1p(-weight) + personal_log)
    return weight[:, 0].to(features.dtype), scores.to(features.dtype), prior.to(features.dtype)


@dataclass(frozen=True)
class BTFL:
    """Needs the personal part of ``fedlib.personalize.btfl``; carries alpha and beta over the stream, from (1, 1) at its start.

    table: for external samples, the ``others``' mean or the ``mean`` of all clients; reference: entropy in the global exponent,
    ``constant`` (ln 100) or the ``global`` head's own on the client's training part; the rest as in ``interpolate``.
    """

    cap: float = 16.0
    kb: float = 4.0
    smoothing: float = 0.2
    batch_size: int = 32
    table: str = "others"
    reference: str = "constant"
    squash: bool = True
    clip: float = 50.0
    integral: str = "exact"
    mixture: str = "probability"
    cap_rule: str = "rescale"
    version: int = 4

    def __post_init__(self):
        check_name(self.table, TABLES, "table")
        check_name(self.reference, REFERENCES, "reference entropy")
        check_name(self.integral, INTEGRALS, "integral")
        check_name(self.mixture, MIXTURES, "mixture")
        check_name(self.cap_rule, CAP_RULES, "cap rule")
        if self.cap <= 0 or self.kb <= 0 or self.smoothing < 0 or self.batch_size < 1 or self.clip < 1:
            raise ValueError(f"out of range: {self} (cap and kb > 0, smoothing >= 0, batch_size and clip >= 1)")

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        """Log scores, and the weight of the global head of every sample as an extra."""
        require(personal, "BTFL", "BTFLPersonal", "model.head.weight", "table", TABLES[self.table], "entropies")
        features, global_logits = task.frozen(state, stream)
        personal_entropy, global_entropy = personal["entropies"].double().tolist()
        options = {name: value for name, value in vars(self).items() if name not in ("table", "reference", "version")}
        weight, scores, _ = interpolate(
            features,
            global_logits,
            own_head(features, personal),
            personal["table"],
            personal[TABLES[self.table]],
            personal_entropy=personal_entropy,
            global_entropy=global_entropy,
            reference_entropy=math.log(100) if self.reference == "constant" else global_entropy,
            **options,
        )
        return Output(scores, {"weight": weight})
