"""FedICON's contrastive losses as loops over anchors, positives and contrasted views (equations 4 and 7)."""

import numpy as np


def loss(features: np.ndarray, labels: list[int] | None, temperature: float, base: float | None) -> float:
    """features [B, V, d]; labels None: positives are the other views of the same image."""
    views = [(b, v) for b in range(len(features)) for v in range(features.shape[1])]
    unit = {i: features[i] / np.linalg.norm(features[i]) for i in views}
    group = {i: i[0] if labels is None else labels[i[0]] for i in views}
    total = 0.0
    for i in views:
        contrast = sum(np.exp(unit[i] @ unit[a] / temperature) for a in views if a != i)
        positives = [p for p in views if p != i and group[p] == group[i]]
        total += sum(-np.log(np.exp(unit[i] @ unit[p] / temperature) / contrast) for p in positives) / len(positives)
    return total / len(views) * (1 if base is None else temperature / base)
