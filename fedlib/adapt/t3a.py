"""T3A (Iwasawa & Matsuo, NeurIPS 2021): a prototype classifier that grows over the test stream, as FedTHE, FedICON and ATP run it.

Each class starts with the classifier's own weight rows, labelled and scored by the classifier itself. A test sample joins the supports
of its predicted class; each class keeps its ``filter_k`` supports of lowest prediction entropy, for good. A class's prototype is the
normalised sum of its L2-normalised supports, a score the product of the raw feature and the prototype. Carried over the stream: the
supports.

FedTHE adds one sample at a time, ATP and FedICON a whole batch before any of it is scored (``batch_size``). A sample is in the supports
when it is scored, unless the filter drops it at once.

Method: which support enters or leaves a class depends on labels and entropies only, so a scan over numbers finds the changes; every
prototype that ever holds is then a running sum, and all scores are row products. Sums and entropies are taken in float64.

Paper and code: the paper scores the weight rows with the classifier, bias included (default of ``T3A``); FedTHE's code scores them without
it, though test samples with it (default of ``predict``, and what FedTHE's recipe takes). That code cannot run without the filter (its
switch for that drops one support per class); here 0, -1 or None skips it.
"""

from bisect import insort
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedlib.core import Output, State, Stream, Task
from fedlib.states import overlay

# Values of filter_k that keep all supports.
NO_FILTER = (None, 0, -1)


def predict(
    features: Tensor, weight: Tensor, *, filter_k: int | None, batch_size: int = 1, bias: Tensor | None = None, initial_bias: bool = False
) -> Tensor:
    """Scores [N, C] of a stream of features [N, d] whose batches of ``batch_size`` enter the supports before they are scored.

    weight [C, d], bias [C] or None: the classifier; the bias acts on pseudo-labels and entropies, not on scores; initial_bias: on those of
    the weight rows too. filter_k: supports kept per class, 1 or more; 0, -1 or None keeps all. Equal entropies: the earlier support stays.
    A class without supports scores 0.
    """
    check_sizes(batch_size, filter_k)
    n, classes = len(features), len(weight)
    supports = torch.cat([weight, features]).double()
    logits = functional.linear(supports, weight.double())
    if bias is not None:
        logits[0 if initial_bias else classes :] += bias.double()
    labels, entropies = logits.argmax(1), torch.special.entr(logits.softmax(1)).sum(1)
    units = functional.normalize(supports, dim=1)
    # The last position of the support list that sample i sees: the end of its batch.
    last_seen = classes - 1 + (torch.arange(0, n, batch_size) + batch_size).clamp_max(n).repeat_interleave(batch_size)[:n]
    last_seen = last_seen.to(features.device)
    scores = torch.zeros(n, classes, dtype=torch.float64, device=features.device)
    for c in range(classes):
        members = (labels == c).nonzero().squeeze(1)
        changes = units[members]
        if filter_k not in NO_FILTER:
            entering, leaving = _evictions(entropies[members].tolist(), filter_k)
            changes[entering] -= units[members[leaving]]
        prototypes = functional.normalize(changes.cumsum(0), dim=1)
        # Prototype v holds after v + 1 members have entered; before the first there is none and the score stays 0.
        version = torch.searchsorted(members, last_seen, right=True) - 1
        seen = version >= 0
        scores[seen, c] = (supports[classes:][seen] * prototypes[version[seen]]).sum(1)
    return scores.to(features.dtype)


def check_sizes(batch_size: int, filter_k: int | None) -> None:
    """Raise ValueError for sizes out of range."""
    if batch_size < 1 or (filter_k not in NO_FILTER and filter_k < 1):
        raise ValueError(f"T3A: batch_size must be 1 or more and filter_k 1 or more, or 0, -1 or None; got {batch_size} and {filter_k}")


def _evictions(entropies: list[float], keep: int) -> tuple[list[int], list[int]]:
    """Positions whose entry pushes a member out, and the members pushed out, when the ``keep`` lowest entropies stay."""
    kept: list[tuple[float, int]] = []
    entering, leaving = [], []
    for i, entropy in enumerate(entropies):
        insort(kept, (entropy, i))
        if len(kept) > keep:
            entering.append(i)
            leaving.append(kept.pop()[1])
    return entering, leaving


@dataclass(frozen=True)
class T3A:
    """filter_k: supports kept per class (FedTHE: 50), 0, -1 or None for all; batch_size: samples that enter together (1: FedTHE);
    initial_bias: whether the classifier's bias acts on the first supports too (FedTHE: no). Acts on the model with the client's personal
    parts in place of the received ones."""

    filter_k: int | None = 50
    batch_size: int = 1
    initial_bias: bool = True
    version: int = 1

    def __post_init__(self):
        check_sizes(self.batch_size, self.filter_k)

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        model = overlay(state, personal)
        features, _ = task.predict(model, stream.images)
        options = {"batch_size": self.batch_size, "filter_k": self.filter_k, "initial_bias": self.initial_bias}
        return Output(predict(features, model["head.weight"], bias=model.get("head.bias"), **options))
