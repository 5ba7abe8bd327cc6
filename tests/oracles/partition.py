"""Sample-by-sample versions of two partitions."""

import numpy as np


def step(labels, majors, factor, rng):
    """Hand out the shuffled samples of every class one at a time: sample i goes to the client whose interval holds it."""
    parts = [[] for _ in majors]
    for c in range(max(labels) + 1):
        members = [i for i, label in enumerate(labels) if label == c]
        rng.shuffle(members)
        weights = [1 + (factor - 1) * list(classes).count(c) for classes in majors]
        reached, start = 0.0, 0
        for client, weight in enumerate(weights):
            reached += weight / sum(weights)
            end = int(np.floor(reached * len(members) + 0.5))
            parts[client].extend(members[start:end])
            start = end
    return parts


def natural_split(histograms, shifted_labels):
    """Deal a shifted set client by client, taking the first samples of each class that are left."""
    n_clients, n_classes = len(histograms), len(histograms[0])
    left = [[i for i, label in enumerate(shifted_labels) if label == c] for c in range(n_classes)]
    parts = []
    for k in range(n_clients):
        part = []
        for c in range(n_classes):
            total = sum(histograms[j][c] for j in range(n_clients))
            count = int(histograms[k][c] * (len(shifted_labels) / n_classes) / total) if total else 0
            part += left[c][:count]
            left[c] = left[c][count:]
        parts.append(part)
    return parts
