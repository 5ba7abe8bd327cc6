"""Losses on logits. Each takes ``weights`` [n] that sum to one (None: the plain mean), so that padded rows of a stack count nothing."""

import torch
from torch import Tensor
from torch.nn import functional


def cross_entropy(logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean (or weighted sum) of -log softmax(logits)[label]; logits [n, C], labels integer [n] -> scalar."""
    losses = functional.cross_entropy(logits, labels.long(), reduction="none")
    return losses.mean() if weights is None else (losses * weights).sum()


def balanced_softmax(logits: Tensor, labels: Tensor, class_counts: Tensor, weights: Tensor | None = None) -> Tensor:
    """Balanced Softmax as FedTHE trains with it: cross-entropy of logits + log(counts + 1).

    class_counts: raw counts [C] of the client's training part, zeros allowed. Not applied at test time.
    """
    return cross_entropy(logits + torch.log(class_counts.to(logits.dtype) + 1), labels, weights)
