"""UPFL's parameters by profile, and the step from a printed data set to the clients, the schedule and the recipes that are run for it."""

from collections.abc import Iterable
from dataclasses import dataclass

from fedlib.common import Common, own_path
from fedlib.core import Local, Recipe, Schedule
from fedlib.data import about as about_data
from fedlib.data.about import RECORDS
from fedlib.papers.upfl.recipes import recipes
from fedlib.protocols.upfl import UPFL
from fedlib.published.reading import Note
from fedlib.setting import Setting
from fedlib.stages.engine import Engine
from fedlib.tools.names import check_name

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
# What clients bring: half of them train, with a validation part each, and new ones are tested.
NEW = ("validation",)

# every: rounds between evaluations. None: what the paper has, for each data set.
STAND_IN = "digits"  # runs in place of every printed data set, on small networks
_DIGITS = {"dataset": STAND_IN, "clients": 20, "rounds": 10, "steps": 10, "every": 5, "images": 0, "costly_samples": 0}
PROFILES = {
    "smoke": _DIGITS | {"rounds": 3, "steps": 7, "every": 2, "seeds": [0]},
    "small": _DIGITS
    | {"rounds": 100, "steps": 20, "every": 20, "seeds": [0, 1, 2], "tables": ["T1", "AF2", "U14"]}
    | {"methods": ["FedAvg", "SCAFFOLD", "Tent", "FedTTA", "FedTTA-Prox", "FedTTA++"]},
    "paper": {"dataset": PUBLISHED, "clients": 100, "steps": 20, "every": 10, "images": 0, "seeds": [0, 1, 2], "costly_samples": 0},
}


@dataclass(frozen=True)
class Parameters(Common):
    """The parameters of ``notebooks/upfl.ipynb`` besides the common ones.

    dataset: ``digits`` (stands in for every data set), ``published`` (each table on its own), or one data set, for its own tables; clients:
    training and new ones together, even; rounds: None for the paper's; steps: minibatches per client and round, unless local_epochs asks
    for passes; every: rounds between evaluations; images: of the data set that enter, 0 for all; lr: of methods that bring no rates of
    their own, as the published ones do.
    """

    WHOLE = (PUBLISHED,)

    steps: int | None = None
    every: int | None = None
    images: int | None = None

    def __post_init__(self):
        super().__post_init__()
        self.check_least(steps=1, every=1, images=0)
        if self.clients is not None and self.clients % 2:
            rule = "even, since half of them train, and with superclasses a multiple of their number (5 of digits, 20 of CIFAR-100)"
            raise ValueError(f"parameter clients must be {rule}; got {self.clients}")
        if self.dataset is not None and own_path(self.dataset) is None:
            kin = (name for name, record in RECORDS.items() if record.printed in BLOCKS)
            check_name(self.dataset, (STAND_IN, PUBLISHED, *kin), "data set")
        self.check_methods(METHODS)

    def changed(self, profiles: dict[str, dict]) -> list[str]:
        """A part of a data set is fewer images."""
        part = self.dataset is not None and about_data(self.dataset).part
        return list(dict.fromkeys([*super().changed(profiles), *(["images"] if part else [])]))

    def engine(self) -> Engine:
        """Small dense networks train all clients of a round in one stack."""
        return Engine(device=self.device, chunk_size=25 if self.dataset in (None, STAND_IN) and self.device == "cpu" else None)

    def run_on(self, printed: str) -> str | None:
        """The data set on which a block printed for ``printed`` is run, None for not at all."""
        record = about_data(self.dataset)
        if self.dataset == PUBLISHED:
            return printed
        family = OWN if record.own else record.printed
        return self.dataset if self.dataset == STAND_IN or family == printed else None

    def recipes(self, printed: str, names: Iterable[str] | None = None, **options) -> dict[str, Recipe]:
        """Recipes by published name with the rates of what runs for ``printed``, and the user's, as far as ``methods`` allows; none where
        nothing runs. names: None for all; options: of the paper's ``recipes``."""
        if (dataset := self.run_on(printed)) is None:
            return {}
        widths = {"widths": (256, 128)} if dataset == STAND_IN else {}
        table = recipes(dataset, **widths, **options)
        table |= self.beside("mlp", NEW, table["FedAvg"].train)
        return {name: table[name] for name in names or table if name in table and self.allows(name)}


def setting(p: Parameters, printed: str, partition: str, **fields) -> Setting:
    """The clients of a printed data set under ``partition``, with the paper's schedule; ``fields``: further ones of ``UPFL``."""
    dataset, (_, network, rounds) = p.run_on(printed), BLOCKS[printed]
    record = about_data(dataset)
    if partition == "concept":  # the paper's 1,000 images are for 50 clients
        fields = {"n_clients": min(p.clients, 50), "shards": 10} | fields
    elif p.images:
        fields = {"images": p.images} | fields
    protocol = UPFL(dataset, partition, **{"n_clients": p.clients, "deck": record.printed in DECKS} | fields)
    length = {"epochs": p.local_epochs} if p.local_epochs else {"steps": p.steps}
    local = Local(lr=0.1, weight_decay=1e-4, batch_size=64, clip=10.0, decay=0.99**0.1, continued=True, diverged="drop", **length)
    local = p.local(local)
    schedule = Schedule(p.rounds or rounds, local, local, save_every=p.every)
    label = f"{record.shown if record.own else dataset}, {partition}"
    return Setting(label, protocol, "mlp" if dataset == STAND_IN else network, schedule)


def main_settings(p: Parameters) -> dict[str, Setting]:
    """Printed data set -> the clients of the main table that run for it."""
    return {name: setting(p, name, partition) for name, (partition, _, _) in BLOCKS.items() if p.run_on(name)}


def evaluated(s: Setting) -> tuple[int, ...]:
    """Rounds of the experiment at which a setting is evaluated, the last one first: after every ``every`` training rounds and after the
    last. The experiment counts states *before* a round, so that 1 + k is the state after k rounds."""
    last = s.schedule.rounds
    return tuple(1 + k for k in sorted({*range(s.schedule.save_every, last + 1, s.schedule.save_every), last}, reverse=True))


def notes(p: Parameters) -> Note:
    """What the clients of both tables have to say about themselves, such as what stands in, and after which rounds they are tested."""
    drift = [setting(p, "cifar10", "dirichlet")] if p.asks("T2") and p.run_on("cifar10") else []
    runs = {s.label: s for s in [*main_settings(p).values(), *drift]}
    said = sorted({note for s in runs.values() for note in s.protocol.build(p.seeds[0], p.data_root).notes})
    tested = [f"{label}: tested after rounds {', '.join(str(t - 1) for t in evaluated(s)[::-1])}" for label, s in runs.items()]
    return Note("\n".join(said + tested))
