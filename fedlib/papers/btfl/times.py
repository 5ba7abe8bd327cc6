"""BTFL's Table 3: seconds per 1,000 samples, in the form of the published code and in the kit's."""

from dataclasses import replace

import numpy as np
import pandas as pd
import torch

from fedlib.adapt.reference import BTFLLoop, FedTHELoop, TTTLoop
from fedlib.core import Benchmark
from fedlib.data import counts, shown
from fedlib.experiment import make_task
from fedlib.papers.btfl.recipes import CODE
from fedlib.papers.btfl.settings import MAIN, Parameters, setting
from fedlib.published import cells
from fedlib.published.reading import alone
from fedlib.stages.boundary import called
from fedlib.stages.engine import running_on
from fedlib.stages.timing import seconds_per_1000, untrained
from fedlib.tools.seeding import generator

# Methods -> what runs in the published form (None: the kit has no other; a user's have none), and what the kit's own form does.
PUBLISHED = {
    "TTT": TTTLoop,
    "MEMO-P": None,
    "FedTHE": FedTHELoop,
    "BTFL": lambda method: BTFLLoop(replace(CODE, batch_size=method.batch_size)),
}
OWN = {"TTT": "TTT (turns grouped)", "FedTHE": "FedTHE (vectorised)", "BTFL": "BTFL (vectorised)"}
# Published name of a network -> what runs; CCT's features are rectified for all methods, since the binary codes need it.
NETWORKS = {"cnn": "cnn", "resnet20gn": "resnet20gn", "cct4": "cct4_relu"}


def table(p: Parameters, benchmark: Benchmark, *, repeats: int = 3, least: int = 320) -> pd.DataFrame:
    """Seconds per 1,000 samples on one client with untrained weights, as measured cells of Table 3; ``std`` is over repeats.

    ``timed_samples`` are drawn with replacement from the client's own test part; methods without gradient steps for every sample take as
    many, and at least ``least``, ten batches. A method's own form follows the published one under a name that says so.
    """
    benchmark, rows = benchmark.to(p.device), []
    clients, images = benchmark.clients[:2], benchmark.clients[0].tests["original_ind"][0].images
    drawn = torch.randint(len(images), (max(least, p.timed_samples),), generator=generator(p.seeds[0], "timing"))
    drawn = images[drawn.to(images.device)]
    for published, model in NETWORKS.items():
        task = make_task(setting(p, 0.1, model=model), benchmark, p.seeds[0], p.engine(), p.data_root)
        for method, recipe in p.recipes(model, [*PUBLISHED, *p.own]).items():
            who, form = f"{method} (timing)", PUBLISHED.get(method)
            forms = {method: form(recipe.adapt), OWN[method]: recipe.adapt} if form else {method: recipe.adapt}
            sample = drawn[: p.timed_samples] if recipe.costly else drawn
            with running_on(p.engine()):
                state, personal = untrained(recipe, task, clients, who)
                for name, stage in forms.items():
                    with called(stage, who) as adapter:
                        seconds = seconds_per_1000(adapter, task, state, personal, sample, repeats=repeats)
                    row = {"method": name, "model": published, "run_model": model}
                    rows.append(row | {"mean": np.mean(seconds), "std": pd.Series(seconds).std()})
    dataset = {"dataset": "cifar10", "run_dataset": shown(p.dataset), "status": "ok" if counts(p.dataset, MAIN) else "stand-in"}
    return pd.DataFrame(rows).assign(setting="unspecified", column="seconds_per_1000", n_seeds=1, **dataset)


def said(p: Parameters) -> str:
    return f"{shown(p.dataset)}, untrained weights, one process"


def ratios(numbers: pd.DataFrame) -> pd.DataFrame:
    """Of Table 3's numbers: seconds and their ratio to BTFL's on the same network, by network and method; printed and ours, and ours alone
    on a user's images."""
    times = numbers[numbers["mean"].notna()]
    published = cells("btfl", "T3").pivot(index="model", columns="method", values="mean_value").loc[list(NETWORKS)]
    ours = times.pivot(index="model", columns="method", values="mean").reindex(published.index)[list(dict.fromkeys(times["method"]))]
    over = [published.div(published["BTFL"], axis=0), ours.div(ours["BTFL"], axis=0) if "BTFL" in ours else ours * np.nan]
    parts = {"published": published, "ours": ours, "published / BTFL": over[0], "ours / BTFL": over[1]}
    shown = [name for name in parts if not (alone(numbers) and name.startswith("published"))]
    wide = pd.concat({name: parts[name].stack() for name in shown}, axis=1)
    return wide.reindex(pd.MultiIndex.from_product([ours.index, ours.columns], names=["model", "method"]))
