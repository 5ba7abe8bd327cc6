"""Every table, figure and study of FedTHE's notebook asked for alone: the notebook's own cells, at their smallest, from one cache."""

from dataclasses import fields

import matplotlib

matplotlib.use("Agg")
import nbformat
import pytest

from fedlib.notebook import PROJECT
from fedlib.papers.fedthe.settings import FIGURES, SECTIONS, TABLES
from tests.papers.fedthe.fedthe_cases import smallest

QUICK = ("F2a", "F2b", "F14", "F15")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return smallest(tmp_path_factory)


@pytest.fixture(scope="module")
def sources():
    notebook = nbformat.read(PROJECT / "notebooks" / "fedthe.ipynb", 4)
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def test_the_notebook_has_every_section(sources):
    """Else the walk below would pass over one."""
    text = "\n".join(sources)
    assert all(f'["{name}"] = ' in text for name in SECTIONS)
    assert set(SECTIONS) == {*TABLES, *FIGURES, "H26", "leak"}


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SECTIONS])
def test_a_section_alone_runs_and_writes_its_files(name, tiny, sources, tmp_path):
    parameters, *cells = sources
    namespace = {}
    exec(parameters, namespace)
    given = {f.name: getattr(tiny, f.name) for f in fields(tiny) if f.name in namespace}
    namespace |= given | {"tables": [name], "output": str(tmp_path)}
    for cell in cells:
        exec(cell, namespace)
    made = namespace["tables"] | namespace["figures"]
    assert made[name]["mean" if "mean" in made[name] else "x" if name == "F18" else "density"].notna().any()
    kinds = ("csv", "tex") if name in TABLES else ("csv", "png")
    assert {f"{name}.{kind}" for kind in kinds} <= {path.name for path in tmp_path.iterdir()}
    others = {path.stem for path in tmp_path.iterdir()} - {name, "clients", "claims", "run"}
    assert not others
