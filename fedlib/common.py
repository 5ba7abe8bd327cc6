"""What all papers share between the experiment and the page: parameters with profiles, and the step from measured rows to printed cells."""

import functools
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import pandas as pd

from fedlib.cache.store import key_of
from fedlib.core import Local, Recipe
from fedlib.data import about, check_set, counts, known, load, named, shown
from fedlib.extras import Extra, gather, of_extra, on_plain, published
from fedlib.models import Net, norm_kinds
from fedlib.published import cells
from fedlib.published.units import all_seen, units_of
from fedlib.setting import Request
from fedlib.stages.engine import Engine
from fedlib.start import TRAINED, Pretrained, pretrained
from fedlib.tools.files import data_folder
from fedlib.tools.names import check_name
from fedlib.tools.parameters import PROFILES, PROJECT
from fedlib.train.fedavg import FedAvg

# What clients of a user's data bring: the tested ones hold labels, a validation part among them.
LABELLED = ("labels", "validation")
# Parameters that say where files are and what computes.
PLACES = ("jobs", "device", "data_root", "cache", "output")
NONE = "none"  # a data set whose tables are not to be run
# In place of a list of names, where the profile has a shorter one. In parameters whose profile is filled in, None says the same.
ALL = "all"
LISTS = ("methods", "tables", "protocols")
MOST = 1_000_000  # of anything that is counted; more is a slip of the hand and would fill the memory
# Parameters that name a data set.
SETS = ("dataset", "imagenet32", "officehome", "office", "attribute", "cifar100", "digits5", "pacs", "domains")


