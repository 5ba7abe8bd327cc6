"""FedTHE's parameters by profile, and the step from a printed block to the setting that is run for it.

The words of a printed setting say what is varied: ``Dir(0.1), severity 3`` is BRFL at Dir(0.1) with corruptions of severity 3.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from fedlib.adapt.fedthe import FedTHE
from fedlib.adapt.fedthe_plus import FedTHEPlus
from fedlib.adapt.memo import MEMO
from fedlib.common import NONE, Common
from fedlib.core import Local, Recipe, Schedule
from fedlib.data import about as about_data
from fedlib.models import MODELS
from fedlib.papers.fedthe.recipes import CE, METHODS, RECIPES
from fedlib.protocols.brfl import BRFL
from fedlib.protocols.brfl_imagenet import IMAGES, BRFLImageNet
from fedlib.protocols.shifts import SPLITS, check_partition_seed
from fedlib.setting import Setting
from fedlib.tools.names import check_name

MAIN = ("cifar10",)  # printed data set of all but tables 2 and 5
ALPHAS = (0.1, 1.0, 10.0)  # of the printed settings
COLUMNS = ("original", "corrupted", "ooc", "natural", "mixture")

# What a printed setting varies, and the field that this is.
VARIED = {
    "severity": ("severity", int),
    "test size": ("test_size", float),
    "train size": ("train_size", float),
    "clients": ("n_clients", int),
    "sampling": ("participation", float),
    "personal epochs": ("epochs", int),
}
# Epochs of a local phase after which the code's schedule lowers the rate to a tenth; only Table 9 gets there.
MILESTONE = 6
# Studies with trainings or personal phases of their own, which the profiles run for ``side_rounds``, as they do Dir(10.0).
SIDE = ("train size", "clients", "sampling", "personal epochs")

# side_rounds: of tables 4, 9, 11, 12, 14, 15; network_clients, network_rounds: of ResNet and CCT (tables 6, 7); long_rounds: of figures 12
# and 13; imagenet32, wide_model, imagenet_rounds: what runs for tables 2 and 5; side_samples: the costly_samples of all but tables 1, 3,
# 4, 13 and figures 2, 14, 15; curve_points, curve_samples: rounds at which learning curves are evaluated, and images of a stream that all
# methods see there.
PROFILES = {
    "smoke": {
        **{"dataset": "digits", "imagenet32": "digits", "wide_model": "cnn", "clients": 8, "network_clients": 4, "seeds": [0]},
        **{"rounds": 3, "side_rounds": 1, "network_rounds": 1, "long_rounds": [4, 5], "imagenet_rounds": 1, "local_epochs": 2},
        **{"split": "fixed", "costly_samples": 1, "side_samples": 1, "curve_points": 2, "curve_samples": 1},
    },
    "small": {
        **{"dataset": "digits", "imagenet32": "digits", "wide_model": "cnn", "clients": 10, "network_clients": 4, "seeds": [0, 1, 2]},
        **{"rounds": 40, "side_rounds": 5, "network_rounds": 3, "long_rounds": [60, 80], "imagenet_rounds": 6, "local_epochs": 2},
        **{"split": "fixed", "costly_samples": 20, "side_samples": 1, "curve_points": 5, "curve_samples": 20},
        **{"tables": ["T1", "F2a", "F2b", "F8", "F17"], "alphas": [0.1]},
    },
    "paper": {
        **{"dataset": "cifar10", "imagenet32": "imagenet32", "wide_model": "resnet20gn_w4", "clients": 20, "network_clients": 20},
        **{"rounds": 100, "side_rounds": 100, "network_rounds": 100, "long_rounds": [500, 1000], "imagenet_rounds": 300},
        **{"local_epochs": 5, "seeds": [0, 1, 2], "costly_samples": 0, "side_samples": 0},
        **{"split": "fixed", "curve_points": 25, "curve_samples": 50},
    },
}


@dataclass(frozen=True)
class Parameters(Common):
    """The parameters of ``notebooks/fedthe.ipynb`` besides the common ones.

    split: ``fixed`` or ``resplit`` (the leak); lr, batch_size: of both local phases; alphas: Dirichlet values to run (None: all, in
    profile small the first); partition_seed: of the Dirichlet draw for every seed, 7000 as published (None: one per seed); the rest as at
    ``PROFILES``. imagenet32 = ``none`` leaves tables 2 and 5 out.
    """

    split: str | None = None
    alphas: list[float] | None = None
    imagenet32: str | None = None
    wide_model: str | None = None
    imagenet_rounds: int | None = None
    side_rounds: int | None = None
    side_samples: int | None = None
    network_clients: int | None = None
    network_rounds: int | None = None
    long_rounds: list[int] | None = None
    curve_points: int | None = None
    curve_samples: int | None = None
    partition_seed: int | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.split is not None:
            check_name(self.split, SPLITS, "split")
        self.check_methods(METHODS)
        if self.wide_model is not None:
            check_name(self.wide_model, MODELS, "model")
        check_partition_seed(self.partition_seed)
        self.check_least(imagenet_rounds=1, side_rounds=1, network_rounds=1, side_samples=0, network_clients=2)
        self.check_least(curve_points=1, curve_samples=0)
        if self.imagenet32 is not None:
            check_name(self.imagenet32, (*IMAGES, NONE), "data set with three natural shifts (parameter imagenet32)")
        if self.long_rounds is not None and (len(self.long_rounds) != 2 or min(self.long_rounds) < 2):
            raise ValueError(f"parameter long_rounds must be two numbers of rounds, at least 2, got {self.long_rounds}")
        if self.alphas is not None and (not self.alphas or not {*self.alphas} <= {*ALPHAS}):
            raise ValueError(f"parameter alphas must be some of the printed {', '.join(map(str, ALPHAS))}, got {self.alphas}")

    def has(self, columns: Iterable[str]) -> tuple[str, ...]:
        """Those of ``columns`` that the data set has."""
        return tuple(c for c in columns if c != "natural" or not about_data(self.dataset).lacks("natural shift"))

    def changed(self, profiles: dict[str, dict]) -> list[str]:
        """As for every paper, without what is no departure from the print: its partition, and how often curves are evaluated."""
        return [name for name in super().changed(profiles) if name not in ("partition_seed", "curve_points")]

    def asks_for(self, label: str) -> bool:
        """Whether ``alphas`` leaves the setting ``label`` in."""
        return self.alphas is None or parsed(label)[0] in self.alphas

    def samples(self, table: str) -> int | None:
        """Length at which ``table`` cuts the streams of costly methods; None: not at all. A hundred clients get a fifth."""
        limit = self.costly_samples if table in ("T1", "T3", "T4", "T13") else self.side_samples
        return max(1, limit // 5 if table == "T12" else limit) if limit else None

    def network(self, model: str, dataset: str = "cifar10") -> str:
        """What runs in place of a printed network."""
        return self.wide_model if dataset == "imagenet32" else model

    def recipes(self, names: Iterable[str] | None = None, model: str = "cnn", dataset: str = "cifar10") -> dict[str, Recipe]:
        """The recipes of ``names`` (None: Table 1's and the user's) that the kit has and ``methods`` allows, in that order, as they run in
        the printed ``dataset`` and ``model``; the user's run without such changes."""
        network = self.network(model, dataset)
        own = self.beside(network, plain=CE)
        table = {n: on(network, recipe, dataset) for n, recipe in METHODS.items() if self.allows(n)} | own
        return {n: table[n] for n in (*RECIPES, *own) if n in table} if names is None else {n: table[n] for n in names if n in table}


