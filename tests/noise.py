"""Settings that are made of noise, and made-up rows of them, for tests of what a study makes of measurements."""

import itertools
from dataclasses import dataclass, replace

import pandas as pd

from fedlib.core import Benchmark, Schedule
from fedlib.setting import Setting
from tests.tiny import Protocol

COLUMNS = ("original", "corrupted")


@dataclass(frozen=True)
class Digits(Protocol):
    """Noise that is called digits, or by another name."""

    n_clients: int = 3
    name: str = "digits"

    def build(self, seed: int, root: str | None = None) -> Benchmark:
        return replace(super().build(seed, root), dataset=self.name)


def setting(label="Dir(0.1)", **fields):
    return Setting(label, Digits(**fields), "mlp", Schedule(2))


def rows(settings, recipes, seeds, rounds):
    """Two clients; RunningPrior is 5 points ahead of FedAvg, each round brings a point."""
    made = []
    for s, (m, method), seed, round, column, client in itertools.product(settings, enumerate(recipes), seeds, rounds, COLUMNS, (0, 1)):
        row = {"setting": s.label, "dataset": s.protocol.name, "model": "mlp", "method": method, "seed": seed, "round": round}
        accuracy = 50 + 5 * (method == "RunningPrior") + 10 * (column == "original") + client + 3 * seed + round
        row |= {"column": column, "draw": 0, "client": client, "n": 10, "accuracy": accuracy, "stand_in": False}
        made.append(row | {"cached": True, "train_cached": m == 0, "seconds": 1.5})
    return pd.DataFrame(made)


def bare(label, name):
    """A setting whose clients are an object of a plain class."""
    clients = Bare()
    clients.name = name
    return Setting(label, clients, "mlp", Schedule(2))


class Bare:
    """All of its objects look the same."""

    def __repr__(self):
        return "Bare()"

    def build(self, seed, root=None):
        return Protocol().build(seed, root)