@dataclass(frozen=True)
class Common:
    """Parameters of every notebook, with the defaults that its parameters cell repeats: what was saved there since is a change like any
    other. None stands for the profile's value (``PROFILES`` of each paper's settings).

    profile: smoke, small or paper; dataset: name of the images; methods, tables: names of what is run, published or a user's, or ``ALL``
    (None: what the profile names, else all); clients: how many; rounds, local_epochs, lr, batch_size: federated schedule; extra: own
    methods, as in ``fedlib.extras``; start: trained federation in place of training, as in ``fedlib.start``, None then standing for what
    its run had; seeds: one run each; costly_samples: length at which streams of methods with per-sample gradients are cut, 0 for not at
    all; jobs: processes; device: cpu or cuda; data_root: folder of real data sets; cache: folder of cached stages; output: folder of the
    results.
    """

    profile: str = "smoke"
    dataset: str | None = None
    methods: list[str] | str | None = None
    tables: list[str] | str | None = None
    clients: int | None = None
    rounds: int | None = None
    local_epochs: int | None = None
    lr: float | None = None
    batch_size: int | None = None
    extra: str | dict | None = None
    start: str | None = None
    seeds: list[int] | None = None
    costly_samples: int | None = None
    jobs: int = 2
    device: str = "cpu"
    data_root: str | None = None
    cache: str = "cache"
    output: str | None = None

    @classmethod
    def defaults(cls) -> dict:
        """All parameters by name, as the notebook's parameters cell has them."""
        blank = cls()
        return {f.name: getattr(blank, f.name) for f in fields(cls)}

    def __post_init__(self):
        check_name(self.profile, PROFILES, "profile")
        self.check_least(clients=2, rounds=1, local_epochs=1, batch_size=1, costly_samples=0, jobs=1)
        self.check_positive("lr")
        if empty := [f.name for f in fields(self) if getattr(self, f.name) == ""]:
            raise ValueError(f"parameter {empty[0]} is empty: leave it out, or give it a value")
        for name, value in ((f.name, getattr(self, f.name)) for f in fields(self) if not f.name.endswith("seed")):
            if isinstance(value, int) and value > MOST:
                raise ValueError(f"parameter {name} must be at most {MOST:,}, got {value:,}")
        if self.seeds is not None and (not self.seeds or min(self.seeds) < 0 or len(set(self.seeds)) < len(self.seeds)):
            raise ValueError(f"parameter seeds must be distinct integers of at least 0, got {self.seeds}")
        if self.seeds is not None and max(self.seeds) >= 2**32:
            raise ValueError(f"parameter seeds must be below 2**32, got {max(self.seeds)}")
        for name in LISTS:
            value = getattr(self, name, None)
            if value == []:
                raise ValueError(f"parameter {name} is empty, so there is nothing to run: name some, or {ALL}")
            if isinstance(value, list) and (twice := [item for i, item in enumerate(value) if item in value[:i]]):
                raise ValueError(f"parameter {name} names {twice[0]} twice")
            if isinstance(value, str) and value != ALL:
                how = f"with papermill, -y '{name}: {value}'" if value.startswith("[") else f"write [{value!r}]"
                raise ValueError(f"parameter {name} must be a list of names, or {ALL}, got the text {value!r}: {how}")
        for name, value in self.sets().items():
            # The others have a choice of their own in their paper.
            if name in ("dataset", "officehome", "imagenet32") and value is not None and own_path(value) is None:
                check_set(value, f"data set (parameter {name})", self.WHOLE if name == "dataset" else (NONE, "published"))
        self.engine()
        _ = self.extras, self.trained

    def check_least(self, **least: int) -> None:
        """Raise ValueError for a parameter that is given and below its least value."""
        for name, low in least.items():
            if (value := getattr(self, name)) is not None and value < low:
                raise ValueError(f"parameter {name} must be at least {low}, got {value}")

    def check_positive(self, *names: str) -> None:
        """Raise ValueError for one of these parameters that is given and not above 0."""
        for name in names:
            if (value := getattr(self, name)) is not None and not 0 < value < math.inf:
                raise ValueError(f"parameter {name} must be above 0, got {value}")

    @functools.cached_property
    def trained(self) -> Pretrained | None:
        """The trained federation to start from, if any."""
        return None if self.start is None else pretrained(self.start)

    @property
    def origin(self) -> str:
        """The profile and, where nothing is trained, where the trained federation is from: what ends the line beside every result."""
        return f"profile {self.profile}" + ("" if self.trained is None else f", from the trained federation {self.trained.name}")

    def begun(self) -> Self:
        """These parameters with those of the run that made the trained federation where they are not given.

        Raises ValueError for a parameter that contradicts what was trained, a profile that is not the default one included."""
        if self.trained is None:
            return self
        if self.profile not in (Common.profile, self.trained.profile):
            raise ValueError(
                f"parameter profile is {self.profile!r}, but {self.trained.name} was trained in {self.trained.profile!r}: leave it out"
            )
        names = [f.name for f in fields(self)]
        run = {"methods": None, "tables": None} | self.trained.parameters | {"profile": self.trained.profile, "seeds": self.trained.seeds}
        if run["methods"] is None:
            run["methods"] = [name for name in self.trained.methods if name in published()]
        run["methods"] = [name for name in run["methods"] if name in self.trained.methods] + list(self.extras)
        # A run that names no table had all, whatever its profile has by now.
        run["tables"] = run["tables"] or ALL
        told = self.told()
        left = [name for name in names if told[name] is None or name == "profile"]
        for name in (name for name in TRAINED if name in run and name in names and name not in left):
            if told[name] != run[name]:
                raise ValueError(
                    f"parameter {name} is {told[name]!r}, but {self.trained.name} was trained with {run[name]!r}: leave it out"
                )
        if absent := sorted({*(self.seeds or ())} - {*self.trained.seeds}):
            raise ValueError(f"parameter seeds names {absent}, but {self.trained.name} was trained with {self.trained.seeds}")
        try:
            return replace(self, **{name: run[name] for name in left if name in run and name not in (*PLACES, "extra", "start")})
        except ValueError as error:
            raise ValueError(f"parameter start: the run of {self.trained.name} does not fit here: {error}") from error

    @functools.cached_property
    def extras(self) -> dict[str, Extra]:
        """One's own methods: those registered when the parameters were read, and those of ``extra``."""
        return gather(self.extra)

    @property
    def own(self) -> list[str]:
        """The names of the user's methods that ``methods`` allows."""
        return [name for name in self.extras if self.allows(name)]

    def allows(self, method: str) -> bool:
        """Whether the parameter ``methods`` lets a method run."""
        return self.methods is None or method in self.methods

    def asks(self, *sections: str) -> bool:
        """Whether one of these tables, figures or studies is part of the run."""
        return self.tables is None or any(section in self.tables for section in sections)

    def check_methods(self, published: Iterable[str]) -> None:
        """Raise ValueError for a name in ``methods`` that is neither published nor a user's, and if it names no method of ``extra``."""
        for name in listed(self.methods):
            check_name(name, [*published, *self.extras], "method", "Methods of one's own are given with the parameter extra")
        if (mine := of_extra(self.extras)) and not any(map(self.allows, mine)):
            raise ValueError(f"parameter methods names none of those that extra gives ({', '.join(mine)}): add one, or leave extra out")

    def beside(self, model: str, offers: Collection[str] = LABELLED, plain: FedAvg | None = None) -> dict[str, Recipe]:
        """One's own methods as far as ``methods`` allows them and they run on the network ``model`` with clients that bring ``offers``;
        those that start from plain FedAvg start from ``plain``, the paper's (``fedlib.extras.on_plain``)."""
        refused = self.refused(model, offers)
        return {name: on_plain(self.extras[name].recipe, plain) for name in self.own if name not in refused}

    def refused(self, model: str | type[Net], offers: Collection[str] = LABELLED) -> dict[str, str]:
        """One's own methods that ``methods`` allows and that do not run there, with the reason."""
        there = (*offers, "batch norm" if self.own and norm_kinds(model) else "no batch norm")
        why = {name: self.extras[name].lacks(there) for name in self.own}
        return {name: reason for name, reason in why.items() if reason}

    def local(self, phase: Local) -> Local:
        """A phase of local training with the parameters ``lr`` and ``batch_size`` in place of its own; Adam keeps its step size."""
        given = {"lr": self.lr if phase.optimizer == "sgd" else None, "batch_size": self.batch_size}
        return replace(phase, **{name: value for name, value in given.items() if value is not None})

    def resolved(self, profiles: dict[str, dict]) -> Self:
        """These parameters with every None that the profile knows replaced by its value, ``ALL`` by None, and folders relative to the
        project."""
        placed = self.placed().begun()
        values = profiles[placed.profile]
        filled = {f.name: values[f.name] for f in fields(self) if getattr(placed, f.name) is None and f.name in values}
        if "methods" in filled:
            # The profile chooses among the published ones only.
            filled["methods"] = [*filled["methods"], *self.extras]
        filled |= {name: None for name in LISTS if getattr(placed, name, None) == ALL}
        folders = {"data_root": data_folder(self.data_root), "cache": Path(self.cache).expanduser()}
        return replace(placed, **filled, **{name: str(PROJECT / folder) for name, folder in folders.items()})

    WHOLE: ClassVar[tuple[str, ...]] = ()  # what may stand for the dataset besides the name of one
    FOLLOWS: ClassVar[tuple[str, ...]] = ()  # parameters that take a user's data set where they are not given; the other ones leave out

    def sets(self) -> dict[str, str | None]:
        """The parameters that name data sets."""
        return {name: getattr(self, name) for name in SETS if hasattr(self, name)}

    def placed(self) -> Self:
        """These parameters with the paths of a user's data sets in full, and all of them on it if ``dataset`` is one."""
        paths = {name: str(path) for name, value in self.sets().items() if value and (path := own_path(value))}
        if "dataset" in paths:
            others = [name for name, value in self.sets().items() if value is None]
            paths |= {name: paths["dataset"] if name in self.FOLLOWS else NONE for name in others}
        return replace(self, **paths)

    def left_out(self, images: str) -> str:
        """Why what needs the images of the parameter ``images`` does not run where that is ``none``, "" where it is not."""
        if getattr(self, images) != NONE:
            return ""
        main = about(self.dataset)
        own = f"left out on {main.shown}; the parameter {images} can name images for it"
        return own if main.own else f"switched off by the parameter {images}"

    def told(self) -> dict:
        """All parameters by name, a user's data sets without their location on this machine."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values |= {"start": self.trained.name if self.trained else None}
        return values | {name: about(value).shown for name, value in self.sets().items() if value and own_path(value)}

    def engine(self) -> Engine:
        return Engine(device=self.device)

    def changed(self, profiles: dict[str, dict]) -> list[str]:
        """Names of the numbers (clients, rounds, rates, seeds, samples) that are not those of profile ``paper``."""
        paper = {f.name: None for f in fields(self)} | profiles["paper"]
        numbers = [name for name, value in profiles["paper"].items() if isinstance(value, int | float | list)]
        # Schedules for which the paper's profile has no number, but the caller gave one.
        others = [f.name for f in fields(self) if f.name not in (*profiles["paper"], "jobs")]
        given = [name for name in others if isinstance(getattr(self, name), int | float)]
        return [f.name for f in fields(self) if f.name in (*numbers, *given) and getattr(self, f.name) != paper[f.name]]

    def execution(self) -> dict:
        """Keyword arguments of ``fedlib.run`` besides what is run."""
        return {"cache": self.cache, "root": self.data_root, "engine": self.engine(), "n_jobs": self.jobs, "start": self.trained}

    def request(self, **fields) -> Request:
        """What to evaluate; of several rounds those that the trained federation holds, where one is started from and holds any."""
        request = Request(**{"costly_samples": self.costly_samples or None} | fields)
        held = {t for f in self.trained.federations for t in self.trained.resolved(f)} if self.trained else set()
        return replace(request, rounds=tuple(t for t in request.rounds if t in held) or request.rounds)

    def missing(self, error: FileNotFoundError) -> str:
        """Why images are absent, in one line that does not reveal where this machine keeps its data."""
        return str(error).replace(str(self.data_root), "data_root").replace("\n", " ")

    def facts(self) -> dict:
        """What was asked for, for ``run.json``: every parameter but those that say where files are and how many processes run."""
        return {name: value for name, value in self.told().items() if name not in (*PLACES, "profile", "seeds")} | self.extra_facts()

    def extra_facts(self, *, code: bool = True) -> dict:
        """One's own methods in words (without the addresses of plain classes, which differ in every process), by name, if there are any,
        and where the trainings are from, unless they are the run's own. code: with the hashes of each method's code and of one's own
        images."""
        recipes = {name: self.extras[name].recipe for name in self.own}
        own = {name: re.sub(r" at 0x[0-9a-f]+", "", repr(recipe)) for name, recipe in recipes.items()}
        if code:
            own = {name: f"{words}, {key_of(recipes[name])}" for name, words in own.items()}
        images = {about(name).shown: load(name).fingerprint() for name in self.sets().values() if code and name and own_path(name)}
        return {"extra": own or None} | ({"start": self.trained.name} if self.trained else {}) | ({"own_images": images} if images else {})

    def departures(self, standard: "Common") -> dict:
        """What was asked for and is not in the profile's ``standard``, as far as it changes results: name -> value."""
        usual = standard.told()
        changes = {name: ours for name, ours in self.told().items() if name not in (*PLACES, "extra") and ours != usual[name]}
        # Without their code: each edit of one's own method would leave a folder behind.
        return changes | {name: own for name, own in self.extra_facts(code=False).items() if own}


