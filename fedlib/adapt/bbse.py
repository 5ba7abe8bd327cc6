"""Black-box shift estimation (Lipton et al., ICML 2018) in ATP's form: the class prior of each test batch from a confusion matrix.

With C[i, j] = p(predicted i | true j) on source validation data and b the distribution of the batch's predictions, the batch's prior
solves C q = b. The estimate is projected on the simplex and log q is added to the logits; the model is not trained again and the source
prior is not divided out. Nothing is carried from one batch to the next.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedlib.core import Output, State, Stream, Task
from fedlib.states import overlay, require
from fedlib.tools.names import check_name
from fedlib.tools.simplex import project_to_simplex

# Share of the uniform distribution mixed into the estimated prior: keeps log q finite.
UNIFORM_SHARE = 1e-3


def adjust(logits: Tensor, confusion_counts: Tensor, *, soft: bool = False) -> Tensor:
    """Logits [N, C] of one batch plus the log of its estimated class prior.

    confusion_counts [C, C], rows predicted, columns true, summed over the source clients' validation data; not negative, fractional where
    they sum softmax outputs; a class without samples is a column of zeros. soft: b is the mean softmax instead of the histogram of the
    arg max (the counts should be made the same way).
    """
    classes = logits.shape[1]
    if confusion_counts.shape != (classes, classes):
        raise ValueError(
            f"BBSE: confusion_counts must be [{classes}, {classes}] for logits {list(logits.shape)}, got {list(confusion_counts.shape)}"
        )
    counts = confusion_counts.to(logits.device, torch.float64)
    if not bool((counts >= 0).all()) or not bool(counts.any()):
        raise ValueError(
            "BBSE: confusion_counts must be counts (0 or more) and not all zero; count the source validation predictions first"
        )
    if not len(logits):
        return logits.clone()
    confusion = counts / counts.sum(0).where(counts.any(0), 1)
    predictions = logits.double().softmax(1) if soft else functional.one_hot(logits.argmax(1), classes).double()
    prior = project_to_simplex(torch.linalg.pinv(confusion) @ predictions.mean(0))
    return logits + torch.log((1 - UNIFORM_SHARE) * prior + UNIFORM_SHARE / classes).to(logits.dtype)


@dataclass(frozen=True)
class BBSE:
    """confusion: ``hard`` (arg max) or ``soft`` (softmax) counts and predictions; batch_size: images whose prior is estimated together.

    Needs the source clients' confusion counts of ``fedlib.personalize.confusion``.
    """

    confusion: str = "hard"
    batch_size: int = 20
    version: int = 2

    def __post_init__(self):
        check_name(self.confusion, ("hard", "soft"), "confusion")

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        require(personal, "BBSE", "Confusion", name := f"shared.confusion.{self.confusion}")
        counts = personal[name]
        _, logits = task.frozen(overlay(state, personal), stream)
        return Output(torch.cat([adjust(batch, counts, soft=self.confusion == "soft") for batch in logits.split(self.batch_size)]))
