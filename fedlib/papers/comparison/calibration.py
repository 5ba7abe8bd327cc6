"""Whether confidence is what it says: the expected calibration error (Naeini et al., AAAI 2015; Guo et al., ICML 2017)."""

from collections.abc import Iterable

import numpy as np


def expected_calibration_error(confidence: Iterable[np.ndarray], right: Iterable[np.ndarray], bins: int = 15) -> float:
    """Mean over bins of equal width, by their share of the samples, of |accuracy - mean confidence|, in [0, 1]; a confidence on an edge is
    of the bin below it. confidence, right (0 or 1): arrays of samples, which are pooled. NaN without samples."""
    sure, hit = (np.concatenate([np.ravel(part) for part in parts]).astype(float) for parts in (confidence, right))
    if not len(sure):
        return float("nan")
    place = np.clip(np.ceil(sure * bins).astype(int) - 1, 0, bins - 1)
    return float(np.abs(np.bincount(place, hit - sure, bins)).sum() / len(sure))
