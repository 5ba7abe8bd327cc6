"""UPFL's appendix tables, counted on the kit's own clients and networks."""

from collections.abc import Collection

import pandas as pd
import torch

from fedlib.data import counts, shown
from fedlib.models import build, state_of
from fedlib.models.adaptation import Adaptation
from fedlib.papers.upfl.settings import BLOCKS, Parameters, main_settings, setting
from fedlib.setting import Setting
from fedlib.study import Study

SIZES = {"convnet_small": 32, "convnet_medium": 64, "convnet_big": 128}  # width of the adaptation model


def clients(study: Study) -> pd.DataFrame:
    """AT1: classes, clients, samples and samples per client of every block's own partition."""
    parts = []
    for printed, s in main_settings(study.p).items():
        partition, network, _ = BLOCKS[printed]
        part = _counted(study.p, s, printed, (True, False))
        parts.append(part.assign(dataset=printed, model=network.removesuffix("_2048"), setting=partition))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def rotated(study: Study) -> pd.DataFrame:
    """AT2: clients, samples and samples per client of the concept study's two halves."""
    if study.p.run_on("mnist") is None:
        return pd.DataFrame()
    s, halves = setting(study.p, "mnist", "concept"), {"train, angles 0/30/60": True, "test, angles 15/45": False}
    parts = [_counted(study.p, s, "mnist", (half,)).assign(setting=f"concept shift {name}") for name, half in halves.items()]
    table = pd.concat(parts, ignore_index=True)
    return table[table["column"] != "classes"]


def widths(study: Study) -> pd.DataFrame:
    """AT3: layer widths of the kit's three network sizes."""
    parts = []
    for name, hidden in SIZES.items():
        prediction = state_of(build(name, (3, 32, 32), 10, seed=0))
        with torch.random.fork_rng(devices=[]):
            judging = state_of(Adaptation(10, hidden))
        layers = [f"prediction_{layer}" for layer in ("conv1", "conv2", "fc1", "out")] + ["adaptation_fc1", "adaptation_fc2"]
        sizes = [t.shape[0] for state in (prediction, judging) for n, t in state.items() if n.endswith("weight")]
        # The adaptation model's third hidden layer is not in the print.
        values = dict(zip(layers, sizes, strict=False)) | {"adaptation_out": sizes[-1]}
        parts.append(_numbers(values, run_dataset="networks alone", run_model=name, status="ok").assign(model=name))
    return pd.concat(parts, ignore_index=True).assign(setting="model heterogeneity", dataset="cifar10")


def _counted(p: Parameters, s: Setting, printed: str, sources: Collection[bool]) -> pd.DataFrame:
    benchmark = s.protocol.build(p.seeds[0], p.data_root)
    members = [client for client in benchmark.clients if client.source in sources]
    tested = sum(len(draws[0]) for c in members if not c.source for draws in c.tests.values())
    samples = tested + sum(len(client.train) + len(client.val) for client in members)
    values = {"classes": benchmark.n_classes, "clients": len(members), "samples": samples}
    status = "ok" if counts(benchmark.dataset, (printed,)) else "stand-in"
    values["samples_per_client"] = round(samples / len(members))
    return _numbers(values, run_dataset=shown(benchmark.dataset), run_model=s.model, status=status)


def _numbers(values: dict[str, int], **ran: str) -> pd.DataFrame:
    frame = pd.DataFrame({"column": values.keys(), "mean": values.values()})
    return frame.assign(method="-", std=float("nan"), n_seeds=1, **ran)
