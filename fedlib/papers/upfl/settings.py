"""UPFL's notebook as data: profiles, settings, recipes, and the numbers behind its tables; figures in ``fedlib.papers.upfl_figures``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from fedlib.core import Local, Recipe, Schedule
from fedlib.data import about as about_data
from fedlib.data import is_own
from fedlib.data.about import RECORDS
from fedlib.experiment import Engine, Request, Setting, run
from fedlib.names import check_name
from fedlib.notebook import read_parameters
from fedlib.papers.common import Common, average, own_path, with_refused
from fedlib.papers.common import shown as shown_name
from fedlib.papers.upfl.recipes import hetero, recipes
from fedlib.protocols.upfl import UPFL
from fedlib.published.compare import REQUIRED, fill

PUBLISHED = "published"  # every table on its own data set
# Printed data set -> its partition, network and rounds.
BLOCKS = {
    "mnist": ("pathological", "mlp", 200),
    "cifar10": ("pathological", "convnet", 1000),
    "femnist": ("natural", "convnet_2048", 200),
    "cifar100": ("superclass", "convnet", 1500),
    "fashion_mnist": ("pathological", "convnet", 300),
}
DECKS = ("mnist", "fashion_mnist")
OWN = "cifar10"  # the block in whose place a user's images run
METHODS = tuple(recipes())
ONE_MODEL = ("FedAvg", "FedProx", "SCAFFOLD", "AFL", "GMA", "FedADG", "FedSR")
SHARES = tuple(round(0.1 * i, 1) for i in range(1, 11))
STRENGTHS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)

# T1, AF2 and F3 rest on the main runs; T2 (label drift), F4 (concept shift) and F5 (unequal networks) have trainings of their own.
SECTIONS = ("T1", "T2", "F2", "F3", "F4", "F5", "AF2")
# What clients bring: half of them train, with a validation part each, and new ones are tested.
NEW = ("validation",)

# every: rounds between evaluations. None: what the paper has, for each data set.
STAND_IN = "digits"  # runs in the place of every printed data set, on small networks
_DIGITS = {"dataset": STAND_IN, "clients": 20, "rounds": 10, "steps": 10, "every": 5, "images": 0, "costly_samples": 0}
PROFILES = {
    "smoke": _DIGITS | {"rounds": 6, "every": 3, "seeds": [0]},
    "small": _DIGITS | {"seeds": [0, 1, 2]},
    "paper": {"dataset": PUBLISHED, "clients": 100, "steps": 20, "every": 10, "images": 0, "seeds": [0, 1, 2], "costly_samples": 0},
}


@dataclass(frozen=True)
class Parameters(Common):
    """The parameters of ``notebooks/upfl.ipynb``.

    dataset: ``digits`` (stands in for every data set), ``published`` (each table on its own), or one data set, for its own tables; clients:
    training and new ones together, even; rounds: None for the paper's; steps: minibatches per client and round, unless local_epochs asks
    for passes; every: rounds between evaluations; images: of the data set that enter, 0 for all; lr: of methods that bring no rates of
    their own, as the published ones do; tables: of ``SECTIONS``, what is run besides the counts of clients and layers (None: all).
    """

    steps: int | None
    every: int | None
    images: int | None

    def __post_init__(self):
        super().__post_init__()
        for name in ("steps", "every"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"parameter {name} must be at least 1, got {getattr(self, name)}")
        if self.images is not None and self.images < 0:
            raise ValueError(f"parameter images must be at least 0, got {self.images}")
        if self.clients is not None and self.clients % 2:
            raise ValueError(f"parameter clients must be even, half of them train; got {self.clients}")
        if self.dataset is not None and own_path(self.dataset) is None:
            kin = (name for name, record in RECORDS.items() if record.printed in BLOCKS)
            check_name(self.dataset, (STAND_IN, PUBLISHED, *kin), "data set")
        self.check_methods(METHODS)
        for name in self.tables or ():
            check_name(name, SECTIONS, "table or figure")

    def asks(self, *sections: str) -> bool:
        return self.tables is None or any(section in self.tables for section in sections)

    def changed(self, profiles: dict[str, dict]) -> list[str]:
        """A part of a data set is fewer images."""
        part = self.dataset is not None and about_data(self.dataset).part
        return list(dict.fromkeys([*super().changed(profiles), *(["images"] if part else [])]))

    def engine(self) -> Engine:
        """Small dense networks train all clients of a round in one stack."""
        return Engine(device=self.device, chunk_size=25 if self.dataset in (None, STAND_IN) and self.device == "cpu" else None)


def parameters(namespace: Mapping) -> Parameters:
    """The notebook's checked parameters, with the profile's values filled in."""
    return read_parameters(Parameters, namespace).resolved(PROFILES)


def run_on(p: Parameters, printed: str) -> str | None:
    """The data set on which a block printed for ``printed`` is run, None for not at all."""
    record = about_data(p.dataset)
    if p.dataset == PUBLISHED:
        return printed
    family = OWN if record.own else record.printed
    return p.dataset if p.dataset == STAND_IN or family == printed else None


def label(p: Parameters, printed: str, partition: str) -> str:
    """Name of a setting: its data and partition, so that blocks with one stand-in share it."""
    dataset = run_on(p, printed)
    return f"{about_data(dataset).shown if about_data(dataset).own else dataset}, {partition}"


def setting(p: Parameters, printed: str, partition: str, **fields) -> Setting:
    """The clients of a printed data set under ``partition``, with the paper's schedule; ``fields``: further ones of ``UPFL``."""
    dataset, (_, network, rounds) = run_on(p, printed), BLOCKS[printed]
    if partition == "concept":  # the paper's 1,000 images are for 50 clients
        fields = {"n_clients": min(p.clients, 50), "shards": 10} | fields
    elif p.images:
        fields = {"images": p.images} | fields
    protocol = UPFL(dataset, partition, **{"n_clients": p.clients, "deck": about_data(dataset).printed in DECKS} | fields)
    length = {"epochs": p.local_epochs} if p.local_epochs else {"steps": p.steps}
    local = Local(lr=0.1, weight_decay=1e-4, batch_size=64, clip=10.0, decay=0.99**0.1, continued=True, diverged="drop", **length)
    local = p.local(local)
    schedule = Schedule(p.rounds or rounds, local, local, save_every=p.every)
    return Setting(label(p, printed, partition), protocol, "mlp" if dataset == STAND_IN else network, schedule)


