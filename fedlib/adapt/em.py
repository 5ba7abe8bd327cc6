"""EM label-shift correction (Saerens et al., 2002) in ATP's form: the class prior of each test batch is re-estimated from its own outputs.

Starting from the model's probabilities, alternate pi = batch mean of p and p ~ p0 pi. The source prior counts as uniform: there is no
division by it. Nothing is carried from one batch to the next.
"""

from torch import Tensor


def adjust(probabilities: Tensor, *, iterations: int) -> Tensor:
    """Probabilities [N, C] of one batch after ``iterations`` EM steps (0: unchanged); rows sum to one. N >= 1."""
    if iterations < 0:
        raise ValueError(f"EM: iterations must be 0 or more, got {iterations}")
    adjusted = probabilities
    for _ in range(iterations):
        joint = probabilities * adjusted.mean(0)
        adjusted = joint / joint.sum(1, keepdim=True)
    return adjusted
