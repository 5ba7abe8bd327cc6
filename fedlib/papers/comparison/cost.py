"""What a method costs: time and memory at test time, and what it asks of training and of the clients beside its gain."""

from collections.abc import Iterable

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


def times(p: Parameters, protocols: Iterable[str], *, repeats: int = 3) -> pd.DataFrame:
    """Seconds per 1,000 samples on one client of each of ``protocols`` with untrained weights: protocol, method, run_model, seconds, n-1
    std over repeats. Beside them ``memory``, the most MiB that adaptation holds at once beyond what it was given; ``training``, passes
    through an image in a local step of the federated training; ``sent``, KiB that a client sends in a round of it; ``shared``, KiB of what
    the server knows from all clients besides (descriptors, tables, confusions, rates).

    Forward pass, adaptation and prediction of a stream of its own, ``timed_samples`` images drawn with replacement from the client's first
    test; methods with per-sample gradients on the first ``costly_samples`` of them.
    """
    return pd.DataFrame([row for protocol in protocols for row in _times_on(p, protocol, repeats)])


def _times_on(p: Parameters, protocol: str, repeats: int) -> list[dict]:
    clients, rows = p.clients_of()[protocol], []
    benchmark = clients.build(p.seeds[0], p.data_root).to(p.device)
    pair = [client for client in benchmark.clients if client.source][:2]
    images = next(client.tests[column][0].images for client in benchmark.clients for column in client.tests)
    drawn = images[torch.randint(len(images), (p.timed_samples,), generator=generator(p.seeds[0], "timing")).to(images.device)]
    for plain, table in enumerate((p.recipes(protocol, rounds=1, cohort=1), p.plain_recipes(protocol))):
        setting = p.setting(protocol, bool(plain), clients)
        task = make_task(setting, benchmark, p.seeds[0], p.engine(), p.data_root)
        for method, recipe in table.items():
            if method == CUT:  # costs what no adaptation does
                continue
            who = f"{method} (timing)"
            sample = drawn[: p.costly_samples or None] if recipe.costly else drawn
            with running_on(p.engine()):
                state, part = untrained(recipe, task, pair, who)
                with called(recipe.adapt, who) as adapter:
                    seconds = seconds_per_1000(adapter, task, state, part, sample, repeats=repeats)
                    memory = peak_memory(adapter, task, state, part, sample[:MEASURED])
            row = {"protocol": protocol, "method": method, "run_model": setting.model, "seconds": np.mean(seconds)}
            sent = sum(tensor.nbytes for tensor in state.values())
            known = sum(tensor.nbytes for name, tensor in part.items() if name.startswith("shared."))
            row |= {"seconds_std": pd.Series(seconds).std(), "memory": memory / 2**20, "training": passes(recipe.train)}
            row |= {"sent": sent / 2**10, "shared": known / 2**10, "repeats": repeats, "timed_samples": len(sample)}
            rows.append(row)
    return rows


def cost(tests: pd.DataFrame, times: pd.DataFrame) -> pd.DataFrame:
    """``times`` with accuracy and gain, mean over a protocol's tests (of each client first), then clients, then seeds with their n-1
    std, and the number of different test images of a seed."""
    key = ["protocol", "method"]
    found = times.merge(distinct(tests).rename("images").rename_axis(key).reset_index(), on=key)
    for name, frame in (("accuracy", tests), ("gain", gains(tests))):
        means = average(_client_means(frame), ["setting", "method"])[["setting", "method", "mean", "std"]]
        found = found.merge(means.rename(columns={"setting": "protocol", "mean": name, "std": f"{name}_std"}), on=key)
    told = provenance(tests, ["setting", "method"]).rename(columns={"setting": "protocol"})
    return found.merge(told.drop(columns="run_model"), on=key)


def seconds_on(priced: pd.DataFrame, protocols: Iterable[str] | None = None) -> pd.Series:
    """Method -> seconds per 1,000 samples, the mean over those of ``protocols`` (None: all) on which it was timed. priced: of ``cost``, or
    empty."""
    if priced.empty:
        return pd.Series(dtype=float)
    own = priced if protocols is None else priced[priced["protocol"].isin(protocols)]
    return own.groupby("method", sort=False)["seconds"].mean()


def _client_means(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.groupby(["setting", "method", "seed", "client"], sort=False)["accuracy"].mean().reset_index()
