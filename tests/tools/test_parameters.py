import ast
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedlib.paper import paper_of
from fedlib.tools.parameters import PROJECT, _checked, declared, from_here, in_project, output_folder, read_parameters

NOTEBOOKS = sorted((PROJECT / "notebooks").glob("*.ipynb"))


@dataclass(frozen=True)
class Cell:
    rounds: int
    rate: float
    seeds: list[int] | None


def read(source="# Parameters\nrounds = 1", **values):
    return read_parameters(Cell, {"In": ["", source], "rounds": 1, "rate": 0.5, "seeds": None} | values)


def test_values_and_types():
    assert read() == Cell(1, 0.5, None)
    assert read(rate=1, seeds=(0, 1)) == Cell(1, 1.0, [0, 1])
    for name, wrong in (("rounds", 1.5), ("rounds", True), ("rounds", None), ("rate", "fast"), ("seeds", 3)):
        with pytest.raises(ValueError, match=f"parameter {name} must be"):
            read(**{name: wrong})
    for wrong in (math.nan, math.inf):
        with pytest.raises(ValueError, match="parameter rate must be a finite number"):
            read(rate=wrong)
    with pytest.raises(ValueError, match=r"parameter seeds\[1\] must be int, got '2'"):
        read(seeds=[1, "2"])
    with pytest.raises(ValueError, match=r"parameter seeds must be .*, got 3 \(int\): write \[3\]$"):
        read(seeds=3)
    with pytest.raises(ValueError, match=r"parameter seeds must be .*, got '3' \(str\)$"):
        read(seeds="3")


def test_a_misspelt_parameter_is_refused_with_the_closest_name():
    with pytest.raises(ValueError, match=r"unknown parameter 'round'\. Did you mean 'rounds'"):
        read("# Parameters\nround = 3")


def test_a_corrected_misspelling_is_forgotten():
    """A notebook remembers every cell that was ever run; the latest run of the parameters cell counts, and papermill's beside it."""
    own, injected = "# Parameters (hint)\nround = 3", "# Parameters\nround = 3"
    values = {"rounds": 1, "rate": 0.5, "seeds": None}
    corrected = [source.replace("round ", "rounds ") for source in (own, injected)]
    assert read_parameters(Cell, {"In": ["", own, corrected[0]]} | values) == Cell(1, 0.5, None)
    assert read_parameters(Cell, {"In": ["", own, injected, *corrected]} | values) == Cell(1, 0.5, None)
    for wrong in ([corrected[0], injected], [corrected[1], own], [corrected[0], own]):
        with pytest.raises(ValueError, match="unknown parameter 'round'"):
            read_parameters(Cell, {"In": ["", *wrong]} | values)


def test_only_parameters_cells_are_checked():
    assert read("round = 3") == read()


def test_a_parameter_that_no_cell_sets():
    with pytest.raises(ValueError, match="parameters not set: rounds, rate, seeds"):
        read_parameters(Cell, {})


@pytest.mark.parametrize("output", ["fedlib", "fedlib/adapt/results", "notebooks", "figures", "figures/../tests", "."])
def test_results_do_not_go_among_the_kits_own_files(output):
    with pytest.raises(ValueError, match="such as figures/mine"):
        output_folder(output, "small", "atp")


def test_output_folder():
    assert output_folder(None, "small", "atp") == PROJECT / "figures/small/atp"
    assert output_folder("figures/mine", "small", "atp", {"rounds": 3}) == PROJECT / "figures/mine"
    folders = [output_folder(None, "small", "atp", {"tables": ["T1"], "rounds": n}) for n in (3, 4, 3)]
    assert folders[0] == folders[2] != folders[1]
    assert output_folder(None, "small", "atp", {"rounds": 3, "tables": ["T1"]}) == folders[0], "in whatever order they were given"
    assert all(re.fullmatch(r"small-rounds-tables-[0-9a-f]{6}", folder.parent.name) for folder in folders)
    many = output_folder(None, "small", "atp", {f"parameter_{i}": i for i in range(20)})
    assert len(many.parent.name) < 80


@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if path.stem != "quickstart"], ids=lambda path: path.stem)
def test_parameters_as_declared(path):
    values = declared(path)
    assert values["profile"] == "smoke"
    assert values["output"] is None
    assert values == paper_of(path.stem).parameters.defaults()
    assert declared(PROJECT / "no such notebook.ipynb") == {}


def test_a_path_is_shown_from_the_project(tmp_path):
    assert in_project(PROJECT / "figures" / "mine") == Path("figures/mine")
    assert in_project(tmp_path) == tmp_path


def test_a_path_is_shown_from_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert from_here(tmp_path / "mine") == Path("mine")
    assert from_here(PROJECT / "figures") == PROJECT / "figures"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_import_and_narrate(path):
    """No outputs, no definitions, no cell over 20 lines, and flat builtin parameters with a comment each. The quickstart shows how to write
    a method, so it has a class, and no parameters."""
    quickstart = path.stem == "quickstart"
    cells = json.loads(path.read_text())["cells"]
    assert cells[0]["cell_type"] == "markdown"
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        source, parameters = "".join(cell["source"]), "parameters" in cell["metadata"].get("tags", [])
        assert not cell["outputs"]
        assert cell["execution_count"] is None
        nodes = list(ast.walk(ast.parse(source)))
        assert quickstart or not any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in nodes)
        if parameters:
            lines = source.splitlines()
            assert lines[0].startswith("# Parameters")
            assert all(" = " in line and "  # " in line for line in lines[1:])
            assert all(isinstance(ast.literal_eval(node.value), object) for node in ast.parse(source).body)
        else:
            assert len(source.splitlines()) <= 20
    assert sum("parameters" in cell["metadata"].get("tags", []) for cell in cells) == (not quickstart)


def test_a_list_that_papermill_took_for_a_text():
    with pytest.raises(ValueError, match=re.escape("got '[0, 1]' (str): with papermill, -y 'seeds: [0, 1]'")):
        _checked("seeds", "[0, 1]", list[int] | None)
