"""The cells that a claim is judged on - printed or measured - and the judging."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd

from fedlib.data import is_own
from fedlib.published import KEY, cells, claims_of
from fedlib.published.comparisons import FAILS, HOLDS, SURE, UNDECIDED, Finding, Quantity, distinct, highest, lowest, mark
from fedlib.published.units import Units

SOURCE = ("run_dataset", "n_seeds", "status")
SHOWN = 12  # comparisons spelled out in an evidence string
# Numbers drawn from a model, on which no parameter of a run and no seed acts.
EXACT = ("toy problem",)
STAND_IN = "stand-in"


class Absent(Exception):
    """A figure's numbers that a claim reads are not there."""


def _by_key(frame: pd.DataFrame) -> dict[tuple[str, ...], dict]:
    return {tuple(row[name] for name in KEY): row for row in frame.to_dict("records")}


@cache
def _printed(paper: str, table: str) -> dict[tuple[str, ...], dict]:
    return _by_key(cells(paper, table))


@cache
def _named(paper: str, table: str) -> dict[tuple[str, str], list[dict]]:
    named = defaultdict(list)
    for row in _printed(paper, table).values():
        named[row["method"], row["column"]].append(row)
    return dict(named)


def _names(paper: str, table: str, part: str) -> list[str]:
    return list(dict.fromkeys(row[part] for row in _printed(paper, table).values()))


@cache
def _varying(paper: str, table: str) -> list[str]:
    return [name for name in KEY if name != "method" and len(_names(paper, table, name)) > 1]


def _quantity(row: Mapping, who: str, where: str, origin: tuple | None = None) -> Quantity:
    """A measured number with its paired units; without them the standard error over seeds, which one seed does not have. The deviation of
    a time is over repeats, and that of one of them is its margin."""
    units, spread, seeds = row.get("units"), row.get("std"), row["n_seeds"]
    known = seeds > 1 and spread is not None and not pd.isna(spread)
    variance, freedom = (float(spread) ** 2 / seeds, seeds - 1) if known else (math.nan, math.nan)
    if row.get("column") == "seconds_per_1000" and not pd.isna(spread):
        variance, freedom = float(spread) ** 2, math.nan
    units = units if isinstance(units, Units) else None
    return Quantity(float(row["mean"]), variance, who, where, units, origin, freedom=freedom)


def _may_refute(row: Mapping, cut: bool) -> bool:
    """Whether a number is of the data that the print names, not of a stand-in or a user's images, and of whole streams; cut: where streams
    were cut, its units have to say so."""
    units = row.get("units")
    whole = not units.partial if isinstance(units, Units) else not cut
    return row["status"] != STAND_IN and not is_own(str(row["run_dataset"])) and whole


def _suspect(cell: Mapping) -> bool:
    """Whether a printed number is tagged as one that may be misprinted or misread; what is tagged of an average is its deviation, which
    nothing reads, or a digit that its tests tell."""
    return cell["column"] != "average" and "suspect" in cell["note"].split("; ")


def _print(paper: str, cell: Mapping, where: str) -> Quantity:
    """A printed number with the standard error of the paper's seeds (one where it does not say how many). A number without a printed
    deviation, and a mean over tests, whose printed deviation is over these, stands as it is."""
    spread = 0.0 if math.isnan(cell["std_value"]) or cell["column"] == "average" else cell["std_value"]
    doubt = _suspect(cell)
    return Quantity(cell["mean_value"], spread**2 / (claims_of(paper).SEEDS or 1), cell["method"], where, rises=doubt, falls=doubt)