def on(model: str, recipe: Recipe, dataset: str = "cifar10") -> Recipe:
    """A recipe as it runs in the block of a printed data set, on the network ``model``.

    FedTHE's rate is ten times the personal one, 0.01 for CCT's Adam; its batches on ImageNet-32 hold 128 samples, as all evaluation there.
    MEMO keeps the moments of optimisers that have any, unless it runs at a rate of its own.
    """
    adapt = recipe.adapt
    changes = {"lr": 0.01} if model.startswith("cct") else {}
    changes |= {"batch_size": 128} if dataset == "imagenet32" else {}
    if isinstance(adapt, FedTHEPlus):
        adapt = replace(adapt, ensemble=replace(adapt.ensemble, **changes))
    elif isinstance(adapt, FedTHE):
        adapt = replace(adapt, **changes)
    elif isinstance(adapt, MEMO) and model != "cnn":
        adapt = replace(adapt, carry=adapt.lr is None)
    return replace(recipe, adapt=adapt)


def parsed(label: str) -> tuple[float, str, float]:
    """Dirichlet value, what is varied ("" for nothing) and its value of a printed setting. Raises ValueError for another wording."""
    found = re.fullmatch(r"Dir\(([\d.]+)\)(?:, (?:([a-z ]+) ([\d.]+)|(\d+) (clients)))?", label)
    if not found or (found[2] and found[2] not in VARIED):
        raise ValueError(f"setting {label!r} is not understood; expected Dir(0.1) or Dir(0.1), <{'|'.join(VARIED)}> <value>")
    return float(found[1]), found[2] or found[5] or "", float(found[3] or found[4] or 0)


