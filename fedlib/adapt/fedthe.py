"""FedTHE (Jiang & Lin, ICLR 2023): a test-time ensemble of the global and the personal head, one weight per sample.

Section 4, equations (3)-(5) and Algorithm 2. For a sample with features z, logits g and l of the global and the personal head, the weight e
of the global head minimises  s Ent(softmax y) + (1 - s)(e D_g + (1 - e) D_l),  y = e g + (1 - e) l,  where s is the cosine of the two
heads' probabilities and D_g, D_l are the distances of the smoothed feature beta z + (1 - beta) H to the global and the local descriptor.
Carried over the stream: the history H, a moving average of *raw* features (rate alpha), cleared for every stream.

H does not depend on e, so the whole stream is solved at once: the two logits of the reference's Adam run are mirror images (1 + d, 1 - d),
one scalar d per sample, e = sigmoid(2 d).

Paper and code: history_rule ``code`` includes the sample itself and skips the first row of every later batch; ``exclusive`` is the paper's
(H before the sample); ``inclusive`` is the code's rule without the skip and the only sensible one for batches of one. beta is 0.3 in the
paper (default), 0.1 in the code. An earlier public version of the code (LINs-lab/FedTHE, 699d55f) has the paper's 0.3, but smooths the
smoothed feature anew at every step of Adam, so that step k sees beta^k z + (1 - beta^k) H, nearly H alone (``compounded``). Both versions
stop a batch whose gradient norm falls below 1e-5 (``early_stop``); the paper does not.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedlib.core import Output, State, Stream, Task
from fedlib.states import own_head, require
from fedlib.tools.names import check_name

HISTORY_RULES = ("code", "exclusive", "inclusive")
WEIGHTINGS = ("similarity", "alignment", "entropy", "half")


def moving_average(features: Tensor, alpha: float, block: int = 128) -> Tensor:
    """H_1 = z_1, H_n = alpha z_n + (1 - alpha) H_{n-1} for features [n, d], as triangular products over blocks of rows."""
    keep = 1 - alpha
    steps = torch.arange(block, device=features.device)
    gaps = (steps[:, None] - steps).to(features.dtype)
    lower = torch.where(gaps >= 0, alpha * keep ** gaps.clamp(min=0), 0.0).to(features.dtype)
    carry = (keep ** (steps + 1).to(features.dtype))[:, None]
    previous, result = features[:1], []
    for rows in features.split(block):
        n = len(rows)
        result.append(lower[:n, :n] @ rows + carry[:n] * previous)
        previous = result[-1][-1:]
    return torch.cat(result) if result else features


def history(features: Tensor, alpha: float, rule: str = "code", batch_size: int = 32) -> Tensor:
    """The test history [n, d] used for each sample of a stream of features [n, d]; rules as in the module's docstring."""
    check_name(rule, HISTORY_RULES, "history rule")
    if rule == "inclusive":
        return moving_average(features, alpha)
    if rule == "exclusive":
        return torch.cat([features[:1], moving_average(features, alpha)[:-1]])
    position = torch.arange(len(features), device=features.device)
    absorbed = (position % batch_size != 0) | (position == 0)
    return moving_average(features[absorbed], alpha)[absorbed.cumsum(0) - 1]


