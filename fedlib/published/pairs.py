"""Paired differences of methods: the same clients, images and seeds under both."""

import numpy as np
import pandas as pd

from fedlib.published.comparisons import Quantity, chance_of
from fedlib.published.units import has_units
from fedlib.tools.names import check_name

BLOCK = ["table", "dataset", "model", "setting", "column"]
TOLD = ["method", "against", "difference", "margin", "p", "p_holm", "clients", "seeds", "n", "cut", "run_dataset", "run_model", "status"]


def pairs(frame: pd.DataFrame, against: str) -> pd.DataFrame:
    """How far the methods of a result table with paired ``units`` are ahead of ``against``, a row for each cell.

    ``difference`` (points) and its ``margin``, one standard error; ``p``: two-sided, Student's t, the larger of that over clients and that
    over seeds (NaN: not known), and ``p_holm``, corrected for the methods of the column; ``clients``, ``seeds`` and ``n`` (images; from
    files, those that clients share each time) that both have; ``cut``: on the first images of the streams; ``run_dataset``, ``run_model``
    and ``status``: a stand-in where one of the two is. One seed speaks of one training.

    Methods on other images or networks than ``against`` have no row. Raises ValueError for a method that was not run, and where no cell's
    clients are known.
    """
    cells = frame[has_units(frame)]
    if cells.empty:
        raise ValueError("no cell's clients are known: the table has no file <table>_clients.csv beside it, or nothing was run")
    check_name(against, cells["method"].unique(), "method with clients")
    rows = []
    for place, block in cells.groupby(BLOCK, sort=False):
        other = block[block["method"] == against]
        found = [_pair(cell, other.iloc[0]) for _, cell in block[block["method"] != against].iterrows()] if len(other) else []
        found = [dict(zip(BLOCK, place, strict=True)) | row for row in found if row]
        for row, p in zip(found, holm(np.array([row["p"] for row in found])), strict=True):
            rows.append(row | {"p_holm": p})
    return pd.DataFrame(rows, columns=[*BLOCK, *TOLD])


def _pair(cell: pd.Series, other: pd.Series) -> dict:
    """One row, empty where the two share no client or no image, or were run on other images or networks."""
    if any(cell[name] != other[name] for name in ("run_dataset", "run_model")):
        return {}
    difference = Quantity(cell["mean"], units=cell["units"]) - Quantity(other["mean"], units=other["units"])
    if difference.units is None:
        return {}
    units, ran = difference.units, ["run_dataset", "run_model"]
    status = "stand-in" if "stand-in" in (cell["status"], other["status"]) else cell["status"]
    keys, images = np.array(units.keys, dtype=object), units.images
    p = np.minimum(1.0, 2 * chance_of(-abs(difference.mean), difference))
    return {
        **{"method": cell["method"], "against": other["method"], "difference": difference.mean, "margin": difference.margin},
        **{"p": p, "clients": len(set(keys[:, 1])), "seeds": len(set(keys[:, 0]))},
        **{"n": images, "cut": units.partial, **cell[ran].to_dict(), "status": status},
    }


def holm(p: np.ndarray) -> np.ndarray:
    """P-values of a family, corrected by Holm's step-down procedure; NaN for what was not tested."""
    values, adjusted = np.asarray(p, dtype=float), np.full(len(p), np.nan)
    order = np.argsort(values, kind="stable")[: np.isfinite(values).sum()]
    steps = values[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(steps)) if len(order) else steps
    return adjusted