def setting(p: Parameters, label: str, *, model: str = "cnn", dataset: str = "cifar10", rounds: int | None = None, **protocol) -> Setting:
    """What runs for the printed block (dataset, model, label). protocol: further fields of ``BRFL``."""
    alpha, what, value = parsed(label)
    imagenet = dataset == "imagenet32"
    images, network = p.imagenet32 if imagenet else p.dataset, p.network(model, dataset)
    small = about_data(images).small
    deep = not imagenet and network != "cnn"
    fields = {"n_clients": p.network_clients if deep else p.clients, "alpha": alpha, "split": p.split, "partition_seed": p.partition_seed}
    if not imagenet:
        # A hundred clients of the digits hold 18 images each, too few for a share in 300 shifted ones.
        fields |= {"natural_size": 300 if small and what != "clients" else 2000, "corruption_draws": 1 if small else 2}
    aside = what in SIDE or alpha == 10
    if small and (deep or (aside and what not in ("train size", "clients"))):
        fields["train_size"] = 0.25 if deep else 0.5
    rounds = rounds or (p.imagenet_rounds if imagenet else p.network_rounds if deep else p.side_rounds if aside else p.rounds)
    phase = p.local(local_phase(network, small, batch_size=128 if imagenet else 32))
    schedule = Schedule(rounds, replace(phase, epochs=p.local_epochs), replace(phase, epochs=1))
    if what:
        name, kind = VARIED[what]
        if name == "participation":
            schedule = replace(schedule, participation=value)
        elif name == "epochs":
            schedule = replace(schedule, personal=replace(phase, epochs=int(value), milestone=MILESTONE if value > MILESTONE else None))
        else:
            fields[name] = kind(value)
    return Setting(label, (BRFLImageNet if imagenet else BRFL)(images, **fields | protocol), network, schedule)


def local_phase(model: str, small: bool, batch_size: int = 32) -> Local:
    """Optimiser of both local phases (FedTHE, appendix C.1).

    Clients of a ``small`` data set such as the digits hold a hundredth of CIFAR-10's images: smaller batches and larger steps give them
    comparably many effective steps, and Adam in place of SGD lets ResNet learn in a few rounds at all.
    """
    if model.startswith("cct"):
        return Local("adam", lr=0.001, batch_size=16 if small else batch_size)
    if model.startswith("resnet"):
        return Local("adam", lr=0.003, batch_size=16) if small else Local(lr=0.01, momentum=0.9, batch_size=batch_size)
    return Local(lr=0.1, batch_size=16) if small else Local(lr=0.01, batch_size=batch_size)