def listed(names: list[str] | str | None) -> list[str]:
    """The names that a list of ``LISTS`` gives, none where it stands for all."""
    return [] if names in (None, ALL) else list(names)


def own_path(name: str) -> Path | None:
    """The file or folder of a user's data set, by a path relative to the project or else to the current folder; None for other names.

    Raises ValueError where there is none."""
    if known(name):
        return None
    found = next((place for folder in (PROJECT, Path.cwd()) if (place := folder / Path(name).expanduser()).exists()), None)
    if found is None and (name.endswith(".npz") or "/" in name):
        places = " and none in ".join(dict.fromkeys(map(str, (PROJECT, Path.cwd()))))
        raise ValueError(f"no file or folder {name}: none in {places}")
    if found and "/" in name and not (found.is_dir() or name.endswith(".npz")):
        raise ValueError(f"{found} is neither a folder of images nor an .npz file: unpack or convert it")
    return found.resolve() if found and (found.is_dir() or name.endswith(".npz")) else None


def with_refused(paper: str, table: str, measured: pd.DataFrame, refused: Mapping[str, str], **block: str) -> pd.DataFrame:
    """``measured`` cells of a printed table and, for each of the user's methods that does not run there, its reason in every place of the
    print (in those of ``block``: dataset, model, setting) in which ``measured`` says nothing of it."""
    if not refused:
        return measured
    printed = cells(paper, table)
    for name, value in block.items():
        printed = printed[printed[name] == value]
    key = [name for name in ("dataset", "model", "setting", "column") if name in measured]
    places = printed[key].drop_duplicates()
    empty = {"mean": np.nan, "std": np.nan, "n_seeds": pd.NA, "run_dataset": "", "run_model": ""}
    rows = pd.concat([places.assign(method=name, **empty, status=f"not run: {reason}") for name, reason in refused.items()])
    there = pd.MultiIndex.from_frame(measured[[*key, "method"]])
    rows = rows[~pd.MultiIndex.from_frame(rows[[*key, "method"]]).isin(there)]
    return pd.concat([*([measured] if len(measured) else []), rows], ignore_index=True)


