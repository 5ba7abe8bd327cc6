"""How far methods are apart on the same clients and images: ``fedlib pairs figures/mine/fedthe --against FedTHE``.

Several folders are one table: methods that were run apart, but were trained alike on the same clients, are paired as well, and seeds that
were run apart are seeds of one run. Behind a difference in points stand one standard error and a two-sided p-value, over the clients and,
with several seeds, over these too, corrected by Holm for the methods of the column. Of runs of the comparison it is the 95 % interval and
the p-value that stand there for gains over no adaptation.
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fedlib.commands.folders import check_alike, existing, here, read_and_write, reader, tables
from fedlib.papers.comparison.rivals import by_client, joined, rivals
from fedlib.published.pairs import BLOCK
from fedlib.published.pairs import pairs as paired
from fedlib.tools.names import check_name


def pairs(*folders: str | Path, against: str, table: str | None = None) -> pd.DataFrame:
    """Paired differences of all methods from ``against`` (``fedlib.published.pairs.pairs``) in the tables of one or several result folders,
    or in one ``table``; in runs of the comparison (``fedlib.papers.comparison.rivals``), or on one of its protocols as ``table``. Raises
    FileNotFoundError for a folder without tables, ValueError for unknown names, tables without clients and runs that do not go together.
    """
    known = [_of_comparison(folder) for folder in folders]
    if any(known):
        if not all(known):
            other = folders[known.index(False)]
            raise ValueError(f"{folders[known.index(True)]} is of the comparison, and {other} has no tests.csv and accuracies.csv of it")
        return _ahead(folders, against, table)
    found = tables(folders)
    asked = [check_name(table, found, "table")] if table else [name for name, f in found.items() if _has_clients(f, against)]
    frames = [paired(found[name], against) for name in asked]
    if not frames:
        methods = dict.fromkeys(method for frame in found.values() for method in frame["method"])
        check_name(against, methods, "method")
        raise ValueError(f"no table of {', '.join(map(str, folders))} has clients of {against!r}")
    return pd.concat(frames, ignore_index=True)


def _of_comparison(folder: str | Path) -> bool:
    return all((existing(folder) / f"{name}.csv").exists() for name in ("accuracies", "tests"))


def _ahead(folders: Sequence[str | Path], against: str, protocol: str | None) -> pd.DataFrame:
    """The rows of ``rivals``."""
    if len(folders) > 1:
        check_alike(folders, apart=("protocols", "timed_samples"))
    each = joined([by_client(*(pd.read_csv(here(folder) / f"{name}.csv") for name in ("accuracies", "tests"))) for folder in folders])
    if protocol:
        each = each[each["protocol"] == check_name(protocol, each["protocol"].unique(), "protocol")]
    return rivals(each, against)


def _has_clients(frame: pd.DataFrame, method: str) -> bool:
    return bool(frame.loc[frame["method"] == method, "units"].notna().any())


def main(arguments: list[str] | None = None) -> None:
    parser = reader("pairs", __doc__, "figures/mine/fedthe --against FedTHE --table T1 --out pairs.csv")
    parser.add_argument("--against", required=True, metavar="METHOD", help="the method that all others are compared with")
    parser.add_argument("--table", help="one table, or protocol of the comparison (default: all that have the method)")
    options = parser.parse_args(arguments)
    asked = {"against": options.against, "table": options.table}
    found = read_and_write(lambda: _rounded(pairs(*options.folders, **asked)), options.out)
    block = BLOCK if "table" in found else ["protocol", "column"]
    for place, rows in found.groupby(block, sort=False):
        print(f"{' '.join(place)}: {rows['run_dataset'].iloc[0]}")
        for row in rows.itertuples():
            told = ", stand-in" * (row.status == "stand-in") + ", first images" * row.cut
            margin = f" +- {row.margin:.2f}" if block is BLOCK else f" ({row.low:.2f} to {row.high:.2f})" * pd.notna(row.low)
            chance = f"p {row.p_holm:.2g}" if pd.notna(row.p_holm) else "p not known"
            over = f"over {row.clients} clients" + f" and {row.seeds} seeds" * (row.seeds > 1)
            print(f"  {row.method} - {row.against}: {row.difference:+.2f}{margin}, {chance} {over}{told}")


def _rounded(found: pd.DataFrame) -> pd.DataFrame:
    found = found.round({name: 4 for name in found if name in ("difference", "margin", "low", "high") or name.startswith("seed_")})
    return found.assign(**{name: found[name].map(lambda p: float(f"{p:.3g}")) for name in ("p", "p_holm")})
