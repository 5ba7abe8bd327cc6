"""Compare a run with reference numbers, cell by cell: ``fedlib verify figures/mine/fedicon figures/digits/fedicon``.

Every table (CSV of the result-file contract) that both folders hold is compared on the cells that both have run. Numbers are equal to the
bit where machine and packages are; elsewhere they differ by rounding that training amplifies, hence a tolerance, for all tables or for one.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from fedlib.commands.folders import here, result_tables
from fedlib.published import KEY

CELL = ["table", *KEY]
RAN = ["run_dataset", "run_model"]


def compare(run: Path, reference: Path, tolerance: float = 0.01, tolerances: Mapping[str, float] | None = None) -> pd.DataFrame:
    """One row per cell that both folders have run: ``CELL``, run, reference, difference, tolerance, agrees.

    tolerance: largest difference in the cell's unit; tolerances: by table, in its place. Raises FileNotFoundError where a folder holds no
    table, ValueError where the two share none, or no cell of them, where these are of other images or networks, and for a table in
    ``tolerances`` that is not among them.
    """
    ours, theirs = tables(run), tables(reference)
    shared = sorted(ours.keys() & theirs.keys())
    if not shared:
        raise ValueError(f"no table in common: {run} holds {', '.join(sorted(ours))}; {reference} holds {', '.join(sorted(theirs))}")
    if not all(value >= 0 for value in (tolerance, *(tolerances or {}).values())):
        raise ValueError("a tolerance must be at least 0")
    for name in tolerances or {}:
        if name not in shared:
            raise ValueError(f"a tolerance was given for {name}, but both folders hold only {', '.join(shared)}")
    parts = []
    for name in shared:
        both = ours[name].merge(theirs[name], on=CELL, suffixes=("_run", "_reference")).dropna(subset=["mean_run", "mean_reference"])
        parts.append(both.assign(table=name, tolerance=(tolerances or {}).get(name, tolerance)))
    cells = pd.concat(parts, ignore_index=True).rename(columns={"mean_run": "run", "mean_reference": "reference"})
    if cells.empty:
        raise ValueError(f"no cell of {', '.join(shared)} was run in both folders")
    for column, what in zip(RAN, ("images", "networks"), strict=True):
        other = cells[cells[f"{column}_run"] != cells[f"{column}_reference"]]
        if len(other):
            table, here, there = other.iloc[0][["table", f"{column}_run", f"{column}_reference"]]
            raise ValueError(f"the two are of different {what}: {table} ran on {here} in {run}, on {there} in {reference}")
    cells["difference"] = cells["run"] - cells["reference"]
    return cells[[*CELL, "run", "reference", "difference", "tolerance"]].assign(
        agrees=cells["difference"].abs() <= cells["tolerance"] + 1e-9
    )


def tables(folder: Path) -> dict[str, pd.DataFrame]:
    """The result tables of a folder by name, cells and means. Raises FileNotFoundError where there are none."""
    return {name: frame[[*CELL, *RAN, "mean"]].astype(dict.fromkeys([*CELL, *RAN], str)) for name, frame in result_tables(folder).items()}


def origin(folder: Path) -> str:
    """When, where and from what the numbers of a folder were made, from its ``run.json``."""
    path = here(folder) / "run.json"
    if not path.exists():
        return "no run.json: the run did not finish, or is older than that file"
    run = json.loads(path.read_text(encoding="utf-8"))
    versions = ", ".join(f"{name} {version}" for name, version in run.get("versions", {}).items())
    facts = [run.get("date"), run.get("processor"), run.get("commit") and f"commit {run['commit']}", versions, f"seeds {run.get('seeds')}"]
    return ", ".join(str(fact) for fact in facts if fact)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="fedlib verify",
        description=__doc__.splitlines()[0],
        epilog="example: fedlib verify figures/mine/fedicon figures/digits/fedicon --tolerance 1 --table T1 0.5",
    )
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("reference", type=Path, help="folder of the reference numbers")
    parser.add_argument("--tolerance", type=float, default=0.01, help="largest difference, in the cells' unit (default 0.01)")
    parser.add_argument(
        "--table", nargs=2, action="append", default=[], metavar=("NAME", "TOLERANCE"), help="a different tolerance for one table"
    )
    options = parser.parse_args(arguments)
    try:
        cells = compare(options.run, options.reference, options.tolerance, {name: float(value) for name, value in options.table})
    except (ValueError, FileNotFoundError) as error:
        sys.exit(f"error: {error}")
    print(f"run:       {origin(options.run)}\nreference: {origin(options.reference)}")
    for name, table in cells.groupby("table", sort=False):
        widest = table["difference"].abs().max()
        print(
            f"{name}: {table['agrees'].sum()} of {len(table)} cells within {table['tolerance'].iloc[0]:g}, largest difference {widest:.4g}"
        )
    if not cells["agrees"].all():
        print(cells[~cells["agrees"]].drop(columns=["agrees", "tolerance"]).to_string(index=False))
        sys.exit(1)
