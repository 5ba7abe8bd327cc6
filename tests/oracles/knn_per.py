"""kNN-Per one query at a time."""

import math


def blend(query, keys, key_labels, logits, *, k, scale, mix):
    result = []
    for feature, row in zip(query, logits, strict=True):
        distances = sorted(
            (math.sqrt(sum((a - b) ** 2 for a, b in zip(feature, key, strict=True))), int(label))
            for key, label in zip(keys, key_labels, strict=True)
        )[:k]
        weights = [math.exp(-distance / (len(feature) * scale)) for distance, _ in distances]
        histogram = [0.0] * len(row)
        for weight, (_, label) in zip(weights, distances, strict=True):
            histogram[label] += weight / sum(weights)
        result.append([mix * z + (1 - mix) * p for z, p in zip(row, histogram, strict=True)])
    return result
