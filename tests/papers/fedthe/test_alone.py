"""Every table, figure and study of FedTHE's notebook asked for alone: the notebook's own cells, at their smallest, from one cache."""

import matplotlib

matplotlib.use("Agg")
import nbformat
import pytest

from fedlib.papers.fedthe import PAPER
from fedlib.personalize.ditto import Ditto
from fedlib.published import cells, claims_of
from tests.papers.fedthe.fedthe_cases import smallest

NAMES = [exhibit.name for exhibit in PAPER.exhibits]
TABLES = set(cells("fedthe")["table"])
QUICK = ("T14", "F2a", "F2b", "F14", "F15")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return smallest(tmp_path_factory)


@pytest.fixture(scope="module")
def sources():
    notebook = nbformat.read(PAPER.notebook, 4)
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def test_the_notebook_has_every_exhibit(sources):
    """Else the walk below would pass over one; in the order of the paper's list."""
    text = "\n".join(sources)
    assert all(f'study.show("{name}")' in text for name in NAMES)
    assert sorted(NAMES, key=lambda name: text.index(f'study.show("{name}")')) == NAMES
    assert set(NAMES) == {*TABLES, *claims_of("fedthe").FIGURE_COLUMNS, "leak"}


def started(sources, given):
    """What the notebook's variables are once its study is there, and the cells that are left."""
    namespace = {"display": print}
    exec(sources[0], namespace)
    namespace |= given
    exec(sources[1], namespace)
    return namespace, sources[2:]


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NAMES])
def test_an_exhibit_alone_runs_and_writes_its_files(name, tiny, sources, tmp_path):
    namespace, rest = started(sources, tiny | {"tables": [name], "output": str(tmp_path)})
    for cell in rest:
        exec(cell, namespace)
    numbers = namespace["study"].frame(name)
    assert numbers["mean" if "mean" in numbers else "x" if name == "F18" else "density"].notna().any()
    kinds = ("csv", "tex") if name in TABLES else ("csv", "png")
    assert {f"{name}.{kind}" for kind in kinds} <= {path.name for path in tmp_path.iterdir()}
    others = {path.stem for path in tmp_path.iterdir()} - {name, f"{name}_clients", "clients", "claims", "run", "federations", "index"}
    assert not others


def test_personal_parts_that_persist_pass_each_round_once(tiny, sources, tmp_path, monkeypatch):
    """The learning curves run before Table 1, which takes up the last of their rounds; the other way round they would start anew."""
    rounds, fit = [], Ditto.fit

    def counted(self, task, received, clients, personal, round):
        rounds.append(round)
        return fit(self, task, received, clients, personal, round)

    monkeypatch.setattr(Ditto, "fit", counted)
    given = {"rounds": 3, "curve_points": 3, "methods": ["Ditto"], "tables": ["T1", "F8"], "alphas": [0.1], "cache": str(tmp_path)}
    namespace, rest = started(sources, tiny | given | {"output": str(tmp_path / "out")})
    for cell in rest:
        exec(cell, namespace)
    assert rounds == [1, 2, 3]
