"""A paper as data: its parameters and settings, and what its tables and figures are made of.

A paper is a folder: its parameters and settings, its recipes, its claims, its printed numbers, the plots that only it has, and a ``Paper``
that lists its exhibits. An exhibit says what is run for which printed block (``blocks``), how the rows become its numbers (``reduce``) and,
for a figure, how they are drawn. Everything else is the same for every paper, and lies in ``fedlib.study``.
"""

import importlib
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.figure import Figure

from fedlib.common import LABELLED, Common, listed
from fedlib.core import Benchmark, Recipe
from fedlib.plots import charts
from fedlib.published import cells, know
from fedlib.setting import Setting, told_apart
from fedlib.tools.names import check_name
from fedlib.tools.parameters import NOTEBOOKS, output_folder, read_parameters

if TYPE_CHECKING:
    from fedlib.study import Study


@dataclass(frozen=True)
class Block:
    """What runs for one printed block, or for several that run alike.

    settings, recipes: as for ``fedlib.run``; request: fields of ``Request`` that are not the paper's usual ones; dataset, model: the names
    under which the print files the cells ("": those of every block that has the setting); absent: why it does not run ("": it does);
    optional: absent images, and scores that are not finite, are then a reason, not an error; offers: what its clients bring to a user's
    methods, of ``fedlib.extras.NEEDS`` (None: they have no place in it); seeds: its own, in place of the parameters'.
    """

    settings: Sequence[Setting]
    recipes: Mapping[str, Recipe]
    request: Mapping[str, Any] = field(default_factory=dict)
    dataset: str = ""
    model: str = ""
    absent: str = ""
    optional: bool = False
    offers: Collection[str] | None = LABELLED
    seeds: Sequence[int] | None = None

    def __post_init__(self):
        told_apart(self.settings)

    @property
    def place(self) -> dict[str, str]:
        return {name: value for name, value in {"dataset": self.dataset, "model": self.model}.items() if value}


@dataclass(frozen=True)
class Exhibit:
    """A table or figure, or a study that the paper does not have.

    name: as in the print (T1, F2a), or a word; title: what it shows; blocks(p): what is run, if it is asked for; reduce(p, rows): its
    numbers, from the measured rows of all blocks, which have ``printed_dataset`` and ``printed_model`` where a block names them;
    draw(numbers, title=..., **options): the picture, None for a table; compares: column of which a picture needs several values; further:
    methods that a table shows besides the print's and a user's; said(p): what the caption says in place of the usual line;
    numbers(study): in place of reduce, for what no experiment measures, or for what is made of other exhibits' numbers; reasons(p): why
    cells are absent, by printed name ("": all that have no other reason); page(study, numbers): what the notebook shows of numbers beside
    the printed tables, which are filed as they are, and below a picture; columns(p): what a user's images put in place of the printed
    columns, shown and written alone (empty: these themselves). ``options`` of a picture that needs more than numbers may be a function of
    the study.
    """

    name: str
    title: str
    blocks: Callable[[Any], Sequence[Block]] | None = None
    reduce: Callable[[Any, pd.DataFrame], pd.DataFrame] | None = None
    draw: Callable[..., Figure] | None = None
    options: Mapping[str, Any] | Callable[["Study"], Mapping[str, Any]] = field(default_factory=dict)
    compares: str = ""
    further: Sequence[str] = ()
    said: Callable[[Any], str] | None = None
    numbers: Callable[["Study"], pd.DataFrame] | None = None
    reasons: Callable[[Any], Mapping[str, str]] | None = None
    page: Callable[["Study", pd.DataFrame], Any] | None = None
    columns: Callable[[Any], Mapping[str, str]] | None = None

    def __post_init__(self):
        if (self.reduce is None) == (self.numbers is None) or (self.reduce and self.blocks is None):
            raise ValueError(f"exhibit {self.name}: give blocks and reduce, or numbers")


@dataclass(frozen=True)
class Paper:
    """One paper, or a study of several: one without ``printed.csv`` has nothing to set beside ours.

    package: of its folder (``__name__`` in its ``__init__``); parameters: the class of its notebook's parameters; profiles: their values by
    profile; exhibits: in the order of its notebook; setting(p): the one whose clients the notebook shows first, and picture how; left_out:
    why a cell is absent of which nothing else is known; who(p, blocks): what captions say of an exhibit's clients, and of what they learn
    besides the network, where the number of clients does not tell.
    """

    name: str
    citation: str
    package: str
    parameters: type[Common]
    profiles: Mapping[str, Mapping[str, Any]]
    exhibits: Sequence[Exhibit]
    setting: Callable[[Any], Setting]
    picture: Callable[[Benchmark], Figure] = charts.clients_and_shifts
    left_out: str = "left out by the parameters"
    who: Callable[[Any, Sequence[Block]], str] | None = None

    @property
    def notebook(self) -> Path:
        """Its notebook: in its own folder, or with those of the project."""
        own = Path(importlib.import_module(self.package).__file__).with_name(f"{self.name}.ipynb")
        return own if own.exists() else NOTEBOOKS / f"{self.name}.ipynb"

    def read(self, namespace: Mapping) -> Common:
        """The notebook's checked parameters, with the profile's values filled in. Raises ValueError as ``read_parameters``, for a name in
        ``tables`` that is no exhibit's, and for a user's method, or a paper, whose name is taken."""
        know(self.name, self.package)
        p = read_parameters(self.parameters, namespace)
        if taken := sorted(set(p.extras) & set(cells(self.name)["method"])):
            raise ValueError(f"{taken[0]!r} is a method of {self.name} already: choose another name, such as {taken[0] + ' (own)'!r}")
        for name in listed(p.tables):
            check_name(name, [exhibit.name for exhibit in self.exhibits], "table, figure or study")
        return p.resolved(self.profiles)

    def standard(self, profile: str) -> Common:
        """The parameters of a run for which nothing but its profile was given."""
        return self.read(self.parameters.defaults() | {"profile": profile})

    def folder(self, p: Common) -> Path:
        """Where the results go: a run whose parameters differ from its profile's has a folder of its own."""
        return output_folder(p.output, p.profile, self.name, {} if p.output else p.departures(self.standard(p.profile)))

    def exhibit(self, name: str) -> Exhibit:
        """The exhibit of this name. Raises ValueError for a name that it does not have, with the closest one."""
        named = {exhibit.name: exhibit for exhibit in self.exhibits}
        return named[check_name(name, named, "table, figure or study")]


def paper_of(name: str) -> Paper:
    """The ``PAPER`` of the package that is so called."""
    return importlib.import_module(f"fedlib.papers.{name}").PAPER


def paper_in(folder: str | Path) -> Paper:
    """The ``PAPER`` of a folder outside the package, which can be imported by its name from here on, in worker processes too.

    Raises ValueError where there is none, and where another package has the folder's name."""
    path = Path(folder).resolve()
    if not (path / "__init__.py").is_file():
        raise ValueError(f"no paper in {path}: its folder has a file __init__.py with PAPER, a fedlib.paper.Paper")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    module = importlib.import_module(path.name)
    if Path(module.__file__ or "").parent != path:
        raise ValueError(f"{path.name} is the name of another package, {module.__file__}: rename the folder {path}")
    paper = getattr(module, "PAPER", None)
    if not isinstance(paper, Paper):
        raise ValueError(f"{path / '__init__.py'} has no PAPER, a fedlib.paper.Paper")
    return paper
