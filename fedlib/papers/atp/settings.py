"""ATP's notebook as data: profiles, blocks of settings, recipes, and the numbers behind its tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from fedlib.core import Benchmark, Local, Recipe, Schedule
from fedlib.data import about as about_data
from fedlib.data import is_own
from fedlib.experiment import Request, Setting, run
from fedlib.names import check_name
from fedlib.notebook import read_parameters
from fedlib.papers import common
from fedlib.papers.atp.recipes import GRIDS, RECIPES, Grids, recipes
from fedlib.papers.common import Common, counts, own_path, shown, with_refused
from fedlib.personalize.rates import Rates
from fedlib.protocols.ttpfl import SHIFTS, TTPFL
from fedlib.published import cells
from fedlib.published.compare import REQUIRED, fill

PROFILES = {
    "smoke": {
        **{"dataset": "digits", "cifar100": "digits", "digits5": "digits5", "pacs": "digits5", "model": "shallow_cnn"},
        **{"clients": 20, "domain_clients": 5, "images": 0, "rounds": 12, "local_epochs": 1, "rate_rounds": 12, "rate_lr": 0.02},
        **{"test_batch": 20, "seeds": [0], "costly_samples": 12},
        **{"targets": 60, "last_rounds": 1},
    },
    "small": {
        **{"dataset": "digits", "cifar100": "digits", "digits5": "digits5", "pacs": "digits5", "model": "shallow_cnn"},
        **{"clients": 40, "domain_clients": 5, "images": 0, "rounds": 30, "local_epochs": 1, "rate_rounds": 60, "rate_lr": 0.02},
        **{"test_batch": 20, "seeds": [0, 1, 2], "costly_samples": 20},
        **{"targets": 60, "last_rounds": 3},
    },
    "paper": {
        **{"dataset": "cifar10", "cifar100": "cifar100", "digits5": "digits5_fedbn", "pacs": "pacs", "images": 0},
        **{"rounds": 200, "local_epochs": 1, "seeds": [0, 1, 2, 3, 4], "costly_samples": 0},
        **{"targets": 0, "last_rounds": 1},
    },
}
# Stands in for the published grids where the profile is not the paper's.
SHORT = Grids((1e-3, 1e-2, 1e-1), (4, 16, 64), (0.0, 0.1), (-1, 20), (2, 5), GRIDS.blocks, memo_limit=2)


@dataclass(frozen=True)
class Block:
    """A part of the paper's experiments under its printed names. lr: of global training; clients: in all, or per domain."""

    dataset: str
    model: str
    lr: float
    rates: Rates
    clients: int
    sources: int
    factor: float = 16.0
    images: int = 0


BLOCKS = {
    "cifar10": Block("cifar10", "resnet18", 0.01, Rates(200, 60), 300, 240),
    "cifar10_cnn": Block("cifar10", "shallow_cnn", 0.1, Rates(400, 60), 300, 240),
    "cifar100": Block("cifar100", "resnet50", 0.01, Rates(200, 60), 300, 240, factor=51.0),
    "digits5": Block("digits5", "resnet18", 0.01, Rates(200, 10, lr=0.5, batch_size=200), 10, 40, images=7430),
    "pacs": Block("pacs", "resnet18", 0.05, Rates(500, 21, lr=0.5, batch_size=200), 7, 21),
}
# Printed domain -> domain of the images that are used.
DOMAINS = {
    ("digits5", "digits5_fedbn"): {d: d.replace("-", "_") for d in ("MNIST", "SVHN", "USPS", "SynthDigits", "MNIST-M")},
    ("digits5", "digits5"): {"MNIST": "plain", "SVHN": "clutter", "USPS": "lowres", "SynthDigits": "fonts", "MNIST-M": "blend"},
    ("pacs", "pacs"): {"Art": "art_painting", "Cartoon": "cartoon", "Photo": "photo", "Sketch": "sketch"},
    ("pacs", "digits5"): {"Art": "blend", "Cartoon": "fonts", "Photo": "plain", "Sketch": "lowres"},
}
SECTIONS = ("T1", "T2", "T3", "T4", "T5", "T6", "T7", "F2", "F3", "F4", "F5", "F7", "F8", "F9")
NOT_ASKED = "not asked for (parameter tables)"
LEFT_OUT = "the method was left out of this run (parameter methods)"
# What clients bring: the tested ones are new, and those that train have a validation part.
NEW = ("validation",)
BY_DOMAIN = ("digits5", "pacs")  # blocks whose clients come in domains