class Cells:
    """The cells of one paper's tables, printed (``tables`` None) or measured, and the numbers of measured figures.

    tables: table -> contract frame; figures: figure -> tidy frame. The object notes what it was asked for (``read``), which data its
    answers came from (``used``: run data set, seeds, status) and which cells were absent (``lacking``) or tagged suspect in print
    (``suspect``). ``fresh`` gives an equal object with empty notes.
    """

    def __init__(self, paper: str, tables: dict[str, pd.DataFrame] | None = None, figures: dict[str, pd.DataFrame] | None = None):
        self.paper = paper
        self.printed = tables is None
        self.tables = {table: _by_key(frame) for table, frame in (tables or {}).items()}
        self.figures = figures or {}
        self._forget()

    def _forget(self) -> None:
        self.used: set[tuple[str, int, str]] = set()
        self.read: set[str] = set()
        self.lacking: list[str] = []
        self.suspect: list[str] = []

    def fresh(self) -> "Cells":
        """The same cells, nothing noted yet."""
        other = copy(self)
        other._forget()
        return other

    def sound(self, cut: bool) -> "Cells":
        """Those that may refute: on the data of the print, and on whole streams. cut: whether streams were cut in the run."""
        other = self.fresh()
        other.tables = {table: {key: row for key, row in rows.items() if _may_refute(row, cut)} for table, rows in self.tables.items()}
        other.figures = {
            name: frame.loc[np.array([_may_refute(row, cut) for row in frame.to_dict("records")], dtype=bool)]
            for name, frame in self.figures.items()
        }
        return other

    def methods(self, table: str, *without: str) -> list[str]:
        """Methods of a table in the order of the print, except ``without``."""
        return [m for m in _names(self.paper, table, "method") if m not in without]

    def base(self, table: str, *without: str) -> list[str]:
        """Methods of a table that are not the paper's own."""
        return [m for m in self.methods(table, *without) if not m.startswith(claims_of(self.paper).OURS)]

    def columns(self, table: str, *without: str, **block: str) -> list[str]:
        """Columns of a table, or of one block of it, in the order of the print, except ``without``."""
        rows = [r for r in _printed(self.paper, table).values() if all(r[k] == v for k, v in block.items())]
        return [c for c in dict.fromkeys(row["column"] for row in rows) if c not in without]

    def blocks(self, table: str, **where: str) -> list[dict[str, str]]:
        """Blocks of a table, as keywords ``dataset, model, setting`` for ``at``; ``where`` keeps those that agree with it."""
        blocks = [{k: row[k] for k in ("dataset", "model", "setting")} for row in _printed(self.paper, table).values()]
        distinct = {tuple(block.values()): block for block in blocks}
        return [block for block in distinct.values() if all(block[k] == v for k, v in where.items())]

    def at(self, table: str, method: str, column: str, **where: str) -> Quantity:
        """The one cell of ``table`` so named; ``where``: those of ``dataset, model, setting`` that are needed to tell it apart."""
        rows = _named(self.paper, table).get((method, column), [])
        found = [row for row in rows if all(row[name] == value for name, value in where.items())]
        if len(found) != 1:
            wanted = {**where, "method": method, "column": column}
            raise ValueError(f"{self.paper} {table} has {len(found)} cells with {wanted}; a cell is named by {', '.join(KEY)}")
        cell = found[0]
        place = " ".join([table, *(cell[name] for name in _varying(self.paper, table))])
        self.read.add(table)
        if not self.printed:
            return self._measured(table, cell, place)
        if _suspect(cell):
            self.suspect.append(f"{place} {method}")
        if math.isnan(cell["mean_value"]):
            self.lacking.append(f"{place} {method}")
        return _print(self.paper, cell, place)

    def _measured(self, table: str, cell: dict, place: str) -> Quantity:
        row = self.tables.get(table, {}).get(tuple(cell[name] for name in KEY))
        if row is not None and not pd.isna(row["mean"]):
            self._note(row)
            # Printed cells that one and the same run fills are one comparison.
            run = [row[name] for name in ("run_dataset", "run_model", "setting", "method", "column")]
            return _quantity(row, cell["method"], place, (*run, round(float(row["mean"]), 9)))
        why = f" ({row['status'].removeprefix('not run:').strip()})" if row else ""
        self.lacking.append(f"{place} {cell['method']}{why}" if table in self.tables else table)
        return Quantity(math.nan, who=cell["method"], where=place)

    def best(self, table: str, methods: Iterable[str], column: str, **where: str) -> Quantity:
        """The highest of several methods' cells."""
        return highest(self.at(table, method, column, **where) for method in methods)

    def worst(self, table: str, methods: Iterable[str], column: str, **where: str) -> Quantity:
        """The lowest of several methods' cells."""
        return lowest(self.at(table, method, column, **where) for method in methods)

    def figure(self, name: str, **where: object) -> pd.DataFrame:
        """Rows of a measured figure that agree with ``where``. Raises Absent if there are none."""
        self.read.add(name)
        frame = self.figures.get(name)
        if frame is None:
            raise Absent(name)
        for column, value in where.items():
            frame = frame[frame[column] == value]
        if frame.empty:
            raise Absent(f"{name} at {', '.join(map(str, where.values()))}")
        for row in frame.drop_duplicates(list(SOURCE)).to_dict("records"):
            self._note(row)
        return frame

    def point(self, figure: str, **where: object) -> Quantity:
        """The one row of a figure that agrees with ``where``: column ``mean``, spread ``std`` if the figure has it."""
        rows = self.figure(figure, **where)
        if len(rows) > 1:
            raise ValueError(f"{self.paper} {figure} has {len(rows)} rows with {where}; name more columns")
        who = str(where.get("method", ""))
        return _quantity(rows.iloc[0], who, " ".join([figure, *(str(v) for k, v in where.items() if k != "method")]))

    def points(self, figure: str, methods: Iterable[str], **where: object) -> list[Quantity]:
        """``point`` of each method; of one that the figure lacks, a number that is not known."""
        shown = set(self.figure(figure, **where)["method"])
        self.lacking += [f"{figure} {method}" for method in methods if method not in shown]
        return [self.point(figure, method=m, **where) if m in shown else Quantity(math.nan, who=m, where=figure) for m in methods]

    def curve(self, figure: str, **where: object) -> pd.Series:
        """``mean`` over the rounds in increasing order, of the rows that agree with ``where``."""
        return self.figure(figure, **where).set_index("round")["mean"].sort_index()

    def _note(self, row: Mapping) -> None:
        self.used.add((str(row["run_dataset"]), int(row["n_seeds"]), str(row["status"])))


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, the tables and figures it is read from, and a function that turns cells into findings."""

    id: str
    text: str
    reads: tuple[str, ...]
    check: Callable[[Cells], list[Finding]]


@dataclass(frozen=True)
class Verdict:
    """state: "holds" (every comparison made holds, and those made are more than half), "fails" (at least one fails), "undecided", or "not
    run" (none could be made). repeated: comparisons that repeat another on the same run and are not among the findings."""

    state: str
    findings: tuple[Finding, ...]
    cells: Cells
    repeated: int = 0

    @property
    def made(self) -> list[Finding]:
        return [f for f in self.findings if f.state is not None]

    @property
    def refuting(self) -> list[Finding]:
        """The comparisons that fail beyond chance: at 5 %, corrected for the number of those made (Bonferroni)."""
        return [f for f in self.made if f.state == FAILS and f.chance * len(self.made) <= SURE]

    @property
    def counts(self) -> str:
        """How many comparisons hold, fail and are undecided."""
        states = [f.state for f in self.made]
        failed, open_ = states.count(FAILS), states.count(UNDECIDED)
        more = [f"{failed} fail{'s' * (failed == 1)}"] * bool(failed) + [f"{open_} undecided"] * bool(open_)
        return ", ".join([f"{states.count(HOLDS)} of {len(states)} hold", *more])

    @property
    def evidence(self) -> str:
        """The numbers: how many comparisons hold, the failing ones first, then the undecided and the others, up to 12; lost cells and
        suspect ones."""
        if not self.made:
            return "no numbers"
        ranked = sorted(self.made, key=lambda f: (FAILS, UNDECIDED, HOLDS).index(f.state))
        shown = [f.text + mark(f) for f in ranked[:SHOWN]]
        rest = [f"{len(ranked) - SHOWN} more"] if len(ranked) > SHOWN else []
        lost = [f"{len(self.findings) - len(ranked)} not judged"] if len(ranked) < len(self.findings) else []
        again = [f"{self.repeated} repeat the same run"] if self.repeated else []
        doubt = [f"suspect print: {', '.join(dict.fromkeys(self.cells.suspect))}"] if self.cells.suspect else []
        return f"{self.counts}: " + "; ".join([*shown, *rest, *lost, *again, *doubt])


def judge(claim: Claim, evidence: Cells) -> Verdict:
    """Judge a claim on the cells of ``evidence``; the verdict's ``cells`` hold the notes of this claim alone.

    Comparisons of one and the same run, by which several printed cells are filled, count once. A condition without any margin, such as
    one on the shape of a curve, is decided on the means over several seeds and left open on one.
    """
    evidence = evidence.fresh()
    try:
        told = list(claim.check(evidence))
    except Absent as absent:
        # First: what else was absent is not why.
        evidence.lacking.insert(0, str(absent))
        return Verdict("not run", (), evidence)
    single = not evidence.printed and any(seeds < 2 for name, seeds, _ in evidence.used if name not in EXACT)
    told = [replace(f, state=UNDECIDED) if f.bare and single and f.state else f for f in told]
    findings = tuple(distinct(told))
    states, repeated = [f.state for f in findings if f.state], len(told) - len(findings)
    enough = len(states) + repeated > len(told) / 2
    state = FAILS if FAILS in states else HOLDS if enough and set(states) == {HOLDS} else UNDECIDED
    return Verdict(state if states else "not run", findings, evidence, repeated)
