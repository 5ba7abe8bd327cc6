"""The study of one paper: the single way in which its tables and figures are made.

It runs each experiment once, notes what was not run and why and what stands in for what, sets the printed numbers beside ours, and writes
files, captions and claims.
"""

import functools
import html
import itertools
import os
import time
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from fedlib.cache.store import key_of
from fedlib.common import with_refused
from fedlib.core import Benchmark
from fedlib.experiment import benchmark_of, run
from fedlib.explore import Cases
from fedlib.paper import Block, Exhibit, Paper
from fedlib.plots import style
from fedlib.published import cells, claims_of
from fedlib.published.compare import REQUIRED, fill
from fedlib.published.ledger import PROVENANCE, ledger
from fedlib.published.reading import Note, Page, apart, claims_page, summary
from fedlib.ready import check_run
from fedlib.results import draw_figure, write_claims, write_figure, write_numbers, write_run, write_table
from fedlib.results.pages import write_index
from fedlib.results.record import begin, remembered_in
from fedlib.setting import Setting
from fedlib.stages.checks import NotKept
from fedlib.start import NotHeld
from fedlib.tools.names import counted
from fedlib.tools.parameters import in_project

NOT_ASKED = "not asked for"
# What a notebook shows in the place of an exhibit that the profile's or the user's ``tables`` leaves out.
NOT_HERE = Note('Not in this run: name it in the parameter tables, or set tables = "all".')