def evaluated(s: Setting) -> tuple[int, ...]:
    """Rounds of the experiment at which a setting is evaluated: after every ``every`` training rounds and after the last.

    The experiment counts states *before* a round, so that 1 + k is the state after k rounds."""
    last = s.schedule.rounds
    return tuple(1 + k for k in sorted({*range(s.schedule.save_every, last + 1, s.schedule.save_every), last}))


def measure(p: Parameters, printed: Sequence[tuple[str, str]], names: Iterable[str] | None = None, **options) -> pd.DataFrame:
    """Rows of the experiment for (data set, partition) pairs, with ``finished`` training rounds; each setting runs once.

    names: published methods (None: all); options: ``fields`` of the protocol, ``own`` of the recipes, ``rounds`` and further fields of the
    request.
    """
    fields, own = options.pop("fields", {}), options.pop("own", True)
    frames, done = [], set()
    for dataset, partition in printed:
        suited = chosen(p, run_on(p, dataset), names, own=own) if run_on(p, dataset) else {}
        if not suited or label(p, dataset, partition) in done:
            continue
        s = setting(p, dataset, partition, **fields)
        done.add(s.label)
        request = p.request(**{"rounds": evaluated(s)} | options)
        frames.append(run([s], suited, p.seeds, request=request, **p.execution()))
    rows = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=["setting", "method", "cached", "train_cached"])
    return rows.assign(finished=rows["round"] - 1) if len(rows) else rows


def chosen(p: Parameters, dataset: str, names: Iterable[str] | None = None, **options) -> dict[str, Recipe]:
    """Recipes by published name, with the rates of the data set, and one's own, as far as ``methods`` allows."""
    widths = {"widths": (256, 128)} if dataset == STAND_IN else {}
    table = recipes(dataset, **widths, **options) | p.beside("mlp", NEW)
    return {name: table[name] for name in names or table if name in table and name in (p.methods or table)}


def unequal(p: Parameters) -> pd.DataFrame:
    """Rows of the study with networks of three sizes; test accuracy of the new clients only."""
    dataset = run_on(p, "cifar10")
    if dataset is None or not p.asks("F5"):
        return pd.DataFrame()
    s = setting(p, "cifar10", "public")
    # A newcomer learns from two passes over the public images alone: 179 digits have to make up for 6,000 in small batches.
    networks = {"networks": ("mlp_small", "mlp", "mlp_big"), "batch_size": 10} if dataset == STAND_IN else {}
    request = Request(rounds=evaluated(s), columns=("test",))
    rows = run([s], hetero(STRENGTHS, **networks), p.seeds, request=request, **p.execution())
    return rows.assign(finished=rows["round"] - 1, model="mlp_small|mlp|mlp_big" if networks else "convnet_small|medium|big")


