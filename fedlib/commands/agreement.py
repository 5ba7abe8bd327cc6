"""A picture of measured against printed accuracies: ``fedlib agreement figures/mine/fedthe figures/other/T2.csv --out agreement.png``.

A folder stands for all of its tables with accuracies, a file for one. Tables of one name share a panel: of a cell that several runs have,
the first's. Cells that were not run, or that the print does not have, are left out.
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from fedlib.commands.folders import make_picture, of_papers, reader, record, result_tables
from fedlib.plots import agreement as picture
from fedlib.published import KEY, claims_of, is_percent
from fedlib.published.accounting import CLOSE, near
from fedlib.tools.names import counted

CELLS = ["paper", "table", *KEY]
MOST = 6  # tests that have a colour of their own


def agreement(*runs: str | Path) -> Figure:
    """The figure of these folders and table files, a panel for each table of a paper. Raises FileNotFoundError for what is not there or
    did not finish, ValueError where no cell has both numbers."""
    found = [frame.assign(date=record(folder)["date"][:10]) for folder, frame in _tables(runs)]
    cells = pd.concat(found, ignore_index=True).dropna(subset=["mean", "published_mean"]).drop_duplicates(CELLS)
    cells = cells[is_percent(cells)]
    if cells.empty:
        raise ValueError("no accuracy was both run and printed: give runs of a paper on its data sets or on stand-ins for them")
    panels = {}
    for (paper, table), frame in cells.groupby(["paper", "table"], sort=False):
        ours = claims_of(paper.lower()).OURS
        own = frame["method"].str.startswith(ours)
        heading = f"{paper} {table}: {near(frame).sum()} of {len(frame)} near\n{_facts(frame)}"
        panels[heading] = frame.assign(own=own, stand_in=frame["status"] == "stand-in", test=_tests(frame))
    return picture.agreement(
        panels,
        close=CLOSE,
        title="Printed and measured accuracies\n"
        f"Grey: within {CLOSE} points of the print. Near: within that, or within two standard deviations, printed and ours together. "
        "Stars: the paper's own methods. Hollow: a stand-in for the paper's data or network.",
    )


def _tables(runs: Sequence[str | Path]) -> list[tuple[Path, pd.DataFrame]]:
    """(folder, table) of every table meant, but for those on the first images of the streams."""
    found = []
    for run in map(Path, runs):
        folder, name = (run.parent, run.stem) if run.suffix == ".csv" else (run, None)
        frames = {table: frame for table, frame in result_tables(folder).items() if not table.endswith("_cut")}
        if name and name not in frames:
            raise FileNotFoundError(f"{run} is no table of whole streams: {folder} holds {', '.join(sorted(frames))}")
        found += [(folder, frames[table]) for table in ([name] if name else frames)]
    return found


def _tests(frame: pd.DataFrame) -> pd.Series:
    """What tells the tests of a table apart: those of setting and column that differ, the columns alone where these are too many."""
    parts = [name for name in ("dataset", "model", "setting", "column") if frame[name].nunique() > 1] or ["column"]
    named = frame[parts].agg(" ".join, axis=1)
    return named if named.nunique() <= MOST else frame["column"]


def _facts(frame: pd.DataFrame) -> str:
    least, most = int(frame["n_seeds"].min()), int(frame["n_seeds"].max())
    seeds = counted(most, "seed") if least == most else f"{least} to {most} seeds"
    dates = sorted(frame["date"].unique())
    return f"{', '.join(frame['run_dataset'].unique())}, {seeds}, {' to '.join(dict.fromkeys((dates[0], dates[-1])))}"


def main(arguments: list[str] | None = None) -> None:
    parser = of_papers(reader("agreement", __doc__, "figures/mine/fedthe --out near.svg", out=Path("agreement.png")))
    options = parser.parse_args(arguments)
    make_picture(options.out, lambda: agreement(*options.folders))
