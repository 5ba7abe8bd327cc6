"""Random draws that do not depend on which other samples are drawn for.

All random numbers of one view form one row of uniforms, and rows are drawn in order: first all views of sample 0, then of sample 1.
With one generator, drawing in pieces equals drawing at once and later samples never move earlier ones. With one generator for each
sample (for example ``fedlib.tools.seeding.generator(seed, "memo", i)``), a sample's views depend on nothing but its own generator, so
stacking samples, or taking several optimiser steps on some of them, changes no draw.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

Generators = torch.Generator | Sequence[torch.Generator]


def uniforms(generator: Generators, n_samples: int, n_views: int, width: int) -> Tensor:
    """Uniforms in [0, 1), float64 [n_samples * n_views, width] on the CPU, row i * n_views + v for view v of sample i.

    generator: one for all samples, or a sequence with one for each. Raises ValueError when the sequence has another length.
    """
    if isinstance(generator, torch.Generator):
        return torch.rand(n_samples * n_views, width, generator=generator, dtype=torch.float64)
    if len(generator) != n_samples:
        raise ValueError(f"{len(generator)} generators for {n_samples} samples; pass one generator, or one per sample")
    rows = [torch.rand(n_views, width, generator=one, dtype=torch.float64) for one in generator]
    return torch.cat(rows) if rows else torch.empty(0, width, dtype=torch.float64)


def between(uniform: Tensor, low: float, high: float) -> Tensor:
    """Uniforms moved to [low, high)."""
    return low + (high - low) * uniform


def integers(uniform: Tensor, n: int) -> Tensor:
    """Uniforms -> int64 in 0..n-1, each equally likely."""
    return (uniform * n).long()
