"""The numbers that the five papers print, as data.

One row per printed cell. ``paper, table, dataset, model, setting, method, column`` name it; ``note`` says how far it can be trusted
(tags ``missing``, ``reconstructed``, ``suspect``, ...). Results of the kit are filed under the same names (``TABLE_COLUMNS``).
"""

from functools import cache
from pathlib import Path

import pandas as pd

from fedlib.names import check_name

PAPERS = ("fedthe", "upfl", "atp", "fedicon", "btfl")
KEY = ("dataset", "model", "setting", "method", "column")
TABLE_COLUMNS = (
    *("paper", "table", *KEY, "mean", "std", "n_seeds"),
    *("published_mean", "published_std", "run_dataset", "run_model", "status", "n"),
)
# What a measured frame may carry besides and no file does: the paired units of its cells.
IN_MEMORY = ("units",)
# Runs behind a printed standard deviation; None where the paper does not say. ATP: from its public code.
SEEDS = {"fedthe": 3, "upfl": 3, "atp": 5, "fedicon": 3, "btfl": None}
NOT_PERCENT = ("avg_rank", "delta", "seconds_per_1000")

_DATA = Path(__file__).parent / "data"


@cache
def _read(name: str) -> pd.DataFrame:
    return pd.read_csv(_DATA / f"{name}.csv", dtype=str, keep_default_na=False)


def cells(paper: str, table: str | None = None) -> pd.DataFrame:
    """Printed cells of ``paper``, or of one ``table`` of it, in the order of the print.

    ``mean`` and ``std`` are the digits as printed ("" where lost or absent); ``mean_value`` and ``std_value`` the same as floats (NaN).
    Raises ValueError for an unknown paper or table.
    """
    frame = _read(check_name(paper, PAPERS, "paper"))
    if table is not None:
        frame = frame[frame["table"] == check_name(table, frame["table"].unique(), f"table of {paper}")]
    values = {f"{name}_value": pd.to_numeric(frame[name].replace("", None)).astype(float) for name in ("mean", "std")}
    return frame.assign(**values).reset_index(drop=True)


def figures(paper: str) -> pd.DataFrame:
    """Figures of ``paper`` that show data: ``paper, figure, kind, shows``."""
    frame = _read("figures")
    return frame[frame["paper"] == check_name(paper, PAPERS, "paper")].reset_index(drop=True)


def upfl_hyperparameters() -> pd.DataFrame:
    """Hyperparameters of UPFL by ``method, dataset, parameter``; ``value`` is text as printed, ``note`` tells where it stands."""
    return _read("upfl_hyperparameters").copy()


def atp_readme() -> pd.DataFrame:
    """Results of one run, of seed 0, in the README of ATP's public code, under the names of its printed cells (``table`` is README): the
    nearest there is to a run of seed 0. They are not in the paper, and no table of it is filled or judged with them."""
    frame = _read("atp_readme")
    return frame.assign(mean_value=frame["mean"].astype(float))


def is_percent(table: str, column: str) -> bool:
    """Whether cells of this column are percentages, and not ranks, points of difference, seconds or (appendix tables) counts."""
    return not table.startswith("AT") and column not in NOT_PERCENT
