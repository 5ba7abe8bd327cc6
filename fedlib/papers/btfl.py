"""BTFL's notebook as data: profiles, settings, recipes, and the numbers behind its tables and figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from fedlib.adapt.btfl import mixture_weight
from fedlib.adapt.output import slice_of
from fedlib.adapt.reference import BTFLLoop, FedTHELoop
from fedlib.clients import Benchmark
from fedlib.engine import running_on
from fedlib.experiment import Setting, make_task, run
from fedlib.models import MODELS, state_of
from fedlib.names import check_name
from fedlib.notebook import read_parameters
from fedlib.papers.common import DISPLAY, Common, average, densities, labelled, with_mean
from fedlib.protocols.btgfl import BTGFL, COLUMNS, SHIFT_MIXES
from fedlib.protocols.shifts import SPLITS
from fedlib.published import cells
from fedlib.published.compare import REQUIRED, fill
from fedlib.recipes import Recipe
from fedlib.recipes.btfl import METHODS, recipes
from fedlib.seeding import generator
from fedlib.task import Local, Schedule
from fedlib.timing import seconds_per_1000

# Data sets that count as the paper's own, and test columns that need CIFAR-10.1, for which the kit falls back on a stand-in.
REAL = ("cifar10", "cifar10_jpeg", "imagenet32", "officehome")
SKIP = "none"

# Rounds of the paper where the profile has no number of its own, and the published scripts' factor of the L1 term.
ROUNDS = {"cifar10": 130, "imagenet32": 100, "officehome": 50}
OTHER_CLIENTS = 10
FEATURE_L1 = {"cnn": 1e-3, "cct4_relu": 1e-4, "imagenet32": 1e-4}
TIMED = {"TTT": None, "MEMO-P": None, "FedTHE": FedTHELoop, "BTFL": BTFLLoop}
# Published name of a network -> what runs; CCT's features are rectified for all methods, since the binary codes need it.
NETWORKS = {"cnn": "cnn", "resnet20gn": "resnet20gn", "cct4": "cct4_relu"}

_DIGITS = {
    **{"dataset": "digits", "officehome": "digits5", "imagenet32": "digits5", "wide_model": "cnn", "clients": 10, "rounds": 6},
    **{"other_rounds": 2, "network_rounds": 1, "local_epochs": 2, "costly_samples": 2, "timed_samples": 2},
}
PROFILES = {
    "smoke": _DIGITS | {"rounds": 4, "seeds": [0]},
    "small": _DIGITS | {"seeds": [0, 1, 2]},
    "paper": {
        **{"dataset": "cifar10", "officehome": "officehome", "imagenet32": "imagenet32", "wide_model": "resnet20gn_w4", "clients": 20},
        **{"rounds": 130, "local_epochs": 5, "seeds": [0, 1, 2], "costly_samples": 0, "timed_samples": 1000},
    },
}


@dataclass(frozen=True)
class Parameters(Common):
    """The parameters of ``notebooks/btfl.ipynb`` besides the common ones.

    officehome, imagenet32: data sets that run in the place of these (``none``: their tables are not run); wide_model: their network;
    other_rounds: rounds of everything but Tables 1-3 and Figures 5 and 6; network_rounds: of Figure 5; alphas, architectures, label_counts:
    of Figures 4, 5 and 1; timed_samples: of the two methods with gradients in Table 3; methods: published names (None: all).
    """

    methods: list[str] | None
    split: str
    shift_mix: str
    officehome: str | None
    imagenet32: str | None
    wide_model: str | None
    other_rounds: int | None
    network_rounds: int | None
    alphas: list[float]
    architectures: list[str]
    label_counts: list[int]
    timed_samples: int | None

    def __post_init__(self):
        super().__post_init__()
        check_name(self.split, SPLITS, "split")
        check_name(self.shift_mix, SHIFT_MIXES, "mixture of shifts")
        for name in self.methods or ():
            check_name(name, METHODS, "method")
        for name in (*self.architectures, *([self.wide_model] if self.wide_model else [])):
            check_name(name, MODELS, "model")
        if 0.1 not in self.alphas or 10 not in self.label_counts:
            raise ValueError(f"alphas must contain 0.1 and label_counts 10, got {self.alphas} and {self.label_counts}")
        for name in ("other_rounds", "network_rounds", "timed_samples"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"parameter {name} must be at least 1, got {value}")

    def recipes(self, of: str = "cnn", names: Sequence[str] | None = None) -> dict[str, Recipe]:
        """Table 2's recipes as the paper runs them ``of`` a network or one of its other data sets: those that ``methods`` allows."""
        table = recipes(FEATURE_L1.get(of, 0.0), 0.01 if of.startswith("cct") else 0.1)
        return {name: r for name, r in table.items() if name in (names or METHODS) and name in (self.methods or METHODS)}


