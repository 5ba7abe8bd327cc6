"""What a method costs: time and memory at test time, and what it asks of training and of the clients beside its gain."""

import numpy as np
import pandas as pd
import torch

from fedlib.common import average
from fedlib.experiment import make_task
from fedlib.papers.comparison.grid import gains, provenance
from fedlib.papers.comparison.ranking import distinct
from fedlib.papers.comparison.recipes import CUT, passes
from fedlib.papers.comparison.settings import Parameters
from fedlib.stages.boundary import called
from fedlib.stages.engine import running_on
from fedlib.stages.timing import peak_memory, seconds_per_1000, untrained
from fedlib.tools.seeding import generator

MEASURED = 64  # images of the stream whose memory is measured


def times(p: Parameters, *, repeats: int = 3) -> pd.DataFrame:
    """Seconds per 1,000 samples on one BRFL client with untrained weights: method, run_model, seconds, n-1 std over repeats. Beside them
    ``memory``, the most MiB that adaptation holds at once beyond what it was given; ``training``, passes through an image in a local step
    of the federated training; ``sent``, KiB that a client sends in a round of it; ``shared``, KiB of what the server knows from all clients
    besides (descriptors, tables, confusions, rates).

    Forward pass, adaptation and prediction of a stream of its own, ``timed_samples`` images drawn with replacement from the client's test;
    methods with per-sample gradients on the first ``costly_samples`` of them.
    """
    clients = p.clients_of()["BRFL"]
    benchmark, rows = clients.build(p.seeds[0], p.data_root).to(p.device), []
    pair, images = benchmark.clients[:2], benchmark.clients[0].tests["original"][0].images
    drawn = images[torch.randint(len(images), (p.timed_samples,), generator=generator(p.seeds[0], "timing")).to(images.device)]
    for plain, table in enumerate((p.recipes("BRFL", rounds=1, cohort=1), p.plain_recipes("BRFL"))):
        setting = p.setting("BRFL", bool(plain), clients)
        task = make_task(setting, benchmark, p.seeds[0], p.engine(), p.data_root)
        for method, recipe in table.items():
            who = f"{method} (timing)"
            sample = drawn[: p.costly_samples or None] if recipe.costly else drawn
            with running_on(p.engine()):
                state, part = untrained(recipe, task, pair, who)
                with called(recipe.adapt, who) as adapter:
                    seconds = seconds_per_1000(adapter, task, state, part, sample, repeats=repeats)
                    memory = peak_memory(adapter, task, state, part, sample[:MEASURED])
            row = {"method": method, "run_model": setting.model, "seconds": np.mean(seconds), "seconds_std": pd.Series(seconds).std()}
            sent = sum(tensor.nbytes for tensor in state.values())
            known = sum(tensor.nbytes for name, tensor in part.items() if name.startswith("shared."))
            row |= {"memory": memory / 2**20, "training": passes(recipe.train), "sent": sent / 2**10}
            rows.append(row | {"shared": known / 2**10, "repeats": repeats, "timed_samples": len(sample)})
    return pd.DataFrame([row for row in rows if row["method"] != CUT])


def cost(tests: pd.DataFrame, times: pd.DataFrame) -> pd.DataFrame:
    """``times`` with accuracy and gain on BRFL, mean over its tests (of each client first), then clients, then seeds with their n-1
    std, and the number of different test images of a seed."""
    found = times.merge(distinct(tests).loc["BRFL"].rename("images").reset_index(), on="method")
    for name, frame in (("accuracy", tests), ("gain", gains(tests))):
        means = average(_client_means(frame), ["method"])[["method", "mean", "std"]]
        found = found.merge(means.rename(columns={"mean": name, "std": f"{name}_std"}), on="method")
    return found.merge(provenance(tests, ["method"]).drop(columns="run_model"), on="method")


def _client_means(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.groupby(["method", "seed", "client"], sort=False)["accuracy"].mean().reset_index()
