"""BTFL's parameters by profile, and the step from a printed block to the setting that is run for it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedlib.common import NONE, Common
from fedlib.core import Recipe, Schedule
from fedlib.data import about as about_data
from fedlib.data import load
from fedlib.models import MODELS
from fedlib.papers.btfl.recipes import ROWS, recipes
from fedlib.papers.fedthe.recipes import CE
from fedlib.papers.fedthe.settings import local_phase
from fedlib.protocols.btgfl import BTGFL, SHIFT_MIXES
from fedlib.protocols.shifts import SPLITS
from fedlib.setting import Setting
from fedlib.tools.names import check_name

MAIN = ("cifar10",)  # printed data set of all but Tables 4 to 7
# Domain held out where a data set of domains takes ImageNet-32's place, so that it is another than in OfficeHome's.
SECOND = {"digits5": "clutter"}

# Rounds of the paper (its scripts have 90 or 80 on CIFAR-10, 90 and 40) where the profile has no number of its own, and the scripts' factor
# of the L1 term.
ROUNDS = {"cifar10": 130, "imagenet32": 100, "officehome": 50}
OTHER_CLIENTS = 10
FEATURE_L1 = {"cnn": 1e-3, "cct4_relu": 1e-4, "imagenet32": 1e-4}

# What Figures 4, 5 and 1 show, and what every profile has.
_SHOWN = {"alphas": [0.1, 0.7, 1.0], "architectures": ["resnet20gn", "cct4_relu"], "label_counts": [2, 4, 6, 8]}
_ALWAYS = _SHOWN | {"split": "fixed", "shift_mix": "all"}
_DIGITS = _ALWAYS | {
    **{"dataset": "digits", "officehome": "digits5", "imagenet32": "digits5", "wide_model": "cnn", "clients": 10, "rounds": 4},
    **{"other_rounds": 2, "network_rounds": 1, "local_epochs": 2, "costly_samples": 2, "timed_samples": 2},
}
PROFILES = {
    "smoke": _DIGITS | {"clients": 8, "rounds": 3, "other_rounds": 1, "costly_samples": 1, "seeds": [0]},
    "small": _DIGITS | {"rounds": 40, "costly_samples": 20, "seeds": [0, 1, 2], "tables": ["T1", "T2", "F6"]},
    "paper": {
        **_ALWAYS,
        **{"dataset": "cifar10", "officehome": "officehome", "imagenet32": "imagenet32", "wide_model": "resnet20gn_w4", "clients": 20},
        **{"rounds": 130, "local_epochs": 5, "seeds": [0, 1, 2], "costly_samples": 0, "timed_samples": 1000},
    },
}


@dataclass(frozen=True)
class Parameters(Common):
    """The parameters of ``notebooks/btfl.ipynb`` besides the common ones.

    officehome, imagenet32: data sets that run in place of these (``none``: their tables are not run); wide_model: their network;
    other_rounds: rounds of Tables 4 to 7, Figures 1 and 4 and the study of splits; network_rounds: of Figure 5 (None: ``rounds``, as the
    rest); alphas, architectures, label_counts: of Figures 4, 5 and 1 (which shows all classes of the data as well); timed_samples: of
    Table 3, of which methods without gradients take 320 or more; methods: also ``BTFL (code)``; lr, batch_size: of both local phases.
    """

    FOLLOWS = ("officehome",)

    split: str | None = None
    shift_mix: str | None = None
    officehome: str | None = None
    imagenet32: str | None = None
    wide_model: str | None = None
    other_rounds: int | None = None
    network_rounds: int | None = None
    alphas: list[float] | None = None
    architectures: list[str] | None = None
    label_counts: list[int] | None = None
    timed_samples: int | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.split is not None:
            check_name(self.split, SPLITS, "split")
        if self.shift_mix is not None:
            check_name(self.shift_mix, SHIFT_MIXES, "mixture of shifts")
        self.check_methods(ROWS)
        for name in (*(self.architectures or ()), *([self.wide_model] if self.wide_model else [])):
            check_name(name, MODELS, "model")
        alphas = self.alphas
        if alphas is not None and (not alphas or not all(0 < a < np.inf for a in alphas) or len(set(alphas)) < len(alphas)):
            raise ValueError(f"parameter alphas must be distinct positive Dirichlet values, got {alphas}")
        if any(count < 2 for count in self.label_counts or ()):
            raise ValueError(f"parameter label_counts must be at least 2, got {self.label_counts}")
        self.check_least(other_rounds=1, network_rounds=1, timed_samples=1)

    def changed(self, profiles: dict[str, dict]) -> list[str]:
        """As for every paper, without what figures show, which is no departure from the print."""
        return [name for name in super().changed(profiles) if name not in _SHOWN]

    def network(self, of: str) -> str:
        """The network of a block, which is called by its network or by its data set."""
        return self.wide_model if of in ROUNDS else of

    def recipes(self, of: str = "cnn", names: Sequence[str] | None = None) -> dict[str, Recipe]:
        """The recipes of ``names`` (None: the tables' and a user's) as the paper runs them ``of`` a network or one of its other data sets:
        those that ``methods`` allows."""
        large, network = of == "imagenet32" == self.imagenet32, self.network(of)
        table = recipes(FEATURE_L1.get(of, 0.0), 0.01 if network.startswith("cct") else 0.1, 128 if large else 32)
        table = {name: r for name, r in table.items() if self.allows(name)} | self.beside(network, plain=CE)
        return {name: r for name, r in table.items() if names is None or name in names}


def setting(
    p: Parameters, alpha: float, label: str | None = None, *, block: str = "cifar10", model: str = "cnn", rounds: int = 0, **protocol
) -> Setting:
    """BTGFL at Dir(alpha) on what runs in place of ``block``, under the published label. rounds: 0 for ``other_rounds``; protocol:
    further fields of ``BTGFL``."""
    dataset = p.dataset if block == "cifar10" else getattr(p, block)
    small = about_data(dataset).small
    fields = {"n_clients": p.clients if block == "cifar10" else OTHER_CLIENTS, "split": p.split, "shift_mix": p.shift_mix}
    fields["natural_size"] = 300 if small else None if block == "imagenet32" else 2000
    if block == "officehome":
        # As in the published code.
        fields["augment"] = "none"
    if dataset in SECOND and block == "imagenet32":
        fields["domain"] = SECOND[dataset]
    phase = local_phase(model, False, 128 if block == "imagenet32" else 32)
    if small:
        # The digits' clients hold a hundredth of CIFAR-10's; a larger step and smaller batches give them comparably many effective steps.
        phase = replace(phase, batch_size=16, lr=0.05 if model == "cnn" else phase.lr)
    phase = p.local(phase)
    schedule = Schedule(rounds or other_rounds(p, block), replace(phase, epochs=p.local_epochs), replace(phase, epochs=1))
    return Setting(label or f"Dir({alpha})", BTGFL(dataset, alpha=alpha, **fields | protocol), model, schedule)


def other_rounds(p: Parameters, block: str = "cifar10") -> int:
    """Rounds of Tables 4 to 7, Figures 1 and 4 and the study of splits."""
    return p.other_rounds or (p.rounds if block == "cifar10" else ROUNDS[block])


def class_settings(p: Parameters) -> list[Setting]:
    """Figure 1's settings under their numbers of classes: the first classes of the main data set, all of them, and the other data sets that
    run and have more."""
    most = len(load(p.dataset, p.data_root).classes)
    settings = {n: setting(p, 0.1, str(n), classes=n) for n in sorted(p.label_counts) if n < most}
    settings[most] = setting(p, 0.1, str(most))
    for block in ("officehome", "imagenet32"):
        try:
            n = 0 if getattr(p, block) == NONE else len(load(getattr(p, block), p.data_root).classes)
        except FileNotFoundError:
            continue
        if n > most:
            settings[n] = setting(p, 0.1, str(n), block=block, model=p.wide_model)
    return list(settings.values())
