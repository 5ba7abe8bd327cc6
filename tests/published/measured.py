"""Measured cells with the accuracies of their clients."""

import numpy as np
import pandas as pd

from fedlib.published.units import Units

PLACE = {"table": "T1", "dataset": "cifar10", "model": "cnn", "setting": "Dir(0.1)"}
RAN = {"run_dataset": "digits", "run_model": "cnn", "status": "ok"}


def units(seeds, *, cut=None, partial=False, weight=None):
    """Accuracies of the clients of every seed."""
    keys = tuple((s, c) for s, clients in enumerate(seeds) for c in range(len(clients)))
    value = np.concatenate([np.asarray(clients, dtype=float) for clients in seeds])
    weight = np.ones(len(value)) if weight is None else np.asarray(weight, dtype=float)
    return Units(keys, value, weight, np.full(len(value), 2 if partial else 50), cut and units(cut, partial=True), partial)


def frame(**cells):
    rows = [PLACE | RAN | {"method": m, "column": "ooc", "mean": np.nan if u is None else u.mean, "units": u} for m, u in cells.items()]
    return pd.DataFrame(rows)
