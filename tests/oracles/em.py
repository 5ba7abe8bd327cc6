"""EM label-shift correction with loops over samples and classes."""

import numpy as np


def adjust(probabilities, iterations):
    n, classes = probabilities.shape
    adjusted = probabilities.copy()
    for _ in range(iterations):
        prior = [sum(adjusted[i, c] for i in range(n)) / n for c in range(classes)]
        result = np.zeros_like(probabilities)
        for i in range(n):
            total = sum(probabilities[i, c] * prior[c] for c in range(classes))
            for c in range(classes):
                result[i, c] = probabilities[i, c] * prior[c] / total
        adjusted = result
    return adjusted