class Study:
    """A run of one paper's notebook: its parameters ``p``, and what has been measured so far.

    Rows that several exhibits share are run once. Raises ValueError for parameters that cannot be."""

    def __init__(self, paper: Paper, namespace: Mapping):
        self.started = time.perf_counter()
        self.paper, self.p = paper, paper.read(namespace)
        # A batch has done this before its notebooks start, and tells them where their progress goes.
        if "FEDLIB_PROGRESS" not in os.environ:
            check_run(paper, self.p)
        self.folder = paper.folder(self.p)
        begin(self.folder, self.p.facts() | {"profile": self.p.profile, "seeds": self.p.seeds})
        self._rows: dict[tuple, pd.DataFrame] = {}
        self._failed: dict[tuple, str] = {}
        self._accounts: list[dict] = []
        self._numbers: dict[str, tuple[pd.DataFrame, dict[str, str]]] = {}
        self._frames: dict[str, pd.DataFrame] = {}
        self._reasons: dict[str, str] = {}
        self._blocks: dict[str, Sequence[Block]] = {}
        self._not_made: dict[str, str] = {}
        style.use()

    def __repr__(self) -> str:
        return f"Study of {self.paper.name} with {self.p}"

    def _repr_html_(self) -> str:
        given = ", ".join(f"{name} = {value}" for name, value in self.p.told().items() if value is not None)
        return f"<p>{html.escape(self.paper.citation)}</p><p>{html.escape(given)}</p>"

    def blocks(self, name: str) -> Sequence[Block]:
        """What is run for an exhibit; to find out may require reading what clients have learned."""
        if name not in self._blocks:
            exhibit = self.paper.exhibit(name)
            self._blocks[name] = exhibit.blocks(self.p) if exhibit.blocks else []
        return self._blocks[name]

    def rows(self, blocks: Iterable[Block]) -> tuple[pd.DataFrame, dict[str, str]]:
        """Measured rows of all blocks, and why there are none, by printed data set or else network ("" where a block names neither), and by
        method where it alone has none."""
        parts, reasons = [], {}
        for block in blocks:
            reason = block.absent
            if not reason and block.settings and block.recipes:
                try:
                    part, failed = self._measured(block)
                    parts.append(part.assign(**{f"printed_{name}": value for name, value in block.place.items()}))
                    reasons |= failed
                    continue
                except FileNotFoundError as error:
                    if not block.optional:
                        raise
                    reason = self.p.missing(error)
            if reason:
                reasons[block.dataset or block.model] = reason
        return _stacked(parts), reasons

    def _measured(self, block: Block) -> tuple[pd.DataFrame, dict[str, str]]:
        """Rows of one block, and its methods that have none, with the reason; of what an earlier block had run, the same."""
        keys = self._keys(block)
        known = {key for key in keys.values() if key in self._rows or key in self._failed}
        lacking: dict[tuple[str, ...], list[Setting]] = {}
        for setting in block.settings:
            names = tuple(name for name in block.recipes if keys[setting.label, name] not in known)
            lacking.setdefault(names, []).append(setting)
        for names, settings in lacking.items():
            for some, rows in self._run(block, settings, names) if names else ():
                for setting, name in itertools.product(settings, some):
                    if isinstance(rows, str):
                        self._failed[keys[setting.label, name]] = rows
                    else:
                        self._rows[keys[setting.label, name]] = rows[(rows["setting"] == setting.label) & (rows["method"] == name)]
        failed = {name: self._failed[key] for (_, name), key in keys.items() if key in self._failed}
        return _stacked([self._rows[key] for key in keys.values() if key in self._rows]), failed

    def _run(self, block: Block, settings: Sequence[Setting], names: Sequence[str]) -> list[tuple[Sequence[str], pd.DataFrame | str]]:
        """Methods with their rows; where a block is optional, one that diverges has a reason and does not take the others with it. So has,
        anywhere, what a trained federation does not hold, such as another schedule's states, and one of one's own that diverges or needs
        what its training does not keep."""
        recipes, seeds = {name: block.recipes[name] for name in names}, block.seeds or self.p.seeds
        try:
            with remembered_in(self._accounts):
                return [(names, run(settings, recipes, seeds, request=self.p.request(**block.request), **self.p.execution()))]
        except (FloatingPointError, NotHeld, NotKept) as error:
            own = not isinstance(error, NotHeld) and not {*names}.isdisjoint(self.p.own)
            if not (block.optional or own or isinstance(error, NotHeld)):
                raise
            why = f"diverged: {error}" if isinstance(error, FloatingPointError) else str(error)
            if len(names) == 1:
                return [(names, why)]
            told = getattr(error, "method", None)
        if told in names:
            return [([told], why), *self._run(block, settings, [name for name in names if name != told])]
        # Most run: halves find the one of many that does not in a few runs, each of which shares its trainings and reads what is cached.
        half = len(names) // 2
        return [pair for part in (names[:half], names[half:]) for pair in self._run(block, settings, part)]

    def _keys(self, block: Block) -> dict[tuple[str, str], tuple[str, str]]:
        """Under what the rows of a block are kept, by label and method: as the cache tells them apart, since two objects may look alike."""
        asked = {"request": self.p.request(**block.request), "seeds": list(block.seeds or self.p.seeds)}
        pairs = [(setting, name) for setting in block.settings for name in block.recipes]
        return {
            (s.label, name): (name, key_of(asked | {"setting": s, "label": s.label, "recipe": block.recipes[name]})) for s, name in pairs
        }

    def _ran(self, block: Block) -> bool:
        """Whether a block was run and has rows."""
        keys = self._keys(block).values()
        return not block.absent and any(key in self._rows for key in keys)

    def numbers(self, name: str) -> pd.DataFrame:
        """The numbers of an exhibit as the paper's own functions make them, once, whether it is asked for or others are made of them."""
        if name not in self._numbers:
            exhibit, (rows, reasons) = self.paper.exhibit(name), self.rows(self.blocks(name))
            numbers = exhibit.numbers(self) if exhibit.numbers else exhibit.reduce(self.p, rows) if len(rows) else rows
            self._numbers[name] = numbers, reasons
        return self._numbers[name][0]

    def frame(self, name: str) -> pd.DataFrame:
        """The numbers of an exhibit, run as far as they are not there and it is asked for: of a printed table the frame of the result-file
        contract."""
        if name not in self._frames:
            exhibit, asked = self.paper.exhibit(name), self.p.asks(name)
            numbers, reasons = (self.numbers(name), self._numbers[name][1]) if asked else (pd.DataFrame(), {"": NOT_ASKED})
            reasons = (exhibit.reasons(self.p) if exhibit.reasons and asked else {}) | reasons
            self._reasons[name] = "; ".join(dict.fromkeys(reasons.values())) or self._left_out
            self._frames[name] = self._filled(exhibit, numbers, reasons) if self.is_printed(exhibit) else numbers
        return self._frames[name]

    def _filled(self, exhibit: Exhibit, numbers: pd.DataFrame, reasons: Mapping[str, str]) -> pd.DataFrame:
        """``numbers`` in the cells of the print, with the reasons of those that have none."""
        printed, blocks = cells(self.paper.name, exhibit.name), self.blocks(exhibit.name) if self.p.asks(exhibit.name) else []
        numbers = self._of_print(exhibit, numbers, printed) if len(numbers) else pd.DataFrame(columns=[*REQUIRED, "dataset", "model"])
        # Blocks that fill one place refuse the same methods: each is said once.
        for block in {tuple(b.place.items()): b for b in blocks if b.settings and not b.absent and b.offers is not None}.values():
            refused = self.p.refused(block.settings[0].model, block.offers)
            numbers = with_refused(self.paper.name, exhibit.name, numbers, refused, **block.place)
        for block in blocks:
            for label, fell in self._fell(block).items():
                # What a table prints as its columns may be run as settings.
                place = {"setting" if label in set(printed["setting"]) else "column": label}
                numbers = with_refused(self.paper.name, exhibit.name, numbers, fell, **place, **block.place)
        named = {name: reason for name, reason in reasons.items() if name}
        # The print has no cells of the user's methods to say it in: beside those that they have, the same reasons hold.
        place = [name for name in ("dataset", "model", "setting", "method") if name in numbers]
        for _, own in numbers.loc[numbers["method"].isin(self.p.own), place].drop_duplicates().iterrows():
            for column in printed["column"].unique():
                told = {own["method"]: named[column]} if column in named else {}
                numbers = with_refused(self.paper.name, exhibit.name, numbers, told, column=column, **own.drop("method"))
        return fill(self.paper.name, exhibit.name, numbers, reason=reasons.get("", self._left_out), reasons=named)

    @property
    def _left_out(self) -> str:
        """Why a cell has no numbers where nothing else is known: by the parameters, or by those of the run that the trainings are of."""
        return self.paper.left_out + (f", or not among the trainings of {self.p.trained.name}" if self.p.trained else "")

    def _fell(self, block: Block) -> dict[str, dict[str, str]]:
        """By setting, the user's methods that a block tried and that have no rows, with the reason: the print has no cells to say it in."""
        told: dict[str, dict[str, str]] = {}
        for (label, name), key in self._keys(block).items():
            if name in self.p.own and key in self._failed:
                told.setdefault(label, {})[name] = self._failed[key]
        return told

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
        """Write the files of an exhibit that is asked for, say what was run, and return it laid out for reading; or say why nothing was."""
        exhibit, numbers, printed = self.paper.exhibit(name), self.frame(name), self.is_printed(self.paper.exhibit(name))
        if not self.p.asks(name):
            return NOT_HERE
        if names := exhibit.columns(self.p) if exhibit.columns else {}:
            numbers = numbers[numbers["column"].isin(names)].replace({"column": names})
        if exhibit.draw is None and printed:
            # Where nothing was run the reasons of all its cells are the result.
            write_table(numbers, self.folder, name)
        if numbers.empty or ("mean" in numbers and numbers["mean"].isna().all()):
            self._not_made[name] = numbers["status"].iloc[0] if len(numbers) else f"not run: {self._reasons[name]}"
            return Note(self._not_made[name])
        about = self.about(exhibit)
        if exhibit.draw is None:
            if not printed:
                write_numbers(numbers, self.folder, name)
            print(f"{exhibit.title}: {about}")
            if printed:
                return Page(summary(numbers), apart(numbers))
            return Page(exhibit.page(self, numbers) if exhibit.page else _wide(numbers))
        options = exhibit.options(self) if callable(exhibit.options) else exhibit.options
        told = draw_figure(exhibit.draw, numbers, self.folder, name, f"{exhibit.title}\n{about}", compares=exhibit.compares, **options)
        if not (self.folder / f"{name}.png").exists():
            self._not_made[name] = told
        return Page(told, exhibit.page(self, numbers)) if exhibit.page else told

    def about(self, exhibit: Exhibit) -> str:
        """What has to stand beside a result: data and what stands in, network, clients, schedule, seeds, split, cut streams, profile."""
        if exhibit.said:
            rows, _ = self.rows(self.blocks(exhibit.name))
            held = rows.loc[rows["stand_in"], "column"].unique() if "stand_in" in rows else ()
            return exhibit.said(self.p) + (f" ({', '.join(held)}: stand-in)" if len(held) else "")
        numbers = self.frame(exhibit.name)
        if absent := [name for name in PROVENANCE if name not in numbers]:
            raise ValueError(f"the numbers of {exhibit.name} lack {', '.join(absent)}: give them, or the exhibit a caption (said)")
        ran = numbers[numbers["run_dataset"].fillna("") != ""]
        data = []
        for name, part in ran.groupby("run_dataset", sort=False):
            stands_in = part["status"] == "stand-in"
            columns = f"{', '.join(part.loc[stands_in, 'column'].unique())}: " if "column" in part and not stands_in.all() else ""
            data.append(f"{name} ({columns}stand-in)" if stands_in.any() else name)
        blocks = [block for block in self.blocks(exhibit.name) if self._ran(block)]
        settings = [s for block in blocks for s in block.settings]
        schedules = [s.schedule for s in settings]
        unit = ("epoch",) if all(s.local.steps is None for s in schedules) else ("minibatch", "minibatches")
        length = counted(_each(s.local.epochs if s.local.steps is None else s.local.steps for s in schedules), *unit)
        clients, images, splits = (_each(getattr(s.protocol, name, "") for s in settings) for name in ("n_clients", "images", "split"))
        sizes = _each(size for s in settings if (size := getattr(s.protocol, "train_size", 1)) < 1)
        costly = [recipe.costly for block in blocks for recipe in block.recipes.values()]
        limits = [self.p.request(**b.request).costly_samples for b in blocks if any(r.costly for r in b.recipes.values())]
        cut = _each("image" if limit == 1 else f"{limit} images" for limit in limits if limit)
        facts = [
            ", ".join(data),
            _each(ran["run_model"]),
            f"{images} images" if images else "",
            self.paper.who(self.p, blocks) if self.paper.who else f"{clients} clients" if clients else "",
            f"training parts cut to {sizes}" if sizes else "",
            f"{counted(_each(s.rounds for s in schedules), 'round')} x {length}" if schedules else "",
            counted(_each(ran["n_seeds"].astype(int)), "seed"),
            f"{splits} split" if splits else "",
            f"{'all' if all(costly) else 'per-sample'} methods on the first {cut} of a stream" if cut else "",
            self.p.origin,
        ]
        return ", ".join(fact for fact in facts if fact)

    @functools.cached_property
    def benchmark(self) -> Benchmark:
        """The clients that the notebook shows first."""
        return benchmark_of(self.paper.setting(self.p).protocol, self.p.seeds[0], self.p.data_root)

    def clients(self) -> pd.DataFrame:
        """Draw who holds what and what the tests look like; returns how many images each client's tests have."""
        benchmark, setting = self.benchmark, self.paper.setting(self.p)
        caption = f"Clients of {setting.label} and their tests; {benchmark.images}, seed {self.p.seeds[0]}, profile {self.p.profile}."
        picture = style.heading(self.paper.picture(benchmark), caption)
        write_figure(picture, benchmark.report().reset_index(), self.folder, "clients", caption)
        print(caption, *benchmark.notes)
        counts = {c.id: {column: len(draws[0]) for column, draws in c.tests.items()} for c in benchmark.clients}
        return pd.DataFrame(counts).T.astype("Int64").astype(object).fillna("–").rename_axis("client")

    def runs(self, name: str) -> pd.DataFrame | Note:
        """What an exhibit needed: by method, whether its training and its scores came from the cache, and the seconds it took to adapt."""
        if not self.p.asks(name):
            return NOT_HERE
        rows, reasons = self.rows(self.blocks(name))
        if rows.empty:
            return Note(f"not run: {'; '.join(reasons.values()) or self.paper.left_out}")
        came = {"trained": ("train_cached", _came), "adapted": ("cached", _came), "seconds": ("seconds", "sum")}
        shown = rows.groupby("method", sort=False).agg(**came).round(2)
        return shown.assign(trained=f"from {self.p.trained.name}") if self.p.trained else shown

    def explore(self, name: str, first: str = "") -> None:
        """Controls to look at single test images of an exhibit's first block, stage by stage, beginning with the method ``first``; not for
        oracles, which choose among scores with the labels of all."""
        # Widgets are for notebooks; recipes and settings are read without them too.
        from fedlib.plots.explore import show

        about = self.about(self.paper.exhibit(name)) if self.p.asks(name) and len(self.frame(name)) else ""
        blocks = [block for block in self.blocks(name) if self._ran(block)] if about else []
        p, block = self.p, blocks[0] if blocks else Block([], {})
        # The controls begin with the last.
        recipes = {n: block.recipes[n] for n in sorted(block.recipes, key=lambda n: n == first) if not block.recipes[n].oracle}
        show(Cases(block.settings, recipes, p.seeds, p.request(**block.request), p.cache, p.data_root, p.engine(), p.trained), about)

    def claims(self) -> Page:
        """Judge and write the paper's claims on everything that is asked for, shown already or not."""
        asked = [exhibit for exhibit in self.paper.exhibits if self.p.asks(exhibit.name)]
        tables = {e.name: self.frame(e.name) for e in asked if self.is_printed(e)}
        read = claims_of(self.paper.name).FIGURE_COLUMNS
        figures = {e.name: self.frame(e.name) for e in asked if e.name in read and len(self.frame(e.name))}
        verdicts = ledger(self.paper.name, tables, figures, changed=self.p.changed(self.paper.profiles), own=self.p.own)
        write_claims(verdicts, self.folder)
        return claims_page(verdicts)

    def finish(self) -> Note:
        """Write ``run.json``, which makes the folder complete, and the page that links what is in it. Returns where they are."""
        p, benchmark = self.p, self.benchmark
        write_run(
            self.folder,
            profile=p.profile,
            seeds=p.seeds,
            device=p.device,
            cpu_threads=p.engine().threads,
            duration_seconds=time.perf_counter() - self.started,
            cache_hits=int(sum(rows["cached"].sum() for rows in self._rows.values())),
            accounts=self._accounts,
            # Who asks for all knows that some need more than is at hand.
            not_made=self._not_made if p.tables else None,
            dataset=benchmark.dataset,
            notes=list(benchmark.notes),
            parameters=p.facts(),
        )
        write_index(self.folder)
        return Note(f"The results are in {in_project(self.folder)}, where index.html links everything.")


def _wide(numbers: pd.DataFrame) -> pd.DataFrame:
    """A study without print: methods and settings down, tests across; numbers that are no accuracies as they are."""
    if "mean" not in numbers:
        return numbers
    return numbers.pivot_table(index=["method", "setting"], columns="column", values="mean", sort=False)


def _stacked(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """All rows, which none may have."""
    parts = [part for part in parts if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _each(values: Iterable) -> str:
    return "/".join(dict.fromkeys(str(value) for value in values if value))


def _came(cached: pd.Series) -> str:
    return "cached" if cached.all() else "computed"
