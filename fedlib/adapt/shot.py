"""SHOT (Liang et al., ICML 2020) as ATP compares with it: information maximisation moves all but the last layer, on batch statistics.

Per batch: predict with batch statistics in batch norm, then one plain gradient step on H + sum_c q_c log(q_c) + beta CE(logits, pseudo-
labels), H the mean entropy and q the mean softmax of the batch. The answer is what was predicted *before* the step. Carried over the
stream: the weights. Pseudo-labels come from the batch alone: the softmax, each column summing to one, times the features gives one
prototype per class; the nearest prototype labels a sample.

Paper and code: SHOT takes the cosine distance, two iterations and the whole target set; ATP's code Euclidean distance, one iteration, one
batch, and beta = 0 by default, that is no pseudo-labels.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedlib.adapt.batchwise import entropy, step_after
from fedlib.core import Local, Output, State, Stream, Task
from fedlib.states import overlay


def information_loss(features: Tensor, logits: Tensor, beta: float) -> Tensor:
    """features [n, d], logits [n, C] -> scalar."""
    mean = logits.softmax(1).mean(0)
    loss = entropy(logits) + (mean * (mean + 1e-9).log()).sum()
    return loss + beta * cross_entropy(logits, pseudo_labels(features, logits)) if beta else loss


@torch.no_grad()
def pseudo_labels(features: Tensor, logits: Tensor) -> Tensor:
    """Nearest class prototype of the batch for every sample: int64 [n]."""
    shares = logits.softmax(1)
    prototypes = (shares / shares.sum(0)).T @ features
    # A class whose probability is 0 for all has no prototype.
    return torch.cdist(features, prototypes).nan_to_num(torch.inf).argmin(1)


@dataclass(frozen=True)
class SHOT:
    """lr: step size; beta >= 0: weight of the pseudo-labels; batch_size: images per step."""

    lr: float = 1e-3
    beta: float = 0.0
    batch_size: int = 20
    version: int = 1
    needs_batch_norm: ClassVar[bool] = True

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        names = [f"extractor.{name}" for name, _ in task.model.extractor.named_parameters()]
        local = Local(lr=self.lr, weight_decay=0.0, batch_size=self.batch_size)
        model = overlay(state, personal)
        return Output(step_after(task, model, stream, names, lambda features, logits: information_loss(features, logits, self.beta), local))
