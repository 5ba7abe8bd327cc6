"""FedTHE's notebook as data: profiles, settings, recipes, and the numbers behind its tables and figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedlib.clients import Benchmark
from fedlib.experiment import Setting
from fedlib.names import check_name
from fedlib.notebook import read_parameters
from fedlib.papers.common import DISPLAY, Common, average, densities, labelled
from fedlib.protocols.brfl import BRFL
from fedlib.published import cells
from fedlib.published.compare import fill
from fedlib.recipes import Recipe
from fedlib.recipes.fedthe import RECIPES
from fedlib.task import Local, Schedule

REAL = ("cifar10", "cifar10_jpeg")
STAND_INS = ("natural", "mixture")  # columns that need CIFAR-10.1, for which the kit falls back on a stand-in
COLUMNS = ("original", "corrupted", "ooc", "natural", "mixture")

# rate: of both local phases; draws: passes over the corrupted test; natural: images of the natural-shift set.
PROFILES = {
    "smoke": {"dataset": "digits", "clients": 10, "rounds": 20, "local_epochs": 2, "seeds": [0], "costly_samples": 6},
    "small": {"dataset": "digits", "clients": 10, "rounds": 100, "local_epochs": 5, "seeds": [0, 1, 2], "costly_samples": 30},
    "paper": {"dataset": "cifar10", "clients": 20, "rounds": 100, "local_epochs": 5, "seeds": [0, 1, 2], "costly_samples": 0},
}


@dataclass(frozen=True)
class Parameters(Common):
    """The parameters of ``notebooks/fedthe.ipynb``. methods: published names (None: all); split: ``fixed`` or ``resplit`` (the leak)."""

    methods: list[str] | None
    split: str

    def __post_init__(self):
        super().__post_init__()
        check_name(self.split, ("fixed", "resplit"), "split")
        for name in self.methods or ():
            check_name(name, RECIPES, "method")

    def recipes(self, names: Sequence[str] | None = None) -> dict[str, Recipe]:
        """Recipes by published name: those of ``names`` that ``methods`` allows, in the order of the print."""
        return {name: r for name, r in RECIPES.items() if (names is None or name in names) and name in (self.methods or RECIPES)}


def parameters(namespace: Mapping) -> Parameters:
    """The notebook's checked parameters, with the profile's values filled in."""
    return read_parameters(Parameters, namespace).resolved(PROFILES)


def setting(p: Parameters, alpha: float, label: str | None = None, *, model: str = "cnn", **protocol) -> Setting:
    """BRFL at Dir(alpha) under the published label; ``protocol``: further fields of ``BRFL``."""
    digits = p.dataset == "digits"
    fields = {"n_clients": p.clients, "natural_size": 300 if digits else 2000, "corruption_draws": 1 if digits else 2, "split": p.split} | protocol
    # The digits' clients hold a hundredth of CIFAR-10's; a larger step and smaller batches give them comparably many effective steps.
    phase = {"lr": 0.05, "batch_size": 16} if digits else {"lr": 0.01, "batch_size": 32}
    schedule = Schedule(p.rounds, Local(**phase, epochs=p.local_epochs), Local(**phase, epochs=1))
    return Setting(label or f"Dir({alpha})", BRFL(p.dataset, alpha=alpha, **fields), model, schedule)


def table(p: Parameters, name: str, rows: pd.DataFrame, reason: str) -> pd.DataFrame:
    """Contract frame of one printed table from measured rows; ``reason``: why the cells that were not measured were not."""
    measured = labelled(average(rows), rows, REAL, STAND_INS)
    printed = cells("fedthe", name)[["setting", "method", "column"]].drop_duplicates()
    return fill("fedthe", name, measured.merge(printed, on=["setting", "method", "column"]), reason=reason)


def mean_of_four(table: pd.DataFrame) -> pd.DataFrame:
    """For each row of a table: the printed and our mixture beside the mean of the other four columns.

    For all methods without an optimised weight the printed mixture *is* that mean to rounding, which no stream would give.
    """
    by = ["setting", "method"]
    wide = table.pivot_table(index=by, columns="column", values=["published_mean", "mean"], sort=False)
    result = pd.DataFrame(index=wide.index)
    for side, name in (("published_mean", "published"), ("mean", "ours")):
        if side in wide:
            parts = wide[side].reindex(columns=COLUMNS)
            result[f"{name} mixture"] = parts["mixture"]
            result[f"{name} mean of four"] = parts[list(COLUMNS[:4])].mean(axis=1, skipna=False)
    return result.reset_index()


def curve_rounds(p: Parameters, points: int = 5) -> tuple[int, ...]:
    """Rounds at which learning curves are evaluated: ``points`` of them, evenly spread, the last included."""
    return tuple(int(t) for t in np.unique(np.linspace(1, p.rounds, min(points, p.rounds)).round()))


def curves(rows: pd.DataFrame) -> pd.DataFrame:
    """Learning curves: setting, round, method, column, mean and std over seeds, with what was run."""
    return labelled(average(rows, ("setting", "round", "method", "column")), rows, REAL, STAND_INS)


def personal_weights(rows: pd.DataFrame) -> pd.DataFrame:
    """Density of the weight of the personal head, 1 - e, per setting, method and column."""
    rows = rows.assign(personal=[None if w is None else 1 - w for w in rows["weight"]])
    return labelled(densities(rows, "personal"), rows, REAL, STAND_INS)


def about(p: Parameters, benchmark: Benchmark) -> str:
    """One line that has to stand beside every result: data, stand-in, profile, schedule, seeds, split."""
    data = DISPLAY.get(benchmark.dataset, benchmark.dataset)
    stand_in = f" (stand-in: {benchmark.stand_in})" if benchmark.stand_in else ""
    seeds = f"{len(p.seeds)} seed{'s' * (len(p.seeds) > 1)}"
    return f"{data}{stand_in}, {p.clients} clients, {p.rounds} rounds x {p.local_epochs} epochs, {seeds}, {p.split} split, {p.profile}"
