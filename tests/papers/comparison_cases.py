"""Parameters and made-up rows for the comparison's tests."""

import itertools

import numpy as np
import pandas as pd

from fedlib.papers.comparison import PAPER
from fedlib.study import Study
from fedlib.tools import parameters as of_notebook

TINY = {"rounds": 2, "classifier_rounds": 1, "rate_rounds": 1, "local_epochs": 1, "images": 20, "clients": 4, "population": 10, "pool": 300}
ALL = {"tables": [exhibit.name for exhibit in PAPER.exhibits]}


def declared():
    return of_notebook.declared(PAPER.notebook) | {"jobs": 1, "cache": "nowhere"}


def parameters(**given):
    return PAPER.read(declared() | given)


def study(**given):
    return Study(PAPER, declared() | given)


def rows(values, protocol="BRFL", seeds=1, clients=2, columns=("original", "ooc"), n=10, noise=0.0):
    """values: method -> accuracy of client 0 on the first column; a client has 4 more than the one before, a column 10, a seed 1; noise:
    deviation of what is added to every cell, other draws for other methods."""
    made, rng = [], np.random.default_rng(list("".join(values).encode()))
    for (method, value), seed, client, (c, column) in itertools.product(values.items(), range(seeds), range(clients), enumerate(columns)):
        row = {"setting": protocol, "method": method, "seed": seed, "client": client, "column": column, "draw": 0, "n": n}
        accuracy = value + seed + 4 * client + 10 * c + noise * rng.standard_normal()
        made.append(row | {"accuracy": accuracy, "dataset": "digits", "model": "net", "stand_in": False})
    return pd.DataFrame(made)


def of_one_test(trials, clients=6, images=300, **effects):
    """Clients that share their test images: FedAvg, right on half of them, and the global methods of ``effects``, right on so many percent
    more; each answers alike for every client."""
    rng, made = np.random.default_rng(trials), []
    for method in ("FedAvg", *effects):
        right = (rng.random(images) < 0.5 + effects.get(method, 0) / 100).astype(float)
        cell = {"setting": "FedICON domain", "method": method, "seed": 0, "column": "unseen domain", "draw": 0, "n": images}
        cell |= {"accuracy": 100 * right.mean(), "right": right, "dataset": "digits", "model": "net", "stand_in": False}
        made += [cell | {"client": client, "seen": np.arange(images)} for client in range(clients)]
    return pd.DataFrame(made)


def by_training(frame, method):
    """The accuracies of ``method`` go up and down by 20 from one of three trainings to the next, for all clients alike."""
    luck = frame["seed"].map({0: -20.0, 1: 0.0, 2: 20.0})
    return frame.assign(accuracy=frame["accuracy"] + luck.where(frame["method"] == method, 0.0))
