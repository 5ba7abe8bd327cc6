"""A paper as data: its exhibits and blocks, its parameters, and where its results go."""

import pandas as pd
import pytest

from fedlib.core import Schedule
from fedlib.paper import Block, Exhibit, paper_of
from fedlib.papers.btfl import PAPER
from fedlib.published import PAPERS, cells, claims_of
from fedlib.setting import Setting
from fedlib.tools.parameters import PROJECT, declared
from tests.tiny import Protocol


def read(**changed):
    return PAPER.read(declared(PAPER.notebook) | changed)


def test_an_exhibit_is_measured_in_one_way():
    with pytest.raises(ValueError, match="exhibit T1: give blocks and reduce, or numbers"):
        Exhibit("T1", "Table 1", lambda p: [])
    with pytest.raises(ValueError, match="exhibit T1: give blocks and reduce, or numbers"):
        Exhibit("T1", "Table 1", lambda p: [], lambda p, rows: rows, numbers=lambda s: pd.DataFrame())


def test_a_block_has_settings_with_labels_of_their_own_and_the_places_that_it_names():
    setting = Setting("Dir(0.1)", Protocol(), "mlp", Schedule(2))
    with pytest.raises(ValueError, match=r"need different labels, got Dir\(0.1\) twice"):
        Block([setting, setting], {})
    assert Block([setting], {}).place == {}
    assert Block([setting], {}, dataset="cifar10").place == {"dataset": "cifar10"}


def test_tables_are_asked_for_by_the_names_of_exhibits():
    assert read(tables=["T2", "splits"]).tables == ["T2", "splits"]
    with pytest.raises(ValueError, match="unknown table, figure or study 'T8'"):
        read(tables=["T8"])


@pytest.mark.parametrize("name", PAPERS)
def test_small_shows_the_main_table_and_few_others_unless_all_are_asked_for(name):
    """It trains until adaptation stops improving, which no two cores have time for in every table."""
    paper = paper_of(name)
    given = declared(paper.notebook) | {"profile": "small"}
    p, every = paper.read(given), paper.read(given | {"tables": "all"})
    names = [exhibit.name for exhibit in paper.exhibits]
    assert "T1" in p.tables
    assert set(p.tables) < set(names)
    assert len(p.seeds) == 3
    assert all(every.asks(n) for n in names)
    assert p.rounds > paper.read(given | {"profile": "smoke"}).rounds
    assert all(paper.read(given | {"profile": "smoke"}).asks(n) for n in names)


def test_a_run_with_parameters_of_its_own_has_a_folder_of_its_own():
    usual, other = PAPER.folder(read()), PAPER.folder(read(rounds=7))
    assert usual == PROJECT / "figures" / "smoke" / "btfl"
    assert other.name == "btfl"
    assert other.parent.name.startswith("smoke-rounds-")
    assert PAPER.folder(read(rounds=7, output="figures/mine")) == PROJECT / "figures" / "mine"


def test_a_study_of_several_papers_has_no_print_and_shows_every_exhibit():
    paper = paper_of("comparison")
    p = paper.read(declared(paper.notebook))
    assert cells("comparison").empty
    assert paper.folder(p) == PROJECT / "figures" / "smoke" / "comparison"
    with pytest.raises(ValueError, match=r"unknown table, figure or study 'rank'\. Did you mean 'ranks'"):
        paper.read(declared(paper.notebook) | {"tables": ["rank"]})
    shown = [e.name for e in paper.exhibits if f'show(\\"{e.name}\\")' in paper.notebook.read_text()]
    assert shown == [e.name for e in paper.exhibits]


@pytest.mark.parametrize("name", PAPERS)
def test_a_paper_has_an_exhibit_for_everything_that_it_prints_claims_and_shows(name):
    """A claim about an exhibit that is not there would never be judged, and one that no cell shows would never be filed."""
    paper = paper_of(name)
    names, read = [exhibit.name for exhibit in paper.exhibits], set(claims_of(name).FIGURE_COLUMNS)
    assert len(names) == len(set(names))
    # What ATP says of a GPU's memory is measured on no CPU.
    assert set(cells(name)["table"]) | read - {"A17"} <= set(names)
    shown = [n for n in names if f'show(\\"{n}\\")' in paper.notebook.read_text()]
    assert set(names) - set(shown) <= read
    assert [e.name for e in paper.exhibits if e.compares and e.draw is None] == []
