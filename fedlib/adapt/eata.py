"""EATA (Niu et al., ICML 2022): Tent that learns from few images and stays close to where it began (FedICON section 5.1).

Per batch, on batch statistics, with the answer given before the step as in Tent. An image teaches if it is reliable (entropy E below
E0 = ``margin`` ln C; it then weighs exp(E0 - E), a constant in the gradient) and not redundant (|cosine| of its softmax p with the
running mean m below ``redundancy``; m <- 0.9 m + 0.1 mean of the taught p, from the first batch with a reliable image, which is not
tested for it). Added to the mean of the weighted entropies: ``anchor`` times sum F_j (theta_j - theta_j at the start)^2, F from
``fedlib.personalize.fisher``. Without any teaching image there is no step. Carried over the stream: batch norm's weights and biases,
Adam's moments, m.

Paper and code: 0.4 for the redundancy and 1 for the anchor are EATA's values for CIFAR-10. Its defaults are ImageNet's (0.05, 2000): with
ten classes hardly any cosine is below 0.05, and nothing would be learned after the first batch.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from fedlib.adapt.batchwise import entropies, step_after
from fedlib.adapt.tent import affine, check_affine
from fedlib.core import Local, Output, State, Stream, Task
from fedlib.states import overlay, part


class Filter:
    """The two filters and the running mean of one stream; calling it with logits [b, C] gives the loss, or None where no image teaches."""

    def __init__(self, margin: float, redundancy: float, weighted: bool = True):
        self.margin, self.redundancy, self.weighted = margin, redundancy, weighted
        self.mean: Tensor | None = None

    def __call__(self, logits: Tensor) -> Tensor | None:
        log_shares = logits.log_softmax(1)
        shares = log_shares.exp()
        entropy = entropies(log_shares)
        limit = self.margin * math.log(logits.shape[1])
        teaches = entropy.detach() < limit
        if self.mean is not None:
            teaches &= functional.cosine_similarity(shares.detach(), self.mean[None]).abs() < self.redundancy
        if not teaches.any():
            return None
        taught = shares[teaches].detach().mean(0)
        self.mean = taught if self.mean is None else 0.9 * self.mean + 0.1 * taught
        kept = entropy[teaches]
        return ((limit - kept.detach()).exp() * kept if self.weighted else kept).mean()


@dataclass(frozen=True)
class EATA:
    """margin: of reliability, in units of ln C; redundancy: largest cosine, inf for no test; anchor >= 0: strength of the regulariser;
    weighted: reliable images by their certainty. lr: of Adam, without weight decay; batch_size: images that are answered at once."""

    lr: float = 1e-3
    batch_size: int = 32
    margin: float = 0.4
    redundancy: float = 0.4
    anchor: float = 1.0
    weighted: bool = True
    version: int = 1
    needs_batch_norm: ClassVar[bool] = True
    check_network = staticmethod(check_affine)

    def __post_init__(self):
        if self.margin <= 0 or self.redundancy <= 0 or self.anchor < 0:
            raise ValueError(f"out of range: {self} (margin > 0, redundancy > 0, anchor >= 0)")

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        names, model, fisher = affine(task.model), overlay(state, personal), part(personal, "fisher.")
        if self.anchor and not fisher:
            raise ValueError(
                "EATA's regulariser needs the Fisher information of a client's images: personalize with WithFisher, or anchor=0"
            )
        teach = Filter(self.margin, self.redundancy, self.weighted)

        def penalty(moved: State) -> Tensor | float:
            return self.anchor * sum((fisher[n] * (moved[n] - model[n]).square()).sum() for n in names) if self.anchor else 0.0

        local = Local("adam", self.lr, weight_decay=0.0, batch_size=self.batch_size)
        return Output(step_after(task, model, stream, names, lambda features, logits: teach(logits), local, penalty))
