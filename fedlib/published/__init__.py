"""The numbers that the five papers print, as data.

One row per printed cell. ``paper, table, dataset, model, setting, method, column`` name it; ``note`` says how far it can be trusted
(tags ``missing``, ``reconstructed``, ``suspect``, ...). Results of the kit are filed under the same names (``TABLE_COLUMNS``).
"""

import importlib
from functools import cache
from importlib.resources import files
from types import ModuleType

import pandas as pd

from fedlib.tools.names import check_name

# Those of the package: the folders that hold a paper's print.
PAPERS = tuple(sorted(folder.name for folder in files("fedlib.papers").iterdir() if (folder / "printed.csv").is_file()))
KEY = ("dataset", "model", "setting", "method", "column")
TABLE_COLUMNS = (
    *("paper", "table", *KEY, "mean", "std", "n_seeds"),
    *("published_mean", "published_std", "run_dataset", "run_model", "status", "n"),
)
# What a measured frame may carry besides and no file does: the paired units of its cells.
IN_MEMORY = ("units",)
NOT_PERCENT = ("avg_rank", "delta", "seconds_per_1000")

# Papers of which ``know`` was told: name -> the package that holds their folder.
_PACKAGES = {name: f"fedlib.papers.{name}" for name in PAPERS}


def know(paper: str, package: str) -> None:
    """Let everything here find ``paper`` in ``package``: its ``printed.csv`` and the module ``claims``. Raises ValueError for a name that
    another package has taken."""
    if _PACKAGES.get(paper, package) != package:
        raise ValueError(f"paper {paper!r} lies in {_PACKAGES[paper]}: give the one in {package} another name")
    _PACKAGES[paper] = package


def claims_of(paper: str) -> ModuleType:
    """The module ``claims`` of a paper: ``CLAIMS``, ``FIGURE_COLUMNS``, ``OURS`` (how the names of its own methods begin) and ``SEEDS``
    (runs behind a printed standard deviation; None where the paper does not say)."""
    return importlib.import_module(f"{_PACKAGES[check_name(paper, _PACKAGES, 'paper')]}.claims")


@cache
def _read(paper: str) -> pd.DataFrame:
    file = files(_PACKAGES[check_name(paper, _PACKAGES, "paper")]) / "printed.csv"
    if not file.is_file():
        return pd.DataFrame(columns=["paper", "table", *KEY, "mean", "std", "note"])
    return pd.read_csv(file, dtype=str, keep_default_na=False)


def cells(paper: str, table: str | None = None) -> pd.DataFrame:
    """Printed cells of ``paper``, or of one ``table`` of it, in the order of the print; none of a study without a print.

    ``mean`` and ``std`` are the digits as printed ("" where lost or absent); ``mean_value`` and ``std_value`` the same as floats (NaN).
    Raises ValueError for an unknown paper or table.
    """
    frame = _read(paper)
    if table is not None:
        frame = frame[frame["table"] == check_name(table, frame["table"].unique(), f"table of {paper}")]
    values = {f"{name}_value": pd.to_numeric(frame[name].replace("", None)).astype(float) for name in ("mean", "std")}
    return frame.assign(**values).reset_index(drop=True)


def is_percent(cells: pd.DataFrame) -> pd.Series:
    """Which ``cells`` (table, column) are percentages, and not ranks, points of difference, seconds or (appendix tables) counts."""
    return ~cells["table"].astype(str).str.startswith("AT") & ~cells["column"].isin(NOT_PERCENT)
