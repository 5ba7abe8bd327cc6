"""The sixth paper's table and figure: what is run for each, and how the rows become its numbers."""

import pandas as pd

from fedlib.common import average, labelled
from fedlib.paper import Block, Exhibit
from fedlib.plots import charts

from .settings import REAL, Parameters, setting

COLUMNS = ("original", "corrupted")


def last(p: Parameters) -> list[Block]:
    return [Block([setting(p)], p.recipes(), {"columns": COLUMNS})]


def every(p: Parameters) -> list[Block]:
    return [Block([setting(p)], p.recipes(), {"columns": COLUMNS, "rounds": tuple(range(1, p.rounds + 1))})]


def scores(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Mean and deviation over seeds, with what was run."""
    return labelled(average(rows), rows, REAL)


def by_round(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    return labelled(average(rows, ("setting", "method", "column", "round")), rows, REAL)


EXHIBITS = (
    Exhibit("T1", "Table 1: accuracy after the last round", last, scores),
    Exhibit(
        "F1",
        "Figure 1: accuracy by round",
        every,
        by_round,
        charts.curves,
        {"x": "round", "panels": "column", "xlabel": "round"},
        compares="round",
    ),
)