def average(rows: pd.DataFrame, by: Sequence[str] = ("setting", "method", "column"), **how) -> pd.DataFrame:
    """Measured rows (one per client and draw) -> mean and n-1 standard deviation over seeds, in percent.

    A client's draws are averaged first, then all clients equally (as FedTHE does), then the seeds. Returns ``by``, mean, std, n_seeds, n
    (different test images of all seeds and clients; what was made of an image counts as that image) and the paired ``units`` behind the
    cell. how: as for ``fedlib.published.units.units_of``.
    """
    units = units_of(rows, list(by), **how)
    frame = units.to_frame()
    frame["mean"], frame["std"] = [u.mean for u in units], [u.std for u in units]
    frame["n_seeds"], frame["n"] = [len(u.seeds) for u in units], pd.array([u.images for u in units], dtype="Int64")
    return frame.reset_index()[[*by, "mean", "std", "n_seeds", "n", "units"]]


def with_mean(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """``rows`` and, for every client, its mean over the test columns (draws first) as one more ``column``, on the images of all of them."""
    names = ("printed_dataset", "printed_model", "setting", "dataset", "model", "method", "seed", "round", "client")
    by = [name for name in names if name in rows]
    values = [name for name in ("accuracy", "cut_accuracy") if name in rows]
    images = [name for name in ("n", "cut_n") if name in rows]
    how = dict.fromkeys(values, "mean") | dict.fromkeys(images, "max") | ({"cut": "any"} if "cut" in rows else {})
    tests = rows.groupby([*by, "column"], sort=False).agg(how)
    means = tests.groupby(by, sort=False).agg(how | dict.fromkeys(images, "sum"))
    if "seen" in rows:
        means = means.join(all_seen(rows, by))
    return pd.concat([rows, means.reset_index().assign(column=column, draw=0)], ignore_index=True)


def densities(rows: pd.DataFrame, quantity: str, *, bins: int = 25) -> pd.DataFrame:
    """Histogram density of a per-sample ``quantity`` in [0, 1], samples of all clients and seeds pooled.

    Returns setting, method, column, weight (centre of the bin), density, n_seeds; the densities of a group integrate to one.
    """
    by, parts = ["setting", "method", "column"], []
    for key, group in rows[rows[quantity].notna()].groupby(by, sort=False):
        density, edges = np.histogram(np.concatenate(group[quantity].tolist()), bins=bins, range=(0, 1), density=True)
        frame = pd.DataFrame({"weight": (edges[1:] + edges[:-1]) / 2, "density": density, "n_seeds": group["seed"].nunique()})
        parts.append(frame.assign(**dict(zip(by, key, strict=True))))
    return pd.concat(parts, ignore_index=True)


def labelled(measured: pd.DataFrame, rows: pd.DataFrame, real: Sequence[str]) -> pd.DataFrame:
    """``measured`` with what was really run: ``run_dataset``, ``run_model`` and ``status`` ("ok" or "stand-in").

    real: printed data sets whose own images count in their own place (``printed_dataset`` and ``printed_model`` of the rows that have
    them), but for the tests whose ``rows`` say that they hold stand-ins. A column that is not among the rows' was made of several of them,
    and is a stand-in if one of its setting is. A user's images stand in for nothing.
    """
    first = rows.drop_duplicates("setting").set_index("setting")
    dataset, model = (measured["setting"].map(first[name]) for name in ("dataset", "model"))
    own = measured["setting"].map({setting: _in_place(ran, real) for setting, ran in first.iterrows()})
    holds = rows.groupby(["setting", "column"], sort=False)["stand_in"].any() if "stand_in" in rows else pd.Series(dtype=bool)
    made = holds.groupby("setting").any() if len(holds) else holds
    stand_in = [holds.get(cell, made.get(cell[0], False)) for cell in zip(measured["setting"], measured["column"], strict=True)]
    status = np.where(own & ~np.array(stand_in, dtype=bool), "ok", "stand-in")
    return measured.assign(run_dataset=dataset.map(shown), run_model=model, status=status)


def _in_place(ran: pd.Series, real: Sequence[str]) -> bool:
    """Whether images and network of a measured row are the printed ones, as far as it says which these are."""
    images, network = (ran.get(f"printed_{name}", np.nan) for name in ("dataset", "model"))
    own = real if pd.isna(images) else {images} & {*real}
    return counts(ran["dataset"], own) and (pd.isna(network) or ran["model"] == network or named(ran["dataset"]).own)
