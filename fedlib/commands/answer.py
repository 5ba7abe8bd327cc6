"""What helps under which shift, over several runs of the comparison: ``fedlib answer figures/mine/comparison figures/other``.

One picture as the notebook's own ``answer``, with the shifts of all runs: each may have data, clients and a length of its own, which the
caption names. Of a test or a cost that several runs have, the first's counts; ranks on a kind of clients are those of the first run that
has any.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from fedlib.commands.folders import here, make_picture, parameters, reader, record
from fedlib.common import SETS
from fedlib.data import is_own
from fedlib.papers.comparison.answer import SHIFTS, verdicts
from fedlib.papers.comparison.needs import needs
from fedlib.papers.comparison.plots_answer import answer as picture
from fedlib.papers.comparison.recipes import METHODS, NONE
from fedlib.papers.comparison.settings import Parameters, about


def answer(*folders: str | Path) -> Figure:
    """The picture of these runs. Raises FileNotFoundError where a folder holds no tests of the comparison, or its run did not finish."""
    tests = [_read(folder, "tests") for folder in folders]
    for folder, frame in zip(folders, tests, strict=True):
        if not {"protocol", "gain", "verdict"} <= {*frame.columns}:
            raise FileNotFoundError(f"{folder} holds no tests.csv of the comparison: run its notebook with tests among the tables")
    runs = [_parameters(folder) for folder in folders]
    frame = verdicts(_firsts(tests, ["protocol", "column", "method"]))
    taken = _firsts([needs(p) for p in runs], ["method"])
    costs = _firsts([_read(folder, "cost") for folder in folders], ["method"])
    ranks = _of_kinds(folders, "differences")
    places = _of_kinds(folders, "ranks")
    return picture(frame, costs, taken, ranks, places, title=f"What helps under which shift, at what price\n{_said(runs, tests)}")


def _parameters(folder: str | Path) -> Parameters:
    """The parameters that the run in ``folder`` had, as today's version has them."""
    ran = parameters(folder) | {name: record(folder)[name] for name in ("profile", "seeds")}
    # Methods of one's own are told there in words, which nothing reads back.
    ran |= {"extra": None, "methods": [name for name in ran["methods"] if name in METHODS] or [NONE] if ran.get("methods") else None}
    try:
        return Parameters(**{field.name: ran[field.name] for field in dataclasses.fields(Parameters) if field.name in ran})
    except ValueError as error:
        if own := [ran[name] for name in SETS if name in ran and is_own(ran[name] or "")]:
            raise ValueError(f"{folder} ran on your own images, which are read again: give the command where {own[0]} lies") from error
        raise


def _read(folder: str | Path, name: str) -> pd.DataFrame:
    path = here(folder) / f"{name}.csv"
    return pd.read_csv(path) if path.exists() else pd.DataFrame()


def _firsts(frames: Sequence[pd.DataFrame], keys: list[str]) -> pd.DataFrame:
    filled = [frame for frame in frames if len(frame)]
    return pd.concat(filled, ignore_index=True).drop_duplicates(keys, ignore_index=True) if filled else pd.DataFrame()


def _of_kinds(folders: Sequence[str | Path], name: str) -> pd.DataFrame:
    """By kind of clients, from one run that has average ranks: ranks among other methods are other numbers."""
    kinds: dict[str, pd.DataFrame] = {}
    for folder in folders:
        ranked = _read(folder, "differences")
        frame = _read(folder, name)
        for kind in ranked["kind"].unique() if len(ranked) else ():
            kinds.setdefault(kind, frame[frame["kind"] == kind] if len(frame) else frame)
    return pd.concat(kinds.values(), ignore_index=True) if kinds else pd.DataFrame()


def _said(runs: Sequence[Parameters], tests: Sequence[pd.DataFrame]) -> str:
    """What was run for which shifts, of each run those to which it adds a test; with its methods where others are an earlier run's."""
    shifts: dict[str, list[str]] = {}
    told: set[tuple] = set()
    for p, frame in zip(runs, tests, strict=True):
        before = {(protocol, column) for protocol, column, _ in told}
        added = [row for row in zip(frame["protocol"], frame["column"], frame["method"], strict=True) if row not in told]
        told.update(added)
        for shift, places in SHIFTS.items():
            if own := dict.fromkeys(method for protocol, column, method in added if (protocol, column) in places):
                shifts.setdefault(about(p), []).append(f"{shift} ({', '.join(own)})" if before & {*places} else shift)
    lines = [f"{'; '.join(dict.fromkeys(names))}: {text}." for text, names in shifts.items() if names]
    return "\n".join(line[0].upper() + line[1:] for line in lines)


def main(arguments: list[str] | None = None) -> None:
    options = reader("answer", __doc__, "figures/mine/comparison --out answer.png", out=Path("answer.png")).parse_args(arguments)
    make_picture(options.out, lambda: answer(*options.folders))
