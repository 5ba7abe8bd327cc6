"""Euclidean projection on the probability simplex, sort-based (Held, Wolfe & Crowder 1974; Duchi et al., ICML 2008)."""

import torch
from torch import Tensor


def project_to_simplex(points: Tensor) -> Tensor:
    """Nearest points of {q >= 0, sum q = 1}; points [..., K], finite -> same shape and dtype.

    The solution is max(points - t, 0), where t is fixed by the entries that stay positive.
    """
    descending = points.sort(dim=-1, descending=True).values
    rank = torch.arange(1, points.shape[-1] + 1, dtype=points.dtype, device=points.device)
    thresholds = (descending.cumsum(-1) - 1) / rank
    positive = (descending > thresholds).sum(-1, keepdim=True)
    return (points - thresholds.gather(-1, positive - 1)).clamp_min(0)
