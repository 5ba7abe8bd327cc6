"""The numbers behind UPFL's figures and appendix tables, as the frames that its claims read (``claims``)."""

from collections.abc import Iterable

import numpy as np
import pandas as pd
import torch

from fedlib.adapt.fedtta import FedTTAPlus
from fedlib.core import FINAL, Recipe
from fedlib.data import about
from fedlib.experiment import Setting, run
from fedlib.models import build, state_of
from fedlib.models.adaptation import Adaptation
from fedlib.papers.upfl.settings import (
    BLOCKS,
    SHARES,
    Parameters,
    chosen,
    evaluated,
    filled,
    label,
    measure,
    named,
    pooled,
    run_on,
    selected,
    setting,
    status,
)

KEPT = ("Tent", "ODPFL-HN", "FedTTA", "FedTTA-Prox", "FedTTA++")  # methods of Figure 3
STEPS = 50
SIZES = {"convnet_small": 32, "convnet_medium": 64, "convnet_big": 128}  # width of the adaptation model


def figure2(p: Parameters) -> pd.DataFrame:
    """client, step (0 before adaptation), column (accuracy, loss, entropy), mean: 50 steps of the final FedTTA model on every new client.

    Seed: the first of the run's. The print shows one client: ``peaked``.
    """
    if run_on(p, "cifar10") is None or "FedTTA" not in chosen(p, run_on(p, "cifar10")) or not p.asks("F2"):
        return pd.DataFrame()
    s = setting(p, "cifar10", "pathological")
    recipe = chosen(p, run_on(p, "cifar10"))["FedTTA"]
    walking = FedTTAPlus(recipe.adapt.lr, patience=STEPS + 1, max_steps=STEPS + 1, path=True)
    request = p.request(rounds=(FINAL,), columns=("test",), extras=("predictions", "loss", "entropy"))
    rows = run([s], {"FedTTA": Recipe(recipe.train, None, walking)}, p.seeds[:1], request=request, **p.execution())
    labels = {c.id: c.tests["test"][0].labels.numpy() for c in s.protocol.build(p.seeds[0], p.data_root).clients if not c.source}
    parts = []
    for row in rows.itertuples():
        accuracy = 100 * (row.predictions == labels[row.client][:, None]).mean(0)
        for name, values in {"accuracy": accuracy, "loss": row.loss[0], "entropy": row.entropy[0]}.items():
            parts.append(pd.DataFrame({"client": row.client, "step": range(STEPS + 1), "column": name, "mean": values}))
    frame = pd.concat(parts, ignore_index=True).assign(n_seeds=1, run_dataset=rows["dataset"].iloc[0], run_model=rows["model"].iloc[0])
    return status(frame.assign(run_dataset=named(frame["run_dataset"])), "cifar10")


