"""A paper that is no part of the package, a folder with a notebook, goes the way of the five."""

import json
import shutil
from pathlib import Path

import nbformat
import pandas as pd
import pytest

from fedlib import reproduce
from fedlib.commands.agreement import main as agreement_command
from fedlib.commands.claims import main as claims_command
from fedlib.commands.ledger import main as ledger_command
from fedlib.paper import paper_in
from fedlib.published import cells
from fedlib.results import TABLE_COLUMNS
from fedlib.results.record import strangers
from fedlib.study import Study
from fedlib.tools.parameters import PROJECT

SIXTH = Path(__file__).with_name("sixth")


def copied(folder: Path, name: str) -> Path:
    """The paper in another folder, as a package of another name."""
    return Path(shutil.copytree(SIXTH, folder / name, ignore=shutil.ignore_patterns("__pycache__")))


@pytest.mark.filterwarnings("ignore")
def test_it_is_reproduced_by_the_command(tmp_path, capsys):
    """With the profile's parameters, in a cache of its own: the table, the figure, the claim and the record of the run."""
    out = tmp_path / "out"
    given = ["-p", "cache", str(tmp_path / "cache"), "-p", "output", str(out)]
    reproduce.main(["--paper", str(SIXTH), "--profile", "smoke", "--processes", "1", *given])
    assert "sixth: done in" in capsys.readouterr().out
    table = pd.read_csv(out / "T1.csv")
    assert tuple(table.columns) == TABLE_COLUMNS
    assert table["method"].tolist() == cells("sixth", "T1")["method"].tolist()
    assert table["mean"].between(0, 100).all()
    assert set(table["status"]) == {"stand-in"}
    figure = pd.read_csv(out / "F1.csv")
    assert figure.groupby(["method", "column"])["round"].agg(list).tolist() == [[1, 2, 3, 4, 5]] * 4
    last = figure[figure["round"] == 5].set_index(["method", "column"])["mean"]
    assert last.to_dict() == table.set_index(["method", "column"])["mean"].to_dict()
    assert (out / "F1.png").stat().st_size > 5000
    claims = pd.read_csv(out / "claims.csv")
    assert claims[["claim", "published"]].to_numpy().tolist() == [["S1", "holds"]]
    assert claims["ours"].isin(["holds", "undecided"]).all()
    run = json.loads((out / "run.json").read_text())
    assert (run["profile"], run["seeds"], run["dataset"], run["parameters"]["alpha"]) == ("smoke", [0], "digits", 0.1)
    assert {"T1.csv", "T1.tex", "F1.csv", "F1.png", "clients.png", "claims.csv"} <= set(run["files"])
    assert strangers(out) == []
    assert "The prior of a stream" in (out / "notebook.html").read_text()
    claims_command([str(out), "--paper", str(SIXTH)])
    assert "S1: " in capsys.readouterr().out
    ledger_command([str(out), "--paper", str(SIXTH), "--out", str(tmp_path / "claims.md")])
    assert "S1" in (tmp_path / "claims.md").read_text()
    agreement_command([str(out), "--paper", str(SIXTH), "--out", str(tmp_path / "agreement.png")])
    assert (tmp_path / "agreement.png").stat().st_size > 5000
    with pytest.raises(SystemExit):
        claims_command([str(out), "--paper", str(tmp_path)])
    assert "no paper in" in capsys.readouterr().err


def test_its_results_go_beside_those_of_the_others():
    run = reproduce.prepared(str(SIXTH), {"profile": "small"})
    assert (run.name, run.notebook, run.folder) == ("sixth", SIXTH / "sixth.ipynb", PROJECT / "figures" / "small" / "sixth")
    assert reproduce.prepared(str(SIXTH), {"alpha": 0.3}).folder.parent.name.startswith("smoke-alpha-")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"alpa": 0.3}, "Did you mean 'alpha'"),
        ({"alpha": -1.0}, "alpha must be above 0"),
        ({"methods": ["RuningPrior"]}, "Did you mean 'RunningPrior'"),
        ({"tables": ["T2"]}, "unknown table, figure or study 'T2'. Did you mean 'T1'"),
    ],
)
def test_wrong_parameters_stop_before_any_work(given, message):
    with pytest.raises(ValueError, match=message):
        reproduce.prepared(str(SIXTH), given)


def test_a_folder_without_a_paper(tmp_path):
    with pytest.raises(SystemExit, match=r"no paper in .*nothing"):
        reproduce.main(["--paper", str(tmp_path / "nothing")])
    with pytest.raises(SystemExit, match="unknown paper 'sixth'"):
        reproduce.main(["--paper", "sixth"])
    (tmp_path / "empty_paper").mkdir()
    (tmp_path / "empty_paper" / "__init__.py").write_text("PAPER = 6\n")
    with pytest.raises(ValueError, match=r"empty_paper/__init__\.py has no PAPER"):
        paper_in(tmp_path / "empty_paper")
    (copied(tmp_path, "no_notebook") / "sixth.ipynb").unlink()
    with pytest.raises(ValueError, match="paper sixth has no notebook"):
        reproduce.prepared(str(tmp_path / "no_notebook"), {})


def test_names_are_taken_once(tmp_path):
    """Neither a folder nor a paper may have the name of another: results and imports would be mistaken for each other's."""
    with pytest.raises(ValueError, match="json is the name of another package"):
        paper_in(copied(tmp_path, "json"))
    folder = copied(tmp_path, "renamed_paper")
    text = (folder / "__init__.py").read_text().replace('name="sixth"', 'name="btfl"')
    (folder / "__init__.py").write_text(text)
    shutil.copy(SIXTH / "sixth.ipynb", folder / "btfl.ipynb")
    with pytest.raises(ValueError, match=r"paper 'btfl' lies in fedlib\.papers\.btfl"):
        reproduce.prepared(str(folder), {})


def test_its_notebook_is_one_of_ours():
    """No outputs and no definitions, as in ``notebooks/``."""
    notebook = nbformat.read(SIXTH / "sixth.ipynb", 4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in code)
    assert not any("def " in cell.source or "class " in cell.source for cell in code)
    assert Study(paper_in(SIXTH), reproduce.declared(SIXTH / "sixth.ipynb")).folder == PROJECT / "figures" / "smoke" / "sixth"
