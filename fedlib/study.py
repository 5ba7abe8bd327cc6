"""A paper as data, and the study that shows it: what its tables and figures are made of, and the one way in which they come about.

A paper is a folder: its parameters and settings, its recipes, its claims, its printed numbers, the plots that only it has, and a ``Paper``
that lists its exhibits. An exhibit says what is run for which printed block (``blocks``), how the rows become its numbers (``reduce``) and,
for a figure, how they are drawn. All else is the same for every paper and lies here: what is run once for all, what was not run and why,
what stands in for what, the print beside ours, files, captions and claims.
"""

import importlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from fedlib.core import Benchmark, Recipe
from fedlib.experiment import Setting, run
from fedlib.explore import Cases
from fedlib.names import check_name
from fedlib.notebook import NOTEBOOKS, declared, output_folder, read_parameters
from fedlib.papers.common import LABELLED, Common, with_refused
from fedlib.plots import charts, style
from fedlib.published import cells, claims_of, know
from fedlib.published.compare import REQUIRED, fill
from fedlib.published.ledger import ledger
from fedlib.published.reading import Note, Page, claims_page, summary
from fedlib.results import draw_figure, write_claims, write_figure, write_run, write_table

NOT_ASKED = "not asked for"


@dataclass(frozen=True)
class Block:
    """What runs for one printed block, or for several that run alike.

    settings, recipes: as for ``fedlib.run``; request: fields of ``Request`` that are not the paper's usual ones; dataset, model: the names
    under which the print files the cells ("": those of every block that has the setting); absent: why it does not run ("": it does);
    optional: absent images are a reason then, no error; offers: what its clients bring to methods of one's own, of
    ``fedlib.extras.NEEDS`` (None: they have no place in it); seeds: its own, in the place of the parameters'.
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

    @property
    def place(self) -> dict[str, str]:
        return {name: value for name, value in {"dataset": self.dataset, "model": self.model}.items() if value}


@dataclass(frozen=True)
class Exhibit:
    """A table or figure, or a study that the paper does not have.

    name: as in the print (T1, F2a), or a word; title: what it shows; blocks(p): what is run, where it is asked for; reduce(p, rows): its
    numbers, from the measured rows of all blocks, which have ``printed_dataset`` and ``printed_model`` where a block names them;
    draw(numbers, title=..., **options): the picture, None for a table; compares: column of which a picture needs several values; further:
    methods that a table shows besides the print's and one's own; said(p): what the caption says in the place of the usual line;
    numbers(study): in the place of blocks and reduce, for what no experiment measures; reasons(p): why cells are absent, by printed name;
    columns(p): what a user's images put in the place of the printed columns, shown and written alone (empty: these themselves).
    """

    name: str
    title: str
    blocks: Callable[[Any], Sequence[Block]] | None = None
    reduce: Callable[[Any, pd.DataFrame], pd.DataFrame] | None = None
    draw: Callable[..., Figure] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    compares: str = ""
    further: Sequence[str] = ()
    said: Callable[[Any], str] | None = None
    numbers: Callable[["Study"], pd.DataFrame] | None = None
    reasons: Callable[[Any], Mapping[str, str]] | None = None
    columns: Callable[[Any], Mapping[str, str]] | None = None

    def __post_init__(self):
        if (self.blocks is None) == (self.numbers is None) or (self.blocks is None) != (self.reduce is None):
            raise ValueError(f"exhibit {self.name}: give blocks and reduce, or numbers")


@dataclass(frozen=True)
class Paper:
    """One paper.

    package: of its folder (``__name__`` in its ``__init__``); parameters: the class of its notebook's parameters; profiles: their values by
    profile; exhibits: in the order of its notebook; setting(p): the one whose clients the notebook shows first, and picture how; left_out:
    why a cell is absent of which nothing else is known.
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

    @property
    def notebook(self) -> Path:
        """Its notebook: in its own folder, or with those of the project."""
        own = Path(importlib.import_module(self.package).__file__).with_name(f"{self.name}.ipynb")
        return own if own.exists() else NOTEBOOKS / f"{self.name}.ipynb"

    def read(self, namespace: Mapping) -> Common:
        """The notebook's checked parameters, with the profile's values filled in. Raises ValueError as ``read_parameters``, and for a name
        in ``tables`` that is no exhibit's."""
        p = read_parameters(self.parameters, namespace)
        for name in p.tables or ():
            check_name(name, [exhibit.name for exhibit in self.exhibits], "table, figure or study")
        return p.resolved(self.profiles)

    def folder(self, p: Common) -> Path:
        """Where the results go: what a run with other parameters than its profile's leaves is kept apart."""
        standard = self.read(declared(self.notebook) | {"profile": p.profile}) if p.output is None else p
        return output_folder(p.output, p.profile, self.name, p.departures(standard))

    def exhibit(self, name: str) -> Exhibit:
        """Raises KeyError for one that it does not have."""
        return {e.name: e for e in self.exhibits}[name]


