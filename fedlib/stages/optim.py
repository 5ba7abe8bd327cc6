"""SGD and Adam as in-place steps on lists of tensors, so that a prefix of stacked clients can be updated alone.

Both follow torch.optim (coupled L2 weight decay); a test compares them with it step by step.
"""

import torch
from torch import Tensor

from fedlib.core import Local


class Optimizer:
    """Update rule of one phase over parameters stacked along the first dimension or single.

    parameters: full tensors; decay: whether weight decay applies to each of them. Moments start at zero and live as long as the phase.
    """

    def __init__(self, local: Local, parameters: list[Tensor], decay: list[bool]):
        self.local = local
        self.decay = decay
        self.moments = [torch.zeros_like(p) for p in parameters] if local.momentum or local.optimizer == "adam" else None
        self.squares = [torch.zeros_like(p) for p in parameters] if local.optimizer == "adam" else None
        # Where gradients with weight decay are written: fresh memory of a stack's size costs page faults at every step.
        self.sums = [torch.empty_like(p) for p in parameters] if local.weight_decay else None
        self.count = 0

    @torch.no_grad()
    def step(self, parameters: list[Tensor], gradients: list[Tensor], rows: int | None = None, *, epoch: int = 0) -> None:
        """Move ``parameters`` (views of the first ``rows`` stacked clients, or whole tensors for None) along ``gradients``; epoch: of the
        phase, which tells the rate."""
        lr = self.local.rate(epoch)
        self.count += 1
        weight_decay = self.local.weight_decay
        if weight_decay:
            rule = zip(gradients, parameters, _prefix(self.sums, rows), self.decay, strict=True)
            gradients = [torch.add(g, p, alpha=weight_decay, out=s) if d else g for g, p, s, d in rule]
        if self.local.optimizer == "adam":
            moments, squares = _prefix(self.moments, rows), _prefix(self.squares, rows)
            torch._foreach_lerp_(moments, gradients, 0.1)
            torch._foreach_mul_(squares, 0.999)
            torch._foreach_addcmul_(squares, gradients, gradients, 0.001)
            denominator = torch._foreach_sqrt(squares)
            torch._foreach_div_(denominator, (1 - 0.999**self.count) ** 0.5)
            torch._foreach_add_(denominator, 1e-8)
            torch._foreach_addcdiv_(parameters, moments, denominator, -lr / (1 - 0.9**self.count))
            return
        if self.moments:
            moments = _prefix(self.moments, rows)
            torch._foreach_mul_(moments, self.local.momentum)
            torch._foreach_add_(moments, gradients)
            gradients = moments
        torch._foreach_add_(parameters, gradients, alpha=-lr)


def _prefix(tensors: list[Tensor], rows: int | None) -> list[Tensor]:
    """The first ``rows`` of each tensor; the whole tensors, which may be scalars, for None."""
    return tensors if rows is None else [t[:rows] for t in tensors]
