import sys

import numpy as np
import pytest

from fedlib import published
from fedlib.published import claims_of
from fedlib.published.compare import fill
from fedlib.published.evidence import Cells, judge
from fedlib.stages import workers

# test_sixth.py executes it into a folder of its own: among the papers' results, `make reproduce` would count its claim.
collect_ignore = ["sixth/sixth.ipynb"]


@pytest.fixture(autouse=True)
def no_figure_stays_open():
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@pytest.fixture(scope="session")
def printed():
    """paper -> claim id -> verdict on the printed cells."""
    return {paper: {c.id: judge(c, Cells(paper)) for c in claims_of(paper).CLAIMS} for paper in published.PAPERS}


@pytest.fixture
def as_measured():
    """Contract frames of a paper that repeat its printed numbers as if they had been measured."""

    def build(paper, *, status="stand-in", n_seeds=None, data="digits", keep=lambda frame: frame["mean"] != ""):
        n_seeds = n_seeds or published.claims_of(paper).SEEDS or 2
        cells = published.cells(paper)
        run = {"n_seeds": n_seeds, "n": 100, "run_dataset": data, "run_model": "cnn", "status": status}
        # What the paper does not say, and the spread over tests, counts as none.
        std = cells["std_value"].fillna(0.0).where(cells["column"] != "average", 0.0)
        std = std * np.sqrt(n_seeds / (published.claims_of(paper).SEEDS or 1))
        rows = cells[keep(cells)].assign(mean=cells["mean_value"], std=std, **run)
        return {table: fill(paper, table, rows[rows["table"] == table], reason="lost in the print") for table in cells["table"].unique()}

    return build


@pytest.fixture
def handed(monkeypatch):
    """How many calls went to worker processes each time, to which the smallest training is worth handing."""
    found, original = [], workers.in_workers

    def in_workers(function, calls, processes):
        found.append(len(calls))
        return original(function, calls, processes)

    monkeypatch.setattr(workers, "WORTH", 0)
    monkeypatch.setattr(workers, "in_workers", in_workers)
    return found


@pytest.fixture
def count():
    """How many comparisons of a verdict hold, and how many were made; those within a "most" one by one."""

    def count(verdict):
        return sum(f.state == "holds" for f in verdict.made), len(verdict.made)

    return count
