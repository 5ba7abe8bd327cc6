"""The accuracies of every client behind the cells of a result table, as a frame for a file: what pairs and verdicts are made of.

A table says what a method reaches, and its deviation over seeds; how far two methods differ is told by the same client's images under both.
"""

import numpy as np
import pandas as pd

from fedlib.published import KEY
from fedlib.published.units import Units

# The first name the printed cell, RAN what was run. cut_*: on the first images of the streams, where some method saw no others; partial:
# the accuracy itself is of these. repeats: of the cell (``Units.repeats``).
RAN = ("run_dataset", "run_model", "status")
REPEATS = ("repeats", "cut_repeats")
COLUMNS = (*KEY, "seed", "client", "accuracy", "weight", "n", "cut_accuracy", "cut_weight", "cut_n", "partial", *REPEATS, *RAN)


def by_client(frame: pd.DataFrame) -> pd.DataFrame:
    """One row (``COLUMNS``) per cell, seed and client of the cells whose paired ``units`` are known; accuracies in percent, ``weight`` of
    the client among those of its seed, ``n`` test images, and what was run."""
    rows = []
    for cell in frame.to_dict("records"):
        units = cell.get("units")
        if not isinstance(units, Units):
            continue
        nothing = np.full(len(units.keys), np.nan)
        cut = units.cut or Units(units.keys, nothing, nothing, nothing)
        values = zip(units.keys, units.value, units.weight, units.n, cut.value, cut.weight, cut.n, strict=True)
        told = (units.partial, units.repeats, units.cut.repeats if units.cut else np.nan, *(cell[n] for n in RAN))
        rows += [(*(cell[n] for n in KEY), *key, *numbers, *told) for key, *numbers in values]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"n": "Int64", "cut_n": "Int64"})


def with_units(frame: pd.DataFrame, clients: pd.DataFrame) -> pd.DataFrame:
    """A result table with the paired ``units`` of its cells from the rows of ``by_client``; without ``repeats``, which older files lack,
    as if clients shared no image. Raises ValueError where a cell's mean is not that of its clients."""
    found = {}
    clients = clients.assign(**{name: 1.0 for name in REPEATS if name not in clients})
    for key, rows in clients.groupby(list(KEY), sort=False):
        keys = tuple(zip(rows["seed"], rows["client"], strict=True))
        whole, first = ([rows[f"{kind}{name}"].to_numpy(float) for name in ("accuracy", "weight", "n")] for kind in ("", "cut_"))
        repeats, cut_repeats = (float(rows[name].iloc[0]) for name in REPEATS)
        cut = None if np.isnan(first[0]).all() else Units(keys, *first, partial=True, repeats=cut_repeats)
        found[key] = Units(keys, *whole, cut=cut, partial=bool(rows["partial"].all()), repeats=repeats)
    units = [found.get(tuple(row[name] for name in KEY)) for row in frame.to_dict("records")]
    for cell, known in zip(frame.to_dict("records"), units, strict=True):
        if known is not None and not abs(known.mean - cell["mean"]) < 0.01:
            place = " ".join(cell[name] for name in ("table", *KEY))
            raise ValueError(f"{place} is {cell['mean']:.2f}, and the mean of its clients {known.mean:.2f}: they are of another run")
    return frame.assign(units=pd.Series(units, frame.index, dtype=object))
