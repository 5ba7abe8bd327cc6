"""EM label-shift correction (Saerens et al., 2002) in ATP's form: the class prior of each test batch is re-estimated from its own outputs.

Starting from the model's probabilities, alternate pi = batch mean of p and p ~ p0 pi. The source prior counts as uniform: there is no
division by it. Nothing is carried from one batch to the next.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedlib.core import Output, State, Stream, Task
from fedlib.states import overlay


def adjust(probabilities: Tensor, *, iterations: int) -> Tensor:
    """Probabilities [N, C] of one batch after ``iterations`` EM steps (0: unchanged); rows sum to one. N >= 1."""
    if iterations < 0:
        raise ValueError(f"EM: iterations must be 0 or more, got {iterations}")
    adjusted = probabilities
    for _ in range(iterations):
        joint = probabilities * adjusted.mean(0)
        adjusted = joint / joint.sum(1, keepdim=True)
    return adjusted


@dataclass(frozen=True)
class EM:
    """iterations: EM steps per batch (ATP's code: 2); batch_size: images whose prior is estimated together."""

    iterations: int = 2
    batch_size: int = 20
    version: int = 2

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        """Log-probabilities of the client's model, adjusted batch by batch."""
        _, logits = task.frozen(overlay(state, personal), stream)
        adjusted = [adjust(batch.softmax(1), iterations=self.iterations) for batch in logits.split(self.batch_size)]
        return Output(torch.cat(adjusted).clamp_min(torch.finfo(logits.dtype).tiny).log())