def ensemble(
    features: Tensor,
    global_logits: Tensor,
    personal_logits: Tensor,
    global_descriptor: Tensor,
    personal_descriptor: Tensor,
    *,
    history_rule: str = "code",
    batch_size: int = 32,
    alpha: float = 0.1,
    beta: float = 0.3,
    lr: float = 0.1,
    steps: int = 20,
    early_stop: bool = False,
    weighting: str = "similarity",
    shared: bool = False,
    compounded: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Solve the ensemble weights of one stream.

    features [n, d], logits [n, C] of both heads, descriptors [d], float32 or float64. weighting: ``similarity`` (the method), or the
    ablations ``alignment`` (s = 0), ``entropy`` (s = 1), ``half`` (s = 1/2). shared: one weight per batch instead of one per sample.
    compounded: beta to the power of k in step k.
    Returns the weight [n] of the global head in (0, 1), the blended logits [n, C] and the history [n, d] used for each sample.
    """
    check_name(weighting, WEIGHTINGS, "weighting")
    past = history(features, alpha, history_rule, batch_size)

    def gap_at(share: float) -> Tensor:
        smoothed = share * features + (1 - share) * past
        return (smoothed - global_descriptor).norm(dim=1) - (smoothed - personal_descriptor).norm(dim=1)

    gap = gap_at(beta)
    similarity = functional.cosine_similarity(global_logits.softmax(1), personal_logits.softmax(1), dim=1, eps=1e-6)
    s = {"similarity": similarity, "alignment": 0 * gap, "entropy": 0 * gap + 1, "half": 0 * gap + 0.5}[weighting]
    difference = global_logits - personal_logits

    batch = torch.arange(len(features), device=features.device) // batch_size
    n_batches = -(-len(batch) // batch_size)
    sizes = torch.bincount(batch, minlength=n_batches).to(features.dtype)
    moving = torch.ones_like(gap)
    d, first, second = torch.zeros_like(gap), torch.zeros_like(gap), torch.zeros_like(gap)
    for k in range(1, steps + 1):
        gap = gap_at(beta**k) if compounded else gap
        e = torch.sigmoid(2 * d)
        log_q = (personal_logits + e[:, None] * difference).log_softmax(1)
        q = log_q.exp()
        entropy = -(q * log_q).sum(1)
        slope = -(difference * q * (log_q + entropy[:, None])).sum(1)
        gradient = e * (1 - e) * (s * slope + (1 - s) * gap) / sizes[batch]
        if shared:
            gradient = gradient.new_zeros(n_batches).index_add(0, batch, gradient)[batch]
        if early_stop:
            # The reference's gradient has two mirrored entries per weight, hence the factor 2 under the root.
            squares = gradient.new_zeros(n_batches).index_add(0, batch, gradient.square())
            norms = (2 * squares / (sizes if shared else 1)).sqrt()
            moving = moving * (norms >= 1e-5).to(moving.dtype)[batch]
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient.square()
        d = d - moving * lr * (first / (1 - 0.9**k)) / ((second / (1 - 0.999**k)).sqrt() + 1e-8)
    e = torch.sigmoid(2 * d)
    return e, personal_logits + e[:, None] * difference, past


@dataclass(frozen=True)
class FedTHE:
    """alpha: history rate; beta: share of the sample in the smoothed feature; steps, lr: Adam on the weight (the code's ten times the
    personal rate: 0.1 with SGD, 0.01 with CCT's Adam); the rest as in ``ensemble``. ``steps=0`` is the plain mean of the two heads."""

    alpha: float = 0.1
    beta: float = 0.3
    steps: int = 20
    lr: float = 0.1
    history_rule: str = "code"
    batch_size: int = 32
    weighting: str = "similarity"
    shared: bool = False
    early_stop: bool = False
    compounded: bool = False
    version: int = 2

    def __post_init__(self):
        check_name(self.history_rule, HISTORY_RULES, "history rule")
        check_name(self.weighting, WEIGHTINGS, "weighting")
        if not (0 <= self.alpha <= 1 and 0 <= self.beta <= 1) or self.steps < 0 or self.batch_size < 1:
            raise ValueError(f"out of range: {self} (alpha and beta in [0, 1], steps >= 0, batch_size >= 1)")

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        require(personal, "FedTHE", "PersonalHead", "model.head.weight", "descriptor", "shared.descriptor")
        features, global_logits = task.frozen(state, stream)
        options = {name: value for name, value in vars(self).items() if name != "version"}
        descriptors = personal["shared.descriptor"], personal["descriptor"]
        weight, logits, _ = ensemble(features, global_logits, own_head(features, personal), *descriptors, **options)
        return Output(logits, {"weight": weight})
