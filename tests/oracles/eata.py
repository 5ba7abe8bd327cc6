"""EATA's two filters and weights image by image (its public code, section 3)."""

import numpy as np


def batch_loss(shares: np.ndarray, mean: np.ndarray | None, margin: float, redundancy: float) -> tuple[float | None, np.ndarray | None]:
    """Softmax outputs [b, C] of a batch and the running mean -> (loss or None, the new running mean)."""
    limit = margin * np.log(shares.shape[1])
    taught, losses = [], []
    for p in shares:
        entropy = -(p * np.log(p)).sum()
        if entropy >= limit:
            continue
        if mean is not None and abs(p @ mean / (np.linalg.norm(p) * np.linalg.norm(mean))) >= redundancy:
            continue
        taught.append(p)
        losses.append(np.exp(limit - entropy) * entropy)
    if not taught:
        return None, mean
    new = np.mean(taught, axis=0)
    return float(np.mean(losses)), new if mean is None else 0.9 * mean + 0.1 * new
