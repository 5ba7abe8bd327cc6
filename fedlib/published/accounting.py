"""How near a run comes to the print: counted cells, gaps, and whether the methods stand in the printed order.

The account of a results folder is ``account.csv`` and a page, ``account.md``. Why a cell is far off is for a person to find out, by an
experiment that changes one thing: ``causes.csv`` beside the tables (columns table, setting, method, column, cause; an empty field stands
for all) holds what was found, and the page takes it over; a cell without an entry is listed as unexplained.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from fedlib.published import cells, is_percent
from fedlib.tools.files import atomic
from fedlib.tools.names import counted

CLOSE = 1.5  # points within which a cell counts as near where the print gives no spread
LINE = 150  # characters in a line of the page
BLOCK = ["table", "dataset", "model", "setting"]
SCHEDULE = ("clients", "rounds", "local_epochs", "rate_rounds", "steps", "costly_samples")  # of a run's parameters, on its page


def near(frame: pd.DataFrame) -> pd.Series:
    """Whether ours lies within 1.5 points of the print or within two standard deviations, the printed one and ours together.

    frame: of the result-file contract. False where either is absent. The deviations are of single runs, not of means: the question is
    whether one more run of the paper's could have given our number. Columns called ``average`` print a spread over tests, which is none.
    """
    gap = (frame["mean"] - frame["published_mean"]).abs()
    theirs = frame["published_std"].where(frame["column"] != "average").fillna(0)
    spread = np.sqrt(theirs**2 + frame["std"].fillna(0) ** 2)
    return gap <= np.maximum(CLOSE, 2 * spread)


def accounting(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per block and column of a contract frame, and one per table (column ``all``) over everything in it.

    Columns: table, dataset, model, setting, column; printed, run: numbers of cells with a printed and with both numbers; near: how many of
    those ``near`` accepts, near_real: without those on stand-ins; median_gap (of absolute values), largest_gap: of ours - published, in
    the cells' unit; furthest: the method of the largest; tau: Kendall's rank correlation of the methods' order with the print (NaN under
    three methods); stand_ins: cells run on stand-in data.
    """
    frame = frame[frame["published_mean"].notna()]
    cells, tables = (frame.groupby(by, sort=False) for by in ([*BLOCK, "column"], "table"))
    parts = [_row(block, dict(zip([*BLOCK, "column"], key, strict=True))) for key, block in cells]
    whole = [_row(block, {"table": table, **dict.fromkeys(BLOCK[1:], "all"), "column": "all"}) for table, block in tables]
    return pd.DataFrame([*parts, *whole])


def far(frame: pd.DataFrame) -> pd.DataFrame:
    """The cells of a contract frame that were run and are not ``near``, the furthest first, with ``gap`` = ours - published."""
    cells = frame[frame["mean"].notna() & frame["published_mean"].notna() & ~near(frame)]
    cells = cells.assign(gap=cells["mean"] - cells["published_mean"])
    return cells.sort_values("gap", key=np.abs, ascending=False, ignore_index=True)[
        [*BLOCK, "method", "column", "mean", "published_mean", "gap"]
    ]


def write_account(folder: str | Path) -> pd.DataFrame:
    """Write ``account.csv`` and ``account.md`` of the tables in ``folder`` and return the former; raises FileNotFoundError without any.

    Appendix tables (AT1 to AT3) are left out, which hold sizes of clients and networks and no results, and so are numbers that are no
    percentages, and what ran on another network than the printed one, whose level no run on it can reach."""
    folder = Path(folder)
    found = [pd.read_csv(path) for path in sorted(folder.glob("T*.csv")) if not path.stem.endswith(("_cut", "_clients"))]
    found = [frame[is_percent(frame) & ~_replaced(frame)] for frame in found if "published_mean" in frame]
    frames = [frame for frame in found if frame["mean"].notna().any()]
    if not frames:
        raise FileNotFoundError(
            f"{folder} holds no table with accuracies measured on the printed network: run its notebook first, with that network"
        )
    account = pd.concat([accounting(frame) for frame in frames], ignore_index=True)
    account = account[account["run"] > 0].reset_index(drop=True)
    with atomic(folder / "account.csv") as path:
        account.round(4).to_csv(path, index=False, lineterminator="\n")
    with atomic(folder / "account.md") as path:
        cells = explained(pd.concat([far(frame) for frame in frames], ignore_index=True), folder)
        path.write_text(_page(account, cells, _about(folder, frames)), encoding="utf-8")
    return account


def _replaced(frame: pd.DataFrame) -> pd.Series:
    """Which cells ran on a network that the paper prints for others; a name of the kit's own (``fedicon_cnn``) is the printed one's."""
    printed = {model for paper in frame["paper"].unique() for model in cells(paper.lower())["model"]}
    return frame["run_model"].isin(printed) & (frame["run_model"] != frame["model"])


