import math
from importlib.resources import files

import pandas as pd
import pytest

from fedlib import published
from fedlib.papers.upfl.recipes import hyperparameters

# Figures of each paper that show data.
FIGURES = {paper: pd.read_csv(files(f"fedlib.papers.{paper}") / "figures.csv")["figure"].tolist() for paper in published.PAPERS}
ROWS = {"fedthe": 842, "upfl": 250, "atp": 279, "fedicon": 183, "btfl": 292}


@pytest.mark.parametrize("paper", published.PAPERS)
def test_cells_name_every_printed_cell_once(paper):
    frame = published.cells(paper)
    assert len(frame) == ROWS[paper]
    assert not frame.duplicated(["table", *published.KEY]).any()
    assert frame["paper"].str.lower().eq(paper).all()


def test_digits_stay_as_printed_beside_floats():
    cell = published.cells("fedthe", "T1").query("method == 'FedAvg' and column == 'original' and setting == 'Dir(1.0)'").iloc[0]
    assert isinstance(cell["mean"], str)
    kept = published.cells("btfl", "T2").query("method == 'FedAvg' and column == 'original_ind'").iloc[0]
    assert (kept["mean"], kept["mean_value"], kept["std"], kept["std_value"]) == ("65.60", 65.6, "0.24", 0.24)


def test_lost_cell_is_empty_text_and_nan():
    lost = published.cells("fedthe", "T1").query("method == 'FedAvg' and column == 'corrupted' and setting == 'Dir(0.1)'").iloc[0]
    assert lost["mean"] == ""
    assert math.isnan(lost["mean_value"])
    assert "missing" in lost["note"]


def test_caller_cannot_change_the_numbers():
    frame = published.cells("atp")
    frame["mean"] = "0"
    assert published.cells("atp")["mean"].iloc[0] == "69.42"


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="Did you mean 'fedthe'"):
        published.cells("fedth")
    with pytest.raises(ValueError, match="table of atp 'T9'"):
        published.cells("atp", "T9")


def test_figures_and_hyperparameters():
    assert sum(map(len, FIGURES.values())) == 36
    assert FIGURES["upfl"] == ["F2", "F3", "F4", "F5", "AF2"]
    rates = hyperparameters()
    assert len(rates) == 269
    assert rates.query("method == 'SCAFFOLD' and dataset == 'cifar10' and parameter == 'eta_g'")["value"].item() == "1.5"


def test_percent_columns():
    places = [("T1", "test"), ("AT1", "clients"), *(("T3", column) for column in ("avg_rank", "delta", "seconds_per_1000"))]
    cells = pd.DataFrame(places, columns=["table", "column"])
    assert published.is_percent(cells).tolist() == [True, *[False] * (len(cells) - 1)]
    assert published.is_percent(cells.head(0)).empty
