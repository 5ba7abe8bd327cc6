"""Sample-by-sample versions of three partitions."""

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


def shards(labels, n_clients, per_client, rng, distinct, shuffler):
    """UPFL's shards: equal blocks of every class in order, then what is left over one by one to the first of them."""
    n_classes = max(labels) + 1
    deck = [shard % n_classes for shard in range(n_clients * per_client)]
    left = []
    for c in range(n_classes):
        n_shards = deck.count(c)
        members = [i for i, label in enumerate(labels) if label == c]
        size = len(members) // n_shards
        blocks = [members[k * size : (k + 1) * size] for k in range(n_shards)]
        for k, extra in enumerate(members[n_shards * size :]):
            blocks[k].append(extra)
        left.append(blocks)
    if not distinct:
        shuffler.shuffle(deck)
    parts = []
    for client in range(n_clients):
        classes = [] if distinct else deck[client * per_client : (client + 1) * per_client]
        while len(classes) < per_client:
            free = [c for c in range(n_classes) if len(left[c]) > classes.count(c)]
            classes += list(rng.choice(free, min(per_client - len(classes), len(free)), replace=False))
        part = []
        for c in classes:
            part += left[c].pop(rng.choice(len(left[c]), replace=False))
        parts.append(part)
    return parts