def parameters(namespace: Mapping) -> Parameters:
    """The notebook's checked parameters, with the profile's values filled in."""
    return read_parameters(Parameters, namespace).resolved(PROFILES)


def setting(
    p: Parameters, alpha: float, label: str | None = None, *, block: str = "cifar10", model: str = "cnn", rounds: int = 0, **protocol
) -> Setting:
    """BTGFL at Dir(alpha) on what runs in the place of ``block``, under the published label. rounds: 0 for ``other_rounds``; protocol:
    further fields of ``BTGFL``."""
    dataset = p.dataset if block == "cifar10" else getattr(p, block)
    digits = dataset.startswith("digits")
    fields = {"n_clients": p.clients if block == "cifar10" else OTHER_CLIENTS, "split": p.split, "shift_mix": p.shift_mix}
    fields["natural_size"] = 300 if digits else 12_900 if block == "imagenet32" else 2000
    if dataset == "digits5" and block == "imagenet32":
        fields["domain"] = "clutter"
    phase = {"lr": 0.01, "batch_size": 128 if block == "imagenet32" else 32}
    if digits:
        # The digits' clients hold a hundredth of CIFAR-10's; a larger step and smaller batches give them comparably many effective steps.
        phase = {"lr": 0.05 if model == "cnn" else 0.01, "batch_size": 16}
    if model.startswith("resnet"):
        phase["momentum"] = 0.9
    if model.startswith("cct"):
        phase |= {"optimizer": "adam", "lr": 0.001}
    schedule = Schedule(rounds or other_rounds(p, block), Local(**phase, epochs=p.local_epochs), Local(**phase, epochs=1))
    return Setting(label or f"Dir({alpha})", BTGFL(dataset, alpha=alpha, **fields | protocol), model, schedule)


def other_rounds(p: Parameters, block: str = "cifar10") -> int:
    """Rounds of everything but Tables 1-3 and Figures 5 and 6."""
    return p.other_rounds or (p.rounds if block == "cifar10" else ROUNDS[block])


def both_heterogeneities(p: Parameters, block: str) -> tuple[pd.DataFrame, str]:
    """Rows of Dir(0.1) and Dir(1.0) on ``block`` (officehome or imagenet32), or no rows and the reason."""
    if getattr(p, block) == SKIP:
        return pd.DataFrame(), f"switched off by the parameter {block}"
    settings = [setting(p, alpha, block=block, model=p.wide_model) for alpha in (0.1, 1.0)]
    try:
        return run(settings, p.recipes(block), p.seeds, request=p.request(), **p.execution()), "left out by the parameter methods"
    except FileNotFoundError as error:
        return pd.DataFrame(), p.missing(error)