def pooled(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Accuracy over all images of all clients, as in the paper's code, then mean and n-1 standard deviation over seeds.

    Returns ``by``, what ``fedlib.papers.common.average`` does, and what was run: run_dataset, run_model.
    """
    by = list(by)
    first = rows.groupby(by, sort=False)[["dataset", "model"]].first().rename(columns={"dataset": "run_dataset", "model": "run_model"})
    result = average(rows, by, weighted=True).join(first, on=by)
    return result.assign(run_dataset=named(result["run_dataset"]))


def selected(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows at each (setting, method, seed)'s round of best validation accuracy, the first of equals; tests are never looked at."""
    run = ["setting", "method", "seed"]
    validation = _by_seed(rows[rows["column"] == "validation"], ["setting", "method", "round"])
    best = validation.sort_values(["accuracy", "round"], ascending=[False, True]).drop_duplicates(run)
    return rows.merge(best[[*run, "round"]], on=[*run, "round"])


def _by_seed(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    parts = rows.assign(correct=rows["accuracy"] * rows["n"]).groupby([*by, "seed"], sort=False)
    return (parts["correct"].sum() / parts["n"].sum()).rename("accuracy").reset_index()


def named(datasets: pd.Series) -> pd.Series:
    """Data sets as they are called wherever a result from them is shown."""
    return datasets.map(shown_name)


def status(frame: pd.DataFrame, printed: str) -> pd.DataFrame:
    """``frame`` with ``status``: "ok" where the run data set is the printed one (or a copy or part of it, which is named) or a user's, else
    "stand-in"; ``printed`` may be ``mnist_rotated``."""
    printed = printed.removesuffix("_rotated")
    own = {record.shown for record in RECORDS.values() if record.printed == printed}
    run = frame["run_dataset"].str.removesuffix("_rotated").str.removesuffix(", rotated")
    return frame.assign(status=["ok" if name in own or is_own(name) else "stand-in" for name in run])


def table1(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Validation and test at the round of best validation; every printed block takes the rows of its own setting or stand-in."""
    measured = pooled(selected(rows), ["setting", "method", "column"]) if len(rows) else rows
    blocks = []
    for printed, (partition, network, _) in BLOCKS.items():
        if len(rows) and run_on(p, printed):
            block = measured[measured["setting"] == label(p, printed, partition)]
            network = network.removesuffix("_2048")
            blocks.append(status(block, printed).assign(dataset=printed, model=network, setting=partition))
    return filled("T1", blocks, p.refused("mlp", NEW))


def table2(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Label drift; a method with one model for all clients has one test value, over the images of all test alphas."""
    if rows.empty:
        return filled("T2", [])
    best = selected(rows).assign(setting="Dir(0.1) train")
    one = best["method"].isin(ONE_MODEL) & (best["column"] != "validation")
    best["column"] = best["column"].where(~one, "test")
    return filled("T2", [status(pooled(best, ["setting", "method", "column"]), "cifar10")], p.refused("mlp", NEW))


def alphas(rows: pd.DataFrame) -> pd.DataFrame:
    """alpha, method, mean of the methods with one model: claim U6."""
    best = selected(rows[rows["method"].isin(ONE_MODEL)])
    tests = best[best["column"] != "validation"]
    tests = tests.assign(alpha=tests["column"].str.removeprefix("test_alpha_").astype(float))
    return status(pooled(tests, ["alpha", "method"]), "cifar10").sort_values(["method", "alpha"], ignore_index=True)


def filled(table: str, blocks: Sequence[pd.DataFrame], refused: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Contract frame of a table; refused: one's own methods that do not run in it, with the reason."""
    measured = pd.concat(blocks, ignore_index=True) if len(blocks) else pd.DataFrame(columns=list(REQUIRED))
    measured = with_refused("upfl", table, measured, refused or {})
    return fill("upfl", table, measured, reason="left out by the parameters of this run (data set or methods)")


def about(p: Parameters, *printed: str, concept: bool = False) -> str:
    """One line that has to stand beside every result: data, stand-in, profile, schedule, seeds.

    printed: data sets in the print (none: all); concept: of the study with few images and clients."""
    names = [run_on(p, name) for name in printed or BLOCKS]
    data = ", ".join(dict.fromkeys(shown_name(name) for name in names if name))
    stand_in = " (stand-in for each data set of the paper)" if p.dataset == STAND_IN else ""
    length = f"{p.local_epochs} epochs" if p.local_epochs else f"{p.steps} minibatches"
    images, clients = (1000, min(p.clients, 50)) if concept else (p.images, p.clients)
    data += f" ({images:,} images)" if images else ""
    schedule = f"{clients} clients, {p.rounds or 'the paper’s'} rounds of {length}"
    return f"{data}{stand_in}, {schedule}, {len(p.seeds)} seed{'s' * (len(p.seeds) > 1)}, {p.profile}"


def notes(p: Parameters) -> list[str]:
    """What the clients of all partitions that run have to say about themselves, such as what stands in."""
    blocks = [*((name, block[0]) for name, block in BLOCKS.items()), *([("cifar10", "dirichlet")] if p.asks("T2") else [])]
    settings = [setting(p, name, partition) for name, partition in blocks if run_on(p, name)]
    protocols = {s.label: s.protocol for s in settings}.values()
    return sorted({note for protocol in protocols for note in protocol.build(p.seeds[0], p.data_root).notes})


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """The cells of a table that were run."""
    return table[table["mean"].notna()]