def peaked(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of one client of ``figure2``: the first whose accuracy peaks inside, else the first. Picked by its test labels, to show what
    the paper shows; no claim rests on it."""
    paths = {client: rows["mean"].to_numpy() for client, rows in frame[frame["column"] == "accuracy"].groupby("client", sort=False)}
    inside = [client for client, path in paths.items() if 0 < path.argmax() < STEPS and path.max() > path[-1]]
    return frame[frame["client"] == (inside or list(paths))[0]]


def kept_steps(p: Parameters) -> pd.DataFrame:
    """client, mean: the step whose network answers under the final FedTTA++ model (0: without a step), per new client and seed."""
    if not p.asks("T1", "AF2", "F2") or run_on(p, "cifar10") is None or "FedTTA++" not in chosen(p, run_on(p, "cifar10")):
        return pd.DataFrame()
    asked = {"rounds": (FINAL,), "columns": ("test",), "extras": ("steps",)}
    rows = measure(p, [("cifar10", "pathological")], ["FedTTA++"], **asked)
    frame = rows[["client", "seed"]].assign(mean=[steps[0] for steps in rows["steps"]], n_seeds=1)
    return status(frame.assign(run_dataset=named(rows["dataset"]), run_model=rows["model"]), "cifar10")


def figure3(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """share, method, mean over the new clients, each at the main table's round. rows: those of the main table."""
    if rows.empty or run_on(p, "cifar10") is None or not p.asks("F3"):
        return pd.DataFrame()
    main = rows[(rows["setting"] == label(p, "cifar10", "pathological")) & rows["method"].isin((*KEPT, *p.own))]
    if main.empty:
        return pd.DataFrame()
    best = selected(main)[["method", "seed", "round"]].drop_duplicates()
    rounds, parts = tuple(sorted(best["round"].unique().tolist())), []
    for share in SHARES:
        fields = {"fields": {"share": share}, "rounds": rounds, "columns": ("test",)}
        part = measure(p, [("cifar10", "pathological")], [m for m in (*KEPT, *p.own) if m in set(main["method"])], **fields)
        parts.append(part.merge(best, on=["method", "seed", "round"]).assign(share=share))
    return status(pooled(pd.concat(parts), ["share", "method"]), "cifar10")


def figure4(rows: pd.DataFrame) -> pd.DataFrame:
    """method, column (validation, test), mean under concept shift."""
    return status(pooled(selected(rows), ["method", "column"]), "mnist_rotated") if len(rows) else rows


def in_figure4(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of ``figure4`` that the paper draws: all but PFL's."""
    return frame[~frame["method"].str.startswith("PFL")] if len(frame) else frame


def figure5(rows: pd.DataFrame) -> pd.DataFrame:
    """round, method (Tent, HeteroFedTTA), strength (lambda, 0 for Tent), mean over the new clients."""
    if rows.empty:
        return rows
    name = rows["method"].str.split(":")
    rows = rows.assign(method=name.str[0], strength=pd.to_numeric(name.str[1]).fillna(0.0), round=rows["finished"])
    return status(pooled(rows, ["round", "method", "strength"]), "cifar10")


def curves(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """dataset, round, method, column, mean: the histories of the main table, each run once. Where one run stands in for several printed
    data sets, ``dataset`` names them all."""
    if rows.empty:
        return rows
    measured = pooled(rows.assign(round=rows["finished"]), ["setting", "round", "method", "column"])
    served: dict[str, list[str]] = {}
    for printed, (partition, _, _) in BLOCKS.items():
        if run_on(p, printed):
            served.setdefault(label(p, printed, partition), []).append(about(p.dataset).shown if about(p.dataset).own else printed)
    parts = [status(measured[measured["setting"] == run], names[0]).assign(dataset=", ".join(names)) for run, names in served.items()]
    return pd.concat(parts, ignore_index=True)


def clients(p: Parameters) -> pd.DataFrame:
    """AT1: classes, clients, samples and samples per client of every block's own partition."""
    parts = []
    for printed, (partition, network, _) in BLOCKS.items():
        if run_on(p, printed):
            counts = _counts(p, setting(p, printed, partition), [True, False])
            parts.append(_counted(counts, printed).assign(dataset=printed, model=network.removesuffix("_2048"), setting=partition))
    return filled("AT1", parts)


def rotated(p: Parameters) -> pd.DataFrame:
    """AT2: clients, samples and samples per client of the concept study's two halves."""
    if run_on(p, "mnist") is None:
        return filled("AT2", [])
    s = setting(p, "mnist", "concept")
    halves = {"train, angles 0/30/60": [True], "test, angles 15/45": [False]}
    parts = [_counted(_counts(p, s, half), "mnist_rotated").assign(setting=f"concept shift {name}") for name, half in halves.items()]
    table = pd.concat(parts)
    return filled("AT2", [table[table["column"] != "classes"]])


def widths() -> pd.DataFrame:
    """AT3: layer widths of the kit's three network sizes, counted on the networks."""
    parts = []
    for name, hidden in SIZES.items():
        prediction = state_of(build(name, (3, 32, 32), 10, seed=0))
        with torch.random.fork_rng(devices=[]):
            judging = state_of(Adaptation(10, hidden))
        layers = [f"prediction_{layer}" for layer in ("conv1", "conv2", "fc1", "out")] + ["adaptation_fc1", "adaptation_fc2"]
        sizes = [t.shape[0] for state in (prediction, judging) for n, t in state.items() if n.endswith("weight")]
        # The adaptation model's third hidden layer is not in the print.
        values = dict(zip(layers, sizes, strict=False)) | {"adaptation_out": sizes[-1]}
        parts.append(pd.DataFrame({"column": values.keys(), "mean": values.values(), "run_model": name, "model": name}))
    frame = pd.concat(parts, ignore_index=True).assign(method="-", setting="model heterogeneity", dataset="cifar10", std=np.nan, n_seeds=1)
    return filled("AT3", [frame.assign(run_dataset="networks alone", status="ok")])


def _counts(p: Parameters, s: Setting, source: Iterable[bool]) -> dict:
    benchmark, source = s.protocol.build(p.seeds[0], p.data_root), list(source)
    members = [client for client in benchmark.clients if client.source in source]
    tested = sum(len(draws[0]) for c in members if not c.source for draws in c.tests.values())
    samples = tested + sum(len(client.train) + len(client.val) for client in members)
    counts = {"classes": benchmark.n_classes, "clients": len(members), "samples": samples}
    return counts | {"samples_per_client": round(samples / len(members)), "run_dataset": benchmark.dataset, "run_model": s.model}


def _counted(counts: dict, printed: str) -> pd.DataFrame:
    values = {name: value for name, value in counts.items() if not name.startswith("run_")}
    frame = pd.DataFrame({"column": values.keys(), "mean": values.values(), "method": "-", "std": np.nan, "n_seeds": 1})
    frame = frame.assign(run_dataset=counts["run_dataset"], run_model=counts["run_model"])
    return status(frame.assign(run_dataset=named(frame["run_dataset"])), printed)


def final(frame: pd.DataFrame) -> pd.DataFrame:
    """Figure 5's last points, one row per learner."""
    last = frame[frame["round"] == frame["round"].max()] if len(frame) else frame
    return last[["method", "strength", "mean"]].reset_index(drop=True).round(2) if len(last) else last


def evaluations(p: Parameters) -> str:
    """After which training rounds the kit evaluates, for the reader."""
    s = setting(p, "cifar10", "pathological") if run_on(p, "cifar10") else None
    return "nowhere" if s is None else f"after rounds {', '.join(str(t - 1) for t in evaluated(s))}"