class Study:
    """A run of one paper's notebook: its parameters ``p``, and what was measured so far.

    Rows that several exhibits share are run once. Raises ValueError for parameters that cannot be."""

    def __init__(self, paper: Paper, namespace: Mapping):
        self.started = time.perf_counter()
        know(paper.name, paper.package)
        self.paper, self.p = paper, paper.read(namespace)
        self.folder = paper.folder(self.p)
        self._rows: dict[tuple, pd.DataFrame] = {}
        self._frames: dict[str, pd.DataFrame] = {}
        style.use()

    def _repr_html_(self) -> str:
        return f"<p>{self.paper.citation}</p><pre>{self.p}</pre>"

    def rows(self, blocks: Iterable[Block]) -> tuple[pd.DataFrame, dict[str, str]]:
        """Measured rows of all blocks, and why there are none, by printed data set ("" where a block names none)."""
        parts, reasons = [], {}
        for block in blocks:
            reason = block.absent
            if not reason and block.settings and block.recipes:
                try:
                    part = self._measured(block)
                    parts.append(part.assign(**{f"printed_{name}": value for name, value in block.place.items()}))
                    continue
                except FileNotFoundError as error:
                    if not block.optional:
                        raise
                    reason = self.p.missing(error)
            if reason:
                reasons[block.dataset] = reason
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(), reasons

    def _measured(self, block: Block) -> pd.DataFrame:
        """Rows of one block; of those that an earlier one had run, the same."""
        seeds, request = block.seeds or self.p.seeds, self.p.request(**block.request)

        def key(setting: Setting, name: str) -> tuple:
            return repr(setting), name, repr(block.recipes[name]), repr(request), tuple(seeds)

        lacking: dict[tuple[str, ...], list[Setting]] = {}
        for setting in block.settings:
            lacking.setdefault(tuple(name for name in block.recipes if key(setting, name) not in self._rows), []).append(setting)
        for names, settings in lacking.items():
            if names:
                recipes = {name: block.recipes[name] for name in names}
                rows = run(settings, recipes, seeds, request=request, **self.p.execution())
                for setting in settings:
                    of = rows[rows["setting"] == setting.label]
                    self._rows |= {key(setting, name): of[of["method"] == name] for name in names}
        return pd.concat([self._rows[key(setting, name)] for setting in block.settings for name in block.recipes], ignore_index=True)

    def frame(self, name: str) -> pd.DataFrame:
        """The numbers of an exhibit, run as far as they are not there: of a printed table the frame of the result-file contract."""
        if name not in self._frames:
            self._frames[name] = self._numbers(self.paper.exhibit(name))
        return self._frames[name]

    def _numbers(self, exhibit: Exhibit) -> pd.DataFrame:
        asked, reasons = self.p.asks(exhibit.name), {}
        blocks = exhibit.blocks(self.p) if exhibit.blocks and asked else []
        if exhibit.numbers:
            numbers = exhibit.numbers(self) if asked else pd.DataFrame()
        else:
            rows, reasons = self.rows(blocks)
            numbers = exhibit.reduce(self.p, rows) if len(rows) else rows
        if not self.is_printed(exhibit):
            return numbers
        printed = cells(self.paper.name, exhibit.name)
        numbers = self._of_print(exhibit, numbers, printed) if len(numbers) else pd.DataFrame(columns=[*REQUIRED, "dataset", "model"])
        # Blocks that fill one place refuse the same methods: each is said once.
        for block in {tuple(b.place.items()): b for b in blocks if b.settings and not b.absent and b.offers is not None}.values():
            refused = self.p.refused(block.settings[0].model, block.offers)
            numbers = with_refused(self.paper.name, exhibit.name, numbers, refused, **block.place)
        given = exhibit.reasons(self.p) if exhibit.reasons else {}
        reason = reasons.pop("", self.paper.left_out if asked else NOT_ASKED)
        return fill(self.paper.name, exhibit.name, numbers, reason=reason, reasons=given | reasons)

    def is_printed(self, exhibit: Exhibit) -> bool:
        """Whether the paper prints it as a table."""
        return exhibit.name in set(cells(self.paper.name)["table"])

    def _of_print(self, exhibit: Exhibit, measured: pd.DataFrame, printed: pd.DataFrame) -> pd.DataFrame:
        """The measured cells that a printed table has, and those of further methods in the places that it has."""
        place = [name for name in ("dataset", "model", "setting", "column") if name in measured]
        further = measured["method"].isin((*exhibit.further, *self.p.own))
        kept = [measured[~further].merge(printed[[*place, "method"]].drop_duplicates())]
        kept.append(measured[further].merge(printed[place].drop_duplicates()))
        return pd.concat(kept, ignore_index=True)

    def show(self, name: str) -> Page | Note:
        """Write the files of an exhibit that is asked for, say what was run, and return it laid out for reading."""
        exhibit, numbers = self.paper.exhibit(name), self.frame(name)
        if not self.p.asks(name):
            return Note(f"not run: {NOT_ASKED}")
        if numbers.empty or ("mean" in numbers and numbers["mean"].isna().all()):
            return Note(numbers["status"].iloc[0] if len(numbers) else f"not run: {self.paper.left_out}")
        about = self.about(exhibit)
        if names := exhibit.columns(self.p) if exhibit.columns else {}:
            numbers = numbers[numbers["column"].isin(names)].replace({"column": names})
        if exhibit.draw is None:
            if self.is_printed(exhibit):
                write_table(numbers, self.folder, name)
            print(f"{exhibit.title}: {about}")
            return summary(numbers) if self.is_printed(exhibit) else _wide(numbers)
        return draw_figure(
            exhibit.draw, numbers, self.folder, name, f"{exhibit.title}\n{about}", compares=exhibit.compares, **exhibit.options
        )

    def about(self, exhibit: Exhibit) -> str:
        """What has to stand beside a result: data and what stands in, network, clients, schedule, seeds, split, cut streams, profile."""
        if exhibit.said:
            return exhibit.said(self.p)
        numbers = self.frame(exhibit.name)
        ran = numbers[numbers["run_dataset"].fillna("") != ""]
        data = []
        for name, part in ran.groupby("run_dataset", sort=False):
            stands_in = part["status"] == "stand-in"
            columns = f"{', '.join(part.loc[stands_in, 'column'].unique())}: " if "column" in part and not stands_in.all() else ""
            data.append(f"{name} ({columns}stand-in)" if stands_in.any() else name)
        settings = [s for block in exhibit.blocks(self.p) if not block.absent for s in block.settings] if exhibit.blocks else []
        schedules = [s.schedule for s in settings]
        length = _each(f"{s.local.epochs} epochs" if s.local.steps is None else f"{s.local.steps} minibatches" for s in schedules)
        clients, splits = (_each(getattr(s.protocol, name, "") for s in settings) for name in ("n_clients", "split"))
        facts = [
            ", ".join(data),
            _each(ran["run_model"]),
            *([f"{clients} clients"] if clients else []),
            *([f"{_each(s.rounds for s in schedules)} rounds x {length}"] if schedules else []),
            f"{_each(ran['n_seeds'].astype(int))} seed{'s' * bool((ran['n_seeds'] > 1).any())}",
            *([f"{splits} split"] if splits else []),
            self.p.profile,
        ]
        return ", ".join(fact for fact in facts if fact)

    @property
    def benchmark(self) -> Benchmark:
        """The clients that the notebook shows first."""
        return self.paper.setting(self.p).protocol.build(self.p.seeds[0], self.p.data_root)

    def clients(self) -> pd.DataFrame:
        """Draw who holds what and what the tests look like; returns how many images each client's tests have."""
        benchmark, setting = self.benchmark, self.paper.setting(self.p)
        caption = f"Clients of {setting.label} and their tests; {benchmark.images}, seed {self.p.seeds[0]}."
        write_figure(self.paper.picture(benchmark), benchmark.report().reset_index(), self.folder, "clients", caption)
        print(caption, *benchmark.notes)
        counts = {c.id: {column: len(draws[0]) for column, draws in c.tests.items()} for c in benchmark.clients}
        return pd.DataFrame(counts).T.rename_axis("client")

    def runs(self, name: str) -> pd.DataFrame | Note:
        """What an exhibit needed: by method, whether its training and its scores came from the cache, and the seconds it took to adapt."""
        blocks = self.paper.exhibit(name).blocks(self.p) if self.p.asks(name) else []
        rows, _ = self.rows(blocks)
        if rows.empty:
            return Note(f"not run: {self.paper.left_out if self.p.asks(name) else NOT_ASKED}")
        came = {"trained": ("train_cached", _came), "adapted": ("cached", _came), "seconds": ("seconds", "sum")}
        return rows.groupby("method", sort=False).agg(**came).round(2)

    def explore(self, name: str) -> None:
        """Controls to look at single test images of an exhibit's first block, stage by stage."""
        # Widgets are for notebooks; recipes and settings are read without them too.
        from fedlib.plots.explore import show

        blocks = (
            [b for b in self.paper.exhibit(name).blocks(self.p) if not b.absent and b.settings and b.recipes] if self.p.asks(name) else []
        )
        p, first = self.p, blocks[0] if blocks else Block([], {})
        about = self.about(self.paper.exhibit(name)) if blocks else ""
        show(Cases(first.settings, first.recipes, p.seeds, p.request(**first.request), p.cache, p.data_root, p.engine()), about)

    def claims(self) -> Page:
        """Judge and write the paper's claims on everything that is asked for, shown already or not."""
        asked = [exhibit for exhibit in self.paper.exhibits if self.p.asks(exhibit.name)]
        tables = {e.name: self.frame(e.name) for e in asked if self.is_printed(e)}
        read = claims_of(self.paper.name).FIGURE_COLUMNS
        figures = {e.name: self.frame(e.name) for e in asked if e.name in read and len(self.frame(e.name))}
        verdicts = ledger(self.paper.name, tables, figures, changed=self.p.changed(self.paper.profiles), own=self.p.own)
        write_claims(verdicts, self.folder)
        return claims_page(verdicts)

    def finish(self) -> None:
        """Write ``run.json``, which makes the folder complete."""
        p, benchmark = self.p, self.benchmark
        write_run(
            self.folder,
            profile=p.profile,
            seeds=p.seeds,
            device=p.device,
            duration_seconds=time.perf_counter() - self.started,
            cache_hits=int(sum(rows["cached"].sum() for rows in self._rows.values())),
            dataset=benchmark.dataset,
            notes=list(benchmark.notes),
            parameters=p.facts(),
        )


def _wide(numbers: pd.DataFrame) -> pd.DataFrame:
    """A study without print: methods and settings down, tests across."""
    return numbers.pivot_table(index=["method", "setting"], columns="column", values="mean", sort=False).round(2)


def _each(values: Iterable) -> str:
    return "/".join(dict.fromkeys(str(value) for value in values if value not in ("", None)))


def _came(cached: pd.Series) -> str:
    return "cached" if cached.all() else "computed"