@dataclass(frozen=True)
class Parameters(Common):
    """The parameters of ``notebooks/atp.ipynb``. None: the profile's value, and in the paper's profile each block's own.

    cifar100, digits5, pacs: images in these data sets' places; model: network in the place of the ResNets; domain_clients: per domain;
    images: of CIFAR-10 and CIFAR-100 that enter, 0 for all; targets: clients made of those that do not, 0 for the partition's own;
    last_rounds: saved models at the end of training over which results are averaged; rate_rounds, rate_lr: learning of the rates;
    test_batch: images per batch of rates and tests; lr, batch_size: of global training; tables: sections to run, of ``SECTIONS``.
    """

    FOLLOWS = ("cifar100", *BY_DOMAIN)

    cifar100: str | None
    digits5: str | None
    pacs: str | None
    model: str | None
    domain_clients: int | None
    images: int | None
    targets: int | None
    last_rounds: int | None
    rate_rounds: int | None
    rate_lr: float | None
    test_batch: int | None

    def __post_init__(self):
        super().__post_init__()
        self.check_methods(RECIPES)
        for name in self.tables or ():
            check_name(name, SECTIONS, "table or figure")
        for block in BY_DOMAIN:
            if (value := getattr(self, block)) is not None and own_path(value) is None:
                check_name(value, [data for of, data in DOMAINS if of == block], f"images in the place of {block}")
        least = {"domain_clients": 2, "images": 0, "targets": 0, "last_rounds": 1, "rate_rounds": 1, "test_batch": 2}
        for name, limit in least.items():
            value = getattr(self, name)
            if value is not None and value < limit:
                raise ValueError(f"parameter {name} must be at least {limit}, got {value}")
        if self.rounds is not None and self.last_rounds is not None and (self.last_rounds - 1) * self.save_every > self.rounds:
            kept = self.rounds // self.save_every + 1
            raise ValueError(f"last_rounds={self.last_rounds} models are asked for, a training of {self.rounds} rounds keeps {kept}")

    def asks(self, section: str) -> bool:
        """Whether a table or figure is part of this run."""
        return self.tables is None or section in self.tables

    @property
    def save_every(self) -> int:
        """Rounds from one saved model to the next."""
        return max(1, self.rounds // 20) if self.rounds % 20 == 0 else 1

    @property
    def last(self) -> tuple[int, ...]:
        """The models over which results are averaged, as in ``Request.rounds``: the final one (-1) and those saved before it."""
        return (-1, *(self.rounds + 1 - k * self.save_every for k in range(1, self.last_rounds)))

    def data(self, block: str) -> str:
        """Name of the images that a block uses."""
        return {"cifar100": self.cifar100, "digits5": self.digits5, "pacs": self.pacs}.get(block, self.dataset)

    def network(self, block: str) -> str:
        """Name of the network that a block uses; the ResNets start from ImageNet weights as in the paper."""
        published = BLOCKS[block].model
        return published if published == "shallow_cnn" else self.model or f"{published}_imagenet"

    def n_clients(self, block: str) -> int:
        """Clients of a block, in all or per domain."""
        return (self.domain_clients if block in BY_DOMAIN else self.clients) or BLOCKS[block].clients

    def n_sources(self, block: str) -> int:
        """Source clients of a block."""
        if block not in BY_DOMAIN:
            return round(0.8 * self.n_clients(block))
        return self.n_clients(block) * max(1, len(about_data(self.data(block)).domains) - 1)

    def rates(self, block: str, **changes) -> Rates:
        """How a block's rates are learned; the cohort keeps the published share of the source clients."""
        published = BLOCKS[block].rates
        cohort = max(1, round(published.cohort / BLOCKS[block].sources * self.n_sources(block)))
        size = {"rounds": self.rate_rounds or published.rounds, "batch_size": self.test_batch or published.batch_size}
        return replace(published, **size, lr=self.rate_lr or published.lr, cohort=cohort, **changes)

    def recipes(self, block: str = "cifar10", names: Sequence[str] | None = None, **options) -> dict[str, Recipe]:
        """A block's recipes by published name, and one's own: those of ``names`` that ``methods`` allows. options: of ``recipes.atp``."""
        rates, grids = self.rates(block), GRIDS if self.profile == "paper" else SHORT
        # The code leaves the first batch norm of ResNet-50 out of BN-Adapt.
        stem = not self.network(block).startswith("resnet50")
        table = recipes(**{"rates": rates, "batch_size": rates.batch_size, "grids": grids, "stem": stem} | options)
        table = {n: r for n, r in table.items() if n in (self.methods or table)} | self.beside(self.network(block), NEW)
        return {n: r for n, r in table.items() if names is None or n in names}

    def settings(self, block: str = "cifar10") -> list[Setting]:
        """The three shifts of a block, or its held-out domains."""
        published, data, model = BLOCKS[block], self.data(block), self.network(block)
        residual = model.startswith("resnet")
        # The ResNets take full batches only; batch norm after the CNN's linear layer is undefined for one image.
        sizes = {"batch_size": 20, "smallest": 20 if residual else 2}
        local = self.local(Local(lr=published.lr if residual else 0.1, weight_decay=0.0, epochs=self.local_epochs, **sizes))
        if residual:
            local = replace(local, smallest=local.batch_size)
        schedule = Schedule(self.rounds, local, save_every=self.save_every)
        printed = about_data(data).printed == published.dataset
        if block in BY_DOMAIN:
            fields = {"images": published.images if printed else 0, "size": 224 if data == "pacs" and self.profile == "paper" else None}
            protocols = {
                name: TTPFL(data, n_clients=self.n_clients(block), held_out=domain, **fields)
                for name, domain in domains(block, data).items()
            }
        else:
            fields = {"n_clients": self.n_clients(block), "factor": published.factor if printed else 16.0}
            fields |= {"images": self.images, "targets": self.targets}
            protocols = {f"{shift} shift": TTPFL(data, shift, **fields) for shift in SHIFTS}
        return [Setting(label, protocol, model, schedule) for label, protocol in protocols.items()]

    def final(self, **fields) -> Request:
        """The request of this paper: the models after the last rounds (the published code: after the last)."""
        return self.request(**{"rounds": self.last} | fields)


def parameters(namespace: Mapping) -> Parameters:
    """The notebook's checked parameters, with the profile's values filled in."""
    return read_parameters(Parameters, namespace).resolved(PROFILES)


def domains(block: str, data: str) -> dict[str, str]:
    """Printed domain -> domain of the images; a user's, in their order, take the places of the first ones."""
    printed = next(names for (of, _), names in DOMAINS.items() if of == block)
    return DOMAINS.get((block, data)) or dict(zip(printed, about_data(data).domains, strict=False))


def measure(p: Parameters, block: str, names: Sequence[str] | None = None, settings: Sequence[Setting] | None = None) -> pd.DataFrame:
    """Rows of a block's settings (all, or those given) and recipes; without the images none, the reason in ``attrs``."""
    recipes, nothing = p.recipes(block, names), pd.DataFrame()
    lacking = about_data(p.data(block)).lacks("domains") if block in BY_DOMAIN else ""
    if lacking or not recipes:
        nothing.attrs["reason"] = lacking or LEFT_OUT
        return nothing
    try:
        rows = run(settings or p.settings(block), recipes, p.seeds, request=p.final(), **p.execution())
    except FileNotFoundError as error:
        if block.startswith("cifar10_") or block == "cifar10":
            raise
        nothing.attrs["reason"] = p.missing(error)
        return nothing
    return rows


def average(rows: pd.DataFrame, by: Sequence[str] = ("setting", "method", "column"), value: str = "accuracy") -> pd.DataFrame:
    """Mean and n-1 standard deviation over seeds of the mean over all test samples of all target clients, the paper's metric, and what
    else ``fedlib.papers.common.average`` returns. Several models after the last rounds count as several draws of the same images."""
    rows = rows.assign(draw=rows.groupby([*by, "seed", "client"], sort=False).cumcount())
    return common.average(rows, by, value=value, weighted=True)


def labelled(measured: pd.DataFrame, rows: pd.DataFrame, block: str = "cifar10") -> pd.DataFrame:
    """``measured`` with what was really run. "ok": the block's own images and network, "stand-in" otherwise."""
    dataset, model = rows["dataset"].iloc[0], rows["model"].iloc[0]
    published = BLOCKS[block]
    network = model in (f"{published.model}_imagenet", "shallow_cnn" if block == "cifar10_cnn" else "")
    own = counts(dataset, [published.dataset]) and (network or is_own(dataset))
    return measured.assign(run_dataset=shown(dataset), run_model=model, status="ok" if own else "stand-in")


def block_cells(block: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Measured cells of one block, under the printed names of its data set and model."""
    measured = labelled(average(rows), rows, block).assign(dataset=BLOCKS[block].dataset, model=BLOCKS[block].model)
    return measured.assign(column=measured["setting"], setting="hybrid shift") if block in BY_DOMAIN else measured


def ranks(measured: pd.DataFrame) -> pd.DataFrame:
    """Average over the shifts of each method's rank by its mean (1 is best), as cells of the setting ``all shifts``.

    Published methods are ranked among themselves, as in print, and every other one as if it were the only one beside them.
    """
    further = [name for name in measured["method"].unique() if name not in RECIPES]
    among = measured[~measured["method"].isin(further)]
    parts = [_ranked(pd.concat([among, measured[measured["method"] == name]])).tail(1) for name in further]
    return pd.concat([_ranked(among), *parts], ignore_index=True)


def _ranked(measured: pd.DataFrame) -> pd.DataFrame:
    wide = measured.pivot_table(index="method", columns="setting", values="mean", sort=False)
    rank = wide.rank(ascending=False).mean(axis=1)
    one = measured.drop_duplicates("method").set_index("method")
    return one.assign(setting="all shifts", column="avg_rank", mean=rank, std=float("nan"), n=pd.NA, units=None).reset_index()


def table(name: str, blocks: Mapping[str, pd.DataFrame], reason: str = LEFT_OUT, p: Parameters | None = None) -> pd.DataFrame:
    """Contract frame of T1, T2 or T5 from the rows of its blocks. reason: why cells are absent for which no block has one; p: whose own
    methods that do not run are said."""
    parts, reasons = [], {}
    for block, rows in blocks.items():
        if rows.empty:
            reasons[BLOCKS[block].dataset] = rows.attrs["reason"]
            continue
        measured = block_cells(block, rows)
        complete = measured["setting"].nunique() == 3 and set(RECIPES) <= set(measured["method"])
        parts += [measured, ranks(measured)] if complete else [measured]
    everything = pd.concat(parts) if parts else pd.DataFrame(columns=[*REQUIRED, "dataset", "model"])
    for block in blocks if p else ():
        place = {"dataset": BLOCKS[block].dataset, "model": BLOCKS[block].model}
        everything = with_refused("atp", name, everything, p.refused(p.network(block), NEW), **place)
    return fill("atp", name, everything, reason=reason, reasons=reasons)


def study(name: str, measured: pd.DataFrame, rows: pd.DataFrame, reason: str = LEFT_OUT) -> pd.DataFrame:
    """Contract frame of T3, T4, T6 or T7 from averaged cells ``measured``; of absent cells alone where there are no ``rows``."""
    if rows.empty:
        return table(name, {}, reason)
    printed = cells("atp", name)[["setting", "method", "column"]].drop_duplicates()
    measured = labelled(measured, rows).merge(printed, on=["setting", "method", "column"])
    return fill("atp", name, measured, reason=reason)


def about(p: Parameters, benchmark: Benchmark, block: str = "cifar10") -> str:
    """One line that has to stand beside every result: data, stand-in, network, clients, schedules, seeds."""
    data = shown(benchmark.dataset)
    stand_in = f" (stand-in for {benchmark.stand_in})" if benchmark.stand_in else ""
    seeds = f"{len(p.seeds)} seed{'s' * (len(p.seeds) > 1)}"
    rates = p.rates(block)
    targets = sum(not client.source for client in benchmark.clients)
    mean = f", mean of the last {p.last_rounds} models saved" if p.last_rounds > 1 else ""
    clients = f"{p.n_sources(block)} source and {targets} target clients"
    return f"{data}{stand_in}, {p.network(block)}, {clients}, {p.rounds} + {rates.rounds} rounds{mean}, {seeds}, {p.origin}"


def about_domains(p: Parameters) -> str:
    """The same for Table 2, whose two data sets each hold out one domain after the other."""
    parts = [f"{shown(p.data(b))} for {b}, {p.network(b)}, {p.n_clients(b)} clients a domain" for b in BY_DOMAIN]
    return f"{'; '.join(parts)}; {p.rounds} rounds, {len(p.seeds)} seed{'s' * (len(p.seeds) > 1)}, {p.origin}"
