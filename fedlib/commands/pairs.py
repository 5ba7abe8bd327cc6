"""How far methods are apart on the same clients and images: ``fedlib pairs figures/mine/fedthe --against FedTHE``.

Several folders are one table: methods that were run apart, but were trained alike on the same clients, are paired as well, and seeds that
were run apart are seeds of one run. Behind a difference in points stand one standard error and a two-sided p-value, over the clients and,
with several seeds, over these too, corrected by Holm for the methods of the column.
"""

from pathlib import Path

import pandas as pd

from fedlib.commands.folders import read_and_write, reader, tables
from fedlib.published.pairs import BLOCK
from fedlib.published.pairs import pairs as paired
from fedlib.tools.names import check_name


def pairs(*folders: str | Path, against: str, table: str | None = None) -> pd.DataFrame:
    """Paired differences of all methods from ``against`` (``fedlib.published.pairs.pairs``) in the tables of one or several result folders,
    or in one ``table``. Raises FileNotFoundError for a folder without tables, ValueError for unknown names and tables without clients."""
    found = tables(folders)
    asked = [check_name(table, found, "table")] if table else [name for name, f in found.items() if _has_clients(f, against)]
    frames = [paired(found[name], against) for name in asked]
    if not frames:
        methods = dict.fromkeys(method for frame in found.values() for method in frame["method"])
        check_name(against, methods, "method")
        raise ValueError(f"no table of {', '.join(map(str, folders))} has clients of {against!r}")
    return pd.concat(frames, ignore_index=True)


def _has_clients(frame: pd.DataFrame, method: str) -> bool:
    return bool(frame.loc[frame["method"] == method, "units"].notna().any())


def main(arguments: list[str] | None = None) -> None:
    parser = reader("pairs", __doc__, "figures/mine/fedthe --against FedTHE --table T1 --out pairs.csv")
    parser.add_argument("--against", required=True, metavar="METHOD", help="the method that all others are compared with")
    parser.add_argument("--table", help="one table (default: all that have the method)")
    options = parser.parse_args(arguments)
    asked = {"against": options.against, "table": options.table}
    found = read_and_write(lambda: pairs(*options.folders, **asked).round({"difference": 4, "margin": 4}), options.out)
    for place, rows in found.groupby(BLOCK, sort=False):
        print(f"{' '.join(place)}: {rows['run_dataset'].iloc[0]}")
        for row in rows.itertuples():
            marks = {", stand-in": row.status == "stand-in", ", first images": row.cut}
            told = "".join(word for word, holds in marks.items() if holds)
            over = f"over {row.clients} clients" + f" and {row.seeds} seeds" * (row.seeds > 1)
            print(f"  {row.method} - {row.against}: {row.difference:+.2f} +- {row.margin:.2f}, p {row.p_holm:.2g} {over}{told}")
