"""T3A by rebuilding, filtering and summing the whole support set at every batch; NumPy only."""

import numpy as np


def softmax_entropy(logits):
    probabilities = np.exp(logits - logits.max())
    probabilities /= probabilities.sum()
    return -sum(p * np.log(p) for p in probabilities if p > 0)


def unit(vector):
    length = np.sqrt((vector**2).sum())
    return vector / length if length > 0 else vector


def predict(features, weight, *, filter_k, bias=None, batch_size=1, initial_bias=True):
    classes = len(weight)
    bias = np.zeros(classes) if bias is None else bias

    def support(vector, shift):
        logits = weight @ vector + shift
        return vector, int(np.argmax(logits)), softmax_entropy(logits)

    supports = [support(row, bias if initial_bias else 0 * bias) for row in weight]
    scores = np.zeros((len(features), classes))
    for start in range(0, len(features), batch_size):
        batch = features[start : start + batch_size]
        supports = supports + [support(row, bias) for row in batch]
        if filter_k is not None and filter_k > 0:
            kept = []
            for c in range(classes):
                # sorted() is stable: equal entropies keep the order in which they came.
                kept += sorted((s for s in supports if s[1] == c), key=lambda s: s[2])[:filter_k]
            supports = kept
        for c in range(classes):
            prototype = np.zeros(features.shape[1])
            for vector, label, _ in supports:
                if label == c:
                    prototype = prototype + unit(vector)
            prototype = unit(prototype)
            for i, row in enumerate(batch):
                scores[start + i, c] = row @ prototype
    return scores
