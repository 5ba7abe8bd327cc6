"""FedTHE's parameters and studies as its notebook gives them, at their smallest, and on made-up rows."""

import itertools
from dataclasses import fields

import pandas as pd

from fedlib.papers.fedthe import PAPER
from fedlib.papers.fedthe.settings import COLUMNS, Parameters
from fedlib.study import Study

NAMESPACE = dict.fromkeys(field.name for field in fields(Parameters)) | {"split": "fixed", "jobs": 1, "device": "cpu", "cache": "cache"}


def parameters(profile="smoke", **given):
    return PAPER.read(NAMESPACE | {"profile": profile} | given)


def study(profile="smoke", **given):
    return Study(PAPER, NAMESPACE | {"profile": profile} | given)


def blocks(p, name):
    return PAPER.exhibit(name).blocks(p)


def smallest(tmp_path_factory):
    """Everything at its smallest, on three clients, with a cache and an output folder of its own."""
    sizes = {"clients": 3, "network_clients": 2, "rounds": 2, "side_rounds": 1, "network_rounds": 1, "imagenet_rounds": 1}
    folders = {"cache": str(tmp_path_factory.mktemp("cache")), "output": str(tmp_path_factory.mktemp("output"))}
    cheap = ["FedAvg", "FedAvg+FT", "T3A", "FedTHE", "FedTHE:-history"]
    return sizes | folders | {"methods": cheap, "local_epochs": 1, "long_rounds": [2, 2], "costly_samples": 1, "side_samples": 1}


def made(settings, recipes, seeds, *, request, **execution):
    """Rows in the place of a run: two clients with one draw each, and a natural shift that stands in where the images are CIFAR-10's."""
    rows = []
    columns, cases = request.columns or COLUMNS, (settings, recipes.items(), seeds, request.rounds)
    for (s, (name, recipe), seed, round), column, client in itertools.product(itertools.product(*cases), columns, range(2)):
        cut = bool(recipe.costly and request.costly_samples)
        row = {"setting": s.label, "dataset": s.protocol.dataset, "model": s.model, "method": name, "seed": seed, "round": round}
        row |= {"column": column, "draw": 0, "client": client, "n": 2 if cut else 10, "cut": cut, "cut_n": 2}
        row |= {"accuracy": 50.0 + client, "cut_accuracy": 50.0 + client, "cached": True, "train_cached": True, "seconds": 0.0}
        rows.append(row | {"stand_in": s.protocol.dataset.startswith("cifar10") and column in ("natural", "mixture")})
    return pd.DataFrame(rows)