def explained(cells: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """``cells`` with the column ``cause``: the first entry of the folder's ``causes.csv`` that fits, else "unexplained"."""
    path = folder / "causes.csv"
    causes = pd.read_csv(path, dtype=str).fillna("").to_dict("records") if path.exists() else []
    names = ("table", "setting", "method", "column")

    def cause(cell: pd.Series) -> str:
        return next((row["cause"] for row in causes if all(row[n] in ("", cell[n]) for n in names)), "unexplained")

    return cells.assign(cause=[cause(cell) for _, cell in cells.iterrows()])


def _about(folder: Path, frames: Sequence[pd.DataFrame]) -> str:
    """What was run, in a sentence: data, and what the folder's ``run.json`` says of the run, if it is there."""
    words = ["On " + ", ".join(dict.fromkeys(name for frame in frames for name in frame["run_dataset"].dropna()))]
    if (folder / "run.json").exists():
        run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        numbers = {name: run.get("parameters", {}).get(name) for name in SCHEDULE}
        words += [f"profile `{run['profile']}`", f"seed{'s' * (len(run['seeds']) > 1)} {', '.join(map(str, run['seeds']))}"]
        words += [f"`{name}` {value}" for name, value in numbers.items() if value]
        # An installed package knows no commit, and a joined run has those of its parts.
        commit = "".join(f", commit `{one[:7]}`" for one in (run["commit"] or "").split(" + ") if one)
        words += [f"{run['date'][:10]}, fedlib {run['versions']['fedlib']}{commit}"]
    return fill("; ".join(words) + ". All parameters are in `run.json`; accuracies in percent.", LINE, break_on_hyphens=False)


def _page(account: pd.DataFrame, cells: pd.DataFrame, about: str) -> str:
    """What was run, counts by column, then every cell that is further off than ``near`` allows, by the cause that was found."""
    head = (
        "| table | block | column | run of printed | near | near, without stand-ins | median absolute gap | largest gap | Kendall's tau |"
    )
    lines = ["# How near this run comes to the print", "", about, "", head, "|---" * 9 + "|"]
    for row in account.to_dict("records"):
        block = " ".join(dict.fromkeys(row[name] for name in BLOCK[1:]))
        tau = "-" if pd.isna(row["tau"]) else f"{row['tau']:+.2f}"
        real = f"{row['near_real']} of {row['run'] - row['stand_ins']}" if row["run"] > row["stand_ins"] else "-"
        counts = f"{row['run']} of {row['printed']} | {row['near']} | {real}"
        widest = f"{row['median_gap']:.2f} | {row['largest_gap']:+.2f} ({row['furthest']})"
        lines.append(f"| {row['table']} | {block} | {row['column']} | {counts} | {widest} | {tau} |")
    further = f"{counted(len(cells), 'cell')} {'is' if len(cells) == 1 else 'are'} further off."
    words = f"Near: within {CLOSE} points of the print, or within two standard deviations over seeds, the printed and ours (with one seed"
    lines += ["", fill(f"{words} the printed alone). A gap is ours less the print. {further}", LINE, break_on_hyphens=False)]
    for cause, block in cells.groupby("cause", sort=False):
        lines += ["", fill(f"{cause[0].upper()}{cause[1:]}:", LINE, break_on_hyphens=False), ""]
        lines += ["| table | setting | method | column | ours | printed | gap |", "|---" * 7 + "|"]
        for row in block.to_dict("records"):
            numbers = f"{row['mean']:.2f} | {row['published_mean']:.2f} | {row['gap']:+.2f}"
            lines.append(f"| {row['table']} | {row['setting']} | {row['method']} | {row['column']} | {numbers} |")
    return "\n".join(lines) + "\n"


def _row(block: pd.DataFrame, names: dict[str, str]) -> dict:
    run = block[block["mean"].notna()]
    gap = run["mean"] - run["published_mean"]
    widest = gap.abs().idxmax() if len(run) else None
    # Over a whole table columns of different units and levels stand beside each other, where one order means little.
    tau = kendalltau(run["mean"], run["published_mean"]).statistic if len(run) > 2 and names["column"] != "all" else np.nan
    return names | {
        "printed": len(block),
        "run": len(run),
        "near": int(near(run).sum()),
        "near_real": int(near(run[run["status"] != "stand-in"]).sum()),
        "median_gap": gap.abs().median(),
        "largest_gap": np.nan if widest is None else gap[widest],
        "furthest": "" if widest is None else run.loc[widest, "method"],
        "tau": tau,
        "stand_ins": int((run["status"] == "stand-in").sum()),
    }
