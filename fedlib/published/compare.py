"""Measured results beside the published ones, cell by cell."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pandas as pd

from fedlib.data import is_own
from fedlib.published import IN_MEMORY, KEY, TABLE_COLUMNS, cells, claims_of

REQUIRED = ("setting", "method", "column", "mean", "std", "n_seeds", "run_dataset", "run_model", "status")


def fill(paper: str, table: str, measured: pd.DataFrame, *, reason: str, reasons: Mapping[str, str] = MappingProxyType({})) -> pd.DataFrame:
    """One row per published cell of ``table`` with the columns ``TABLE_COLUMNS``, filled from ``measured``, and after them one row per
    measured cell of a method that the print lacks there.

    measured: columns ``setting, method, column, mean, std, n_seeds, run_dataset, run_model, status``, and ``n``, the number of test images
    behind the cell, where there are any; with ``dataset`` and ``model`` of the published block a row is meant for that block, without
    them for every block of its setting. ``mean`` and ``std`` (over seeds, in every column) are in the unit of the print, percent
    mostly; ``status`` is "ok", "stand-in" or "not run: <reason>". A cell without measurement gets "not run: ..." with what ``reasons``
    has for its data set, model, setting, method or column, the first that matches in this order, and otherwise ``reason``. A method that
    the print lacks has no published value, nor has any where a printed data set's place is taken by a user's. Paired ``units`` go with
    their cells, behind the columns of the file.

    Raises ValueError for absent columns, rows that name no column of a published block or the same cell twice, and reasons under 10
    characters.
    """
    published = cells(paper, table)
    absent = [name for name in REQUIRED if name not in measured]
    if absent:
        raise ValueError(f"measured results of {paper} {table} lack the columns {', '.join(absent)}")
    measured = measured if "n" in measured else measured.assign(n=pd.NA)
    key = [name for name in KEY if name in measured]
    if measured.duplicated(key).any():
        raise ValueError(f"{paper} {table}: measured twice: {_rows(measured[measured.duplicated(key)], key)}")
    place = [name for name in key if name != "method"]
    known = pd.MultiIndex.from_frame(measured[place]).isin(pd.MultiIndex.from_frame(published[place]))
    if not known.all():
        hint = "select the cells of the table first, see fedlib.published.cells"
        raise ValueError(f"{paper} {table} prints no cell {_rows(measured[~known], key)}; {hint}")
    kept = [name for name in IN_MEMORY if name in measured]
    values = [*(name for name in REQUIRED if name not in KEY), "n", *kept]
    frame = published.drop(columns=["mean", "std"]).rename(columns={"mean_value": "published_mean", "std_value": "published_std"})
    printed = pd.MultiIndex.from_frame(measured[key]).isin(pd.MultiIndex.from_frame(published[key]))
    blocks = published[["paper", "table", *(name for name in KEY if name != "method")]].drop_duplicates()
    further = blocks.merge(measured.loc[~printed, key + values], on=place)
    frame = frame.merge(measured.loc[printed, key + values], how="left", on=key, validate="many_to_one")
    missing = frame["status"].isna()
    frame.loc[missing, "status"] = [f"not run: {_reason(cell, reason, reasons)}" for _, cell in frame[missing].iterrows()]
    if len(further):
        frame = pd.concat([frame, further], ignore_index=True)
    # A user's images are not those of the print: nothing is to be set beside it.
    own = frame.loc[frame["run_dataset"].map(lambda name: isinstance(name, str) and is_own(name)), "dataset"]
    frame.loc[frame["dataset"].isin(own), ["published_mean", "published_std"]] = np.nan
    frame = frame.astype({"mean": float, "std": float, "n_seeds": "Int64", "n": "Int64"})
    return frame[[*TABLE_COLUMNS, *kept]]


def _rows(frame: pd.DataFrame, key: list[str]) -> str:
    shown = [" | ".join(map(str, row)) for row in frame[key].head(5).itertuples(index=False)]
    return "; ".join(shown) + (f" and {len(frame) - 5} more" if len(frame) > 5 else "")


def _reason(cell: pd.Series, default: str, reasons: Mapping[str, str]) -> str:
    found = next((reasons[cell[name]] for name in KEY if cell[name] in reasons), None)
    text = (found or default).strip()
    if len(text) < 10:
        raise ValueError(f"say in at least 10 characters why {' | '.join(cell[list(KEY)])} was not run, got {text!r}")
    return text


def beyond_noise(frame: pd.DataFrame) -> pd.Series:
    """Whether ours - published exceeds what seeds explain: "yes", "no", "one seed", "no spread printed" or "" (nothing to compare).

    yes: ``|gap| > 2 * sqrt(std**2 / n + published_std**2 / n_published)``. n_published is 1 where the paper does not state it, the
    careful choice. Columns called ``average`` print a spread over tests and so have none over seeds.
    """
    gap = (frame["mean"] - frame["published_mean"]).abs()
    seeds = frame["n_seeds"].astype(float)
    theirs = frame["paper"].map({paper: claims_of(paper.lower()).SEEDS or 1 for paper in frame["paper"].unique()}).astype(float)
    noise = 2 * np.sqrt(frame["std"] ** 2 / seeds + frame["published_std"] ** 2 / theirs)
    spread = frame["std"].notna() & frame["published_std"].notna() & (frame["column"] != "average")
    cases = [gap.isna(), seeds < 2, ~spread, gap > noise]
    return pd.Series(np.select(cases, ["", "one seed", "no spread printed", "yes"], "no"), frame.index)


def rows_of(frame: pd.DataFrame) -> pd.Index:
    """Rows for a wide view of a contract frame: blocks in the order of the print (only those of dataset, model and setting that
    vary), within a block its methods."""
    blocks = [name for name in ("dataset", "model", "setting") if frame[name].nunique() > 1]
    if not blocks:
        return pd.Index(frame["method"].unique(), name="method")
    rows = frame[[*blocks, "method"]].drop_duplicates()
    rows = rows.iloc[np.argsort(rows.groupby(blocks, sort=False).ngroup(), kind="stable")]
    return pd.MultiIndex.from_frame(rows)