def scores(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean and deviation over seeds of every setting, method and column, ``avg`` among the latter, with what was run."""
    return labelled(average(with_mean(rows, "avg")), rows, REAL)


def table(name: str, rows: pd.DataFrame, reason: str = "left out by the parameter methods") -> pd.DataFrame:
    """Contract frame of one printed table from measured rows; ``reason``: why the cells that were not measured were not."""
    measured = scores(rows) if len(rows) else pd.DataFrame(columns=REQUIRED)
    printed = cells("btfl", name)[["setting", "method", "column"]].drop_duplicates()
    return fill("btfl", name, measured.merge(printed, on=["setting", "method", "column"]), reason=reason)


def bars(rows: pd.DataFrame) -> pd.DataFrame:
    """Figures 4 and 5: mean over the five tests of every setting, network and method."""
    means = scores(rows)
    return means[means["column"] == "avg"].assign(model=lambda t: t["run_model"])


def weights(rows: pd.DataFrame) -> pd.DataFrame:
    """Figure 6: density of the weight of the global head in 20 bins, for every column and for the average of the first four."""
    each = densities(rows, "weight", bins=20)
    first = each[each["column"].isin(COLUMNS[:4])]
    mean = first.groupby(["setting", "method", "weight", "n_seeds"], sort=False)["density"].mean().reset_index().assign(column="average")
    return labelled(pd.concat([each, mean], ignore_index=True), rows, REAL)


def terms(rows: pd.DataFrame) -> pd.DataFrame:
    """Figure 1: mean over all test samples of the similarity and the alignment loss, by number of classes (the setting's label)."""
    parts = []
    for name in ("similarity", "alignment"):
        value = rows.assign(accuracy=rows[name].map(np.mean)).drop(columns="cut_accuracy", errors="ignore")
        parts.append(average(value, ("setting", "method")).assign(column=name))
    frame = pd.concat(parts, ignore_index=True)
    return labelled(frame.assign(classes=frame["setting"].astype(int)), rows, REAL)


def strengths(rows: pd.DataFrame) -> pd.DataFrame:
    """Accuracy against the cap on the prior, which is the name of the recipe."""
    frame = scores(rows)
    return frame.assign(strength=frame["method"].astype(int), method="BTFL")


def integral_error() -> pd.DataFrame:
    """The weight of the global head for a ratio of one under priors left by one-sided external streams: exact, trapezoid, and the gap."""
    alpha = np.array([1.0, 2.6, 5.0, 15.0, 31.0, 299.0])
    exact, code = (mixture_weight(alpha, 1.0, 1.0, integral).numpy() for integral in ("exact", "trapezoid"))
    return pd.DataFrame({"alpha": alpha, "beta": 1.0, "exact": exact, "trapezoid": code, "gap": code - exact})


def times(p: Parameters, benchmark: Benchmark, *, repeats: int = 3, samples: int = 320, looped: int = 80) -> pd.DataFrame:
    """Seconds per 1,000 samples on one client with untrained weights: method, model, style (loop, vectorised), mean and std over repeats.

    samples: drawn with replacement from the client's own test part; the loops take the first ``looped`` of them, and methods whose
    every sample takes gradient steps the first ``timed_samples``.
    """
    benchmark, rows = benchmark.to(p.device), []
    clients, images = benchmark.clients[:2], benchmark.clients[0].tests["original_ind"][0].images
    drawn = images[torch.randint(len(images), (samples,), generator=generator(p.seeds[0], "timing")).to(images.device)]
    for published, model in NETWORKS.items():
        task = make_task(setting(p, 0.1, model=model), benchmark, p.seeds[0], p.engine())
        state = state_of(task.model)
        for method, recipe in p.recipes(model, list(TIMED)).items():
            with running_on(p.engine()):
                personal = recipe.personalize.fit(task, [state] * 2, clients, recipe.personalize.init(task, clients), 1)
            loop = TIMED[method]
            styles = {"loop": loop(recipe.adapt), "vectorised": recipe.adapt} if loop else {"loop": recipe.adapt}
            for style, adapter in styles.items():
                sample = drawn if style == "vectorised" else drawn[: looped if loop else p.timed_samples]
                with running_on(p.engine()):
                    seconds = seconds_per_1000(adapter, task, state, slice_of(personal, 0), sample, repeats=repeats)
                row = {"method": method, "model": published, "run_model": model, "style": style}
                rows.append(row | {"mean": np.mean(seconds), "std": pd.Series(seconds).std()})
    return pd.DataFrame(rows)


def time_table(p: Parameters, times: pd.DataFrame) -> pd.DataFrame:
    """Contract frame of Table 3 from the loops, in which style the published times were taken; ``std`` is over repeats."""
    dataset = {"dataset": "cifar10", "run_dataset": DISPLAY.get(p.dataset, p.dataset), "status": "ok" if p.dataset in REAL else "stand-in"}
    named = {"setting": "unspecified", "column": "seconds_per_1000", "n_seeds": 1, **dataset}
    loops = times[times["style"] == "loop"].drop(columns="style").assign(**named)
    return fill("btfl", "T3", loops, reason="left out by the parameter methods")


def ratios(times: pd.DataFrame) -> pd.DataFrame:
    """Times over BTFL's of the same network, printed and ours, and what solving the whole stream at once gains over the loop."""
    index = ["model", "method"]
    ours = times.pivot(index=index, columns="style", values="mean")
    published = cells("btfl", "T3").set_index(index)["mean_value"]
    over = {name: series / series.xs("BTFL", level="method") for name, series in (("published", published), ("loop", ours["loop"]))}
    ours["loop / BTFL"], ours["published / BTFL"] = over["loop"], over["published"]
    return ours.assign(gain=ours["loop"] / ours["vectorised"]).reindex(published.index)


def about(p: Parameters, benchmark: Benchmark, rounds: int | None = None) -> str:
    """One line that has to stand beside every result: data, stand-in, schedule, seeds, split."""
    data = DISPLAY.get(benchmark.dataset, benchmark.dataset)
    stand_in = f" (stand-in: {benchmark.stand_in})" if benchmark.stand_in else ""
    shift = " (shifted and mixed tests: stand-in for CIFAR-10.1)" if benchmark.stand_in_columns else ""
    seeds = f"{len(p.seeds)} seed{'s' * (len(p.seeds) > 1)}"
    schedule = f"{len(benchmark.clients)} clients, {rounds or p.rounds} rounds x {p.local_epochs} epochs"
    return f"{data}{stand_in}{shift}, {schedule}, {seeds}, {p.split} split, {p.profile}"
