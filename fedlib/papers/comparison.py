"""The comparison as data: one bench for the methods of all five papers, and the tables behind its figures.

One data set, one network and one schedule on nine protocols. Two protocols need domains, which the data set may lack: they take a relative
of it. FedTTA needs a network without batch norm; it and its baseline run on UPFL's own. The result of a method is its final model.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch

from fedlib.core import FINAL, Clients, Local, Recipe, Schedule, slice_of
from fedlib.data import about as about_data
from fedlib.engine import running_on
from fedlib.experiment import Setting, make_task, run
from fedlib.models import MODELS
from fedlib.names import check_name
from fedlib.notebook import read_parameters
from fedlib.papers import ranking
from fedlib.papers.common import LABELLED, Common, average, counts, own_path, shown
from fedlib.papers.fedicon.recipes import views_of
from fedlib.personalize.rates import Rates
from fedlib.protocols.brfl import BRFL
from fedlib.protocols.btgfl import BTGFL
from fedlib.protocols.fedicon import Domains
from fedlib.protocols.ttpfl import SHIFTS, TTPFL
from fedlib.protocols.upfl import UPFL
from fedlib.recipes.comparison import CUT, METHODS, NONE, PLAIN, baseline, recipes, without_batch_norm
from fedlib.seeding import generator
from fedlib.timing import seconds_per_1000

REAL = ("cifar10", "digits5")  # printed data sets
DATASETS = ("digits", "cifar10", "cifar10_jpeg")
DOMAINS = ("digits5", "digits5_fedbn")

# Protocol -> what its clients bring: labels and a validation part, labels alone, or nothing (they are new).
PROTOCOLS = {
    "BRFL": "labels and validation",
    "BTGFL": "labels and validation",
    **{f"TTPFL {shift}": "new" for shift in SHIFTS},
    "UPFL new clients": "new",
    "FedICON covariate": "labels",
    "FedICON attribute": "labels and validation",
    "FedICON domain": "labels",
}
OFFERS = {"labels and validation": LABELLED, "labels": ("labels",), "new": ("validation",)}
# Test columns of a protocol where not all are shown, and one name for columns that are named after domains.
COLUMNS = {"UPFL new clients": ("test",), "FedICON attribute": ("natural",)}
SHOWN = {"FedICON covariate": "corrupted", "FedICON domain": "unseen domain"}

# Why a method does not run on clients of a kind. What is not here runs.
_LABELS = "learns a personal part from the client's own labels, and new clients bring none"
_VALIDATION = "and the domains' clients have no validation part"
REASONS = {
    "new": {
        "FedAvg+FT": _LABELS,
        "kNN-Per": "its memory holds the client's own labelled images, and new clients bring none",
        "TTT": "tunes model and rotation head on the client's own training images, and new clients bring none",
        "EATA": "its regulariser needs the client's own training images, and new clients bring none",
        "FedTHE": _LABELS,
        "FedTHE+": _LABELS,
        "BTFL": _LABELS,
    },
    "labels": {
        "kNN-Per": f"chooses its weight on validation images, {_VALIDATION}",
        "BBSE": f"counts confusions on validation images, {_VALIDATION}",
        "ATP-batch": f"learns its rates on validation images, {_VALIDATION}",
        "ATP-online": f"learns its rates on validation images, {_VALIDATION}",
    },
    "labels and validation": {},
}
EXHIBITS = ("heatmap", "cost", "ranks", "leak")
ON_PLAIN = tuple(without_batch_norm("digits"))
LEFT_OUT = "left out by the parameters of this run (methods or protocols)"

# population: clients of TTPFL and UPFL; pool: images of TTPFL; images: for training, per domain; timed_samples: of the timed stream.
_DIGITS = {"dataset": "digits", "domains": "digits5", "model": "fedicon_cnn_small", "plain_model": "mlp", "clients": 10}
PROFILES = {
    "smoke": _DIGITS
    | {"population": 20, "pool": 600, "images": 100, "rounds": 4, "local_epochs": 2, "classifier_rounds": 1, "rate_rounds": 5}
    | {"lr": 0.02, "contrast_lr": 0.02, "seeds": [0], "costly_samples": 1, "timed_samples": 40},
    "small": _DIGITS
    | {"population": 20, "pool": 1200, "images": 100, "rounds": 10, "local_epochs": 2, "classifier_rounds": 3, "rate_rounds": 10}
    | {"lr": 0.02, "contrast_lr": 0.02, "seeds": [0, 1, 2], "costly_samples": 2, "timed_samples": 100},
    "paper": {"dataset": "cifar10", "domains": "digits5_fedbn", "model": "fedicon_cnn", "plain_model": "convnet", "clients": 20}
    | {"population": 100, "pool": 0, "images": 743, "rounds": 100, "local_epochs": 5, "classifier_rounds": 5, "rate_rounds": 200}
    | {"lr": 0.01, "contrast_lr": 0.005, "seeds": [0, 1, 2], "costly_samples": 0, "timed_samples": 1000},
}


@dataclass(frozen=True)
class Parameters(Common):
    """The parameters of ``notebooks/comparison.ipynb`` besides the common ones.

    domains: data set of the two protocols that need domains; held_out: the one that nobody trains on (None: the last); images: training
    images per domain; model, plain_model: network with batch norm, and without for FedTTA; clients: of BRFL, BTGFL and FedICON's attribute
    shift; population: of TTPFL and UPFL, training and new clients together, even; pool: images that enter TTPFL, 0 for all; lr,
    contrast_lr, classifier_rounds: of training, and FedICON's; rate_rounds: of learning ATP's rates; timed_samples: images of the timed
    stream; protocols: names (None: all); tables: of ``EXHIBITS``, what is shown (None: all). FedTTA's network keeps its ``lr`` of 0.1.
    """

    FOLLOWS = ("domains",)

    domains: str | None
    held_out: str | None
    images: int | None
    model: str | None
    plain_model: str | None
    population: int | None
    pool: int | None
    contrast_lr: float | None
    classifier_rounds: int | None
    rate_rounds: int | None
    timed_samples: int | None
    protocols: list[str] | None

    def __post_init__(self):
        super().__post_init__()
        for name, valid in {"dataset": DATASETS, "domains": DOMAINS, "model": MODELS, "plain_model": MODELS}.items():
            if (value := getattr(self, name)) is not None and (name in ("model", "plain_model") or own_path(value) is None):
                check_name(value, valid, name)
        if self.held_out is not None and self.domains is not None:
            check_name(self.held_out, about_data(self.domains).domains, "domain")
        self.check_methods(METHODS)
        for name in self.protocols or ():
            check_name(name, PROTOCOLS, "protocol")
        for name in self.tables or ():
            check_name(name, EXHIBITS, "table or figure")
        least = {"images": 1, "population": 2, "pool": 0, "classifier_rounds": 1, "rate_rounds": 1, "timed_samples": 1}
        for name, bound in least.items():
            if (value := getattr(self, name)) is not None and value < bound:
                raise ValueError(f"parameter {name} must be at least {bound}, got {value}")
        if self.population is not None and self.population % 2:
            raise ValueError(f"parameter population must be even, half of UPFL's clients train; got {self.population}")

    def asks(self, exhibit: str) -> bool:
        return self.tables is None or exhibit in self.tables

    def clients_of(self) -> dict[str, Clients]:
        """Protocol by name, those that ``protocols`` allows and what is shown needs: cost and leak are of BRFL alone."""
        natural = {"natural_size": 300 if about_data(self.dataset).small else 2000}
        brfl = BRFL(self.dataset, self.clients, alpha=0.1, corruption_draws=1, **natural)
        held_out = self.held_out or ["", *about_data(self.domains).domains][-1]
        table = {
            "BRFL": brfl,
            "BTGFL": BTGFL(self.dataset, self.clients, alpha=0.1, **natural),
            **{f"TTPFL {shift}": TTPFL(self.dataset, shift, self.population, images=self.pool) for shift in SHIFTS},
            "UPFL new clients": UPFL(self.dataset, n_clients=self.population),
            "FedICON covariate": Domains(self.domains, n_train=self.images),
            "FedICON attribute": replace(brfl, alpha=1.0),
            "FedICON domain": Domains(self.domains, "domain", held_out, n_train=self.images),
        }
        table = {name: clients for name, clients in table.items() if name not in self.lacking()}
        needed = table if self.asks("heatmap") or self.asks("ranks") else ("BRFL",)
        chosen = {name: clients for name, clients in table.items() if name in (self.protocols or table) and name in needed}
        if not chosen:
            raise ValueError(f"tables {self.tables} are of {', '.join(needed)}, which the parameter protocols leaves out: {self.protocols}")
        return chosen

    def lacking(self) -> dict[str, str]:
        """Protocols that need what the data sets do not have, with the reason."""
        domains, natural = about_data(self.domains).lacks("domains"), about_data(self.dataset).lacks("natural shift")
        found = {"FedICON covariate": domains, "FedICON attribute": natural, "FedICON domain": domains}
        return {protocol: reason for protocol, reason in found.items() if reason}

    def recipes(self, protocol: str, **rates) -> dict[str, Recipe]:
        """What runs on the network with batch norm: the methods that ``methods`` allows and ``REASONS`` does not exclude, and the
        baselines that their gains need. rates: fields of ATP's ``Rates`` in place of the bench's."""
        # A quarter of the source clients, as published.
        sources = {"new": round(0.8 * self.population)}.get(PROTOCOLS[protocol], self.clients)
        sources = self.population // 2 if protocol.startswith("UPFL") else sources
        own = Rates(**{"rounds": self.rate_rounds, "cohort": max(1, sources // 4)} | rates)
        views = views_of(self.domains if protocol in SHOWN else self.dataset)
        options = {"views": views, "classifier_rounds": self.classifier_rounds, "contrast_lr": self.contrast_lr, "rates": own}
        own = self.beside(self.model, OFFERS[PROTOCOLS[protocol]])
        return self._chosen(protocol, recipes(PROTOCOLS[protocol] != "new", **options) | own)

    def plain_recipes(self, protocol: str) -> dict[str, Recipe]:
        """What runs on the network without batch norm."""
        return self._chosen(protocol, without_batch_norm(self.dataset))

    def _chosen(self, protocol: str, table: Mapping[str, Recipe]) -> dict[str, Recipe]:
        names = [name for name in table if name in (self.methods or table) and name not in REASONS[PROTOCOLS[protocol]]]
        # One's own on cut streams count against no adaptation on the same images.
        needed = {*names, *map(baseline, names), *(CUT for name in names if name in self.own and table[name].costly)}
        return {name: recipe for name, recipe in table.items() if name in needed}

    def setting(self, protocol: str, plain: bool = False, clients: Clients | None = None) -> Setting:
        """A protocol's clients (or others in their place) with one of the two networks and the bench's schedule."""
        local = self.local(Local(lr=self.lr, momentum=0.9, batch_size=32, epochs=self.local_epochs))
        if plain:
            # FedTTA's steps are clipped and, without momentum, larger.
            local = replace(local, lr=0.1, momentum=0.0, weight_decay=1e-4, clip=10.0)
        schedule = Schedule(self.rounds, local, replace(local, epochs=1))
        return Setting(protocol, clients or self.clients_of()[protocol], self.plain_model if plain else self.model, schedule)


def parameters(namespace: Mapping) -> Parameters:
    """The notebook's checked parameters, with the profile's values filled in."""
    return read_parameters(Parameters, namespace).resolved(PROFILES)


def reason(method: str, protocol: str, p: Parameters | None = None) -> str | None:
    """Why a method (of ``p``: one's own too) does not run on a protocol, None where it does."""
    kind = PROTOCOLS[protocol]
    return (REASONS[kind] | (p.refused(p.model, OFFERS[kind]) if p else {})).get(method)


def coverage(p: Parameters | None = None) -> pd.DataFrame:
    """Methods down, one's own of ``p`` last, protocols across: "runs", or why not."""
    names = (*METHODS, *(p.own if p else ()))
    table = {protocol: {method: reason(method, protocol, p) or "runs" for method in names} for protocol in PROTOCOLS}
    return pd.DataFrame(table).rename_axis("method")


def measure(p: Parameters) -> tuple[pd.DataFrame, dict[str, str]]:
    """Rows of the experiment for all protocols, and for protocols without their images the reason."""
    frames, missing = [], p.lacking()
    for name in p.clients_of():
        request = p.request(rounds=(FINAL,), columns=COLUMNS.get(name))
        jobs = [(p.setting(name), p.recipes(name)), (p.setting(name, plain=True), p.plain_recipes(name))]
        if not any(table for _, table in jobs):
            continue
        try:
            rows = pd.concat([run([s], table, p.seeds, request=request, **p.execution()) for s, table in jobs if table])
        except FileNotFoundError as error:
            missing[name] = p.missing(error)
            continue
        frames.append(rows.assign(column=SHOWN.get(name, rows["column"])))
    if not frames and missing:
        raise FileNotFoundError("; ".join(missing.values()))
    if not frames:
        raise ValueError(f"none of the methods {p.methods} runs on a protocol of {list(p.clients_of())}: see the reasons above")
    return pd.concat(frames, ignore_index=True), missing


def gains(rows: pd.DataFrame) -> pd.DataFrame:
    """Accuracy of every client and column, draws averaged, less that of no adaptation of the same network on the same images.

    Columns: setting, method, seed, column, client, accuracy (the gain, in points)."""
    key = ["setting", "seed", "column", "client"]
    each = rows.groupby([*key, "method"], sort=False)["accuracy"].mean().rename("accuracy").reset_index()
    base = each.rename(columns={"method": "baseline", "accuracy": "without"})
    # One's own are known to be cut by their rows only.
    cut = set(rows.loc[rows["cut"].astype(bool), "method"]) - set(METHODS) if "cut" in rows else set()
    against = each["method"].map(lambda method: CUT if method in cut else baseline(method))
    each = each.assign(baseline=against).merge(base, on=[*key, "baseline"], validate="many_to_one")
    return each.assign(accuracy=each["accuracy"] - each["without"]).drop(columns=["baseline", "without"])


def provenance(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """What was run, by ``by``: run_dataset, run_model, status ("ok" or "stand-in")."""
    own = rows["dataset"].map(lambda name: counts(name, REAL)) & ~rows["stand_in"]
    first = rows.assign(own=own).groupby(by, sort=False).agg({"dataset": "first", "model": "first", "own": "all"}).reset_index()
    named = first.assign(run_dataset=first["dataset"].map(shown), run_model=first["model"])
    return named.assign(status=first["own"].map({True: "ok", False: "stand-in"})).drop(columns=["dataset", "model", "own"])


def heatmap(rows: pd.DataFrame, missing: Mapping[str, str], p: Parameters | None = None) -> pd.DataFrame:
    """One row per protocol, test column and method (one's own of ``p`` last), run or not: mean and n-1 std over seeds of the accuracy and
    of the gain, number of seeds, test images per seed, what was run, status ("ok", "stand-in" or "not run: <reason>")."""
    key = ["setting", "method", "column"]
    gain = average(gains(rows)).rename(columns={"mean": "gain", "std": "gain_std"})[[*key, "gain", "gain_std"]]
    images = (rows.groupby(key, sort=False)["n"].sum() / rows.groupby(key, sort=False)["seed"].nunique()).rename("images").reset_index()
    ran = average(rows).merge(gain, on=key).merge(images, on=key).merge(provenance(rows, key), on=key)
    columns = {name: list(part.unique()) for name, part in rows.groupby("setting", sort=False)["column"]}
    names = (*METHODS, *(p.own if p else ()))
    cells = [(name, method, column) for name in PROTOCOLS for column in columns.get(name, [""]) for method in names]
    frame = pd.DataFrame(cells, columns=key).merge(ran, how="left", on=key)
    why = [reason(method, name, p) or missing.get(name, LEFT_OUT) for name, method, _ in cells]
    frame["status"] = frame["status"].where(frame["mean"].notna(), "not run: " + pd.Series(why))
    frame["n_seeds"] = frame["n_seeds"].astype("Int64")
    return frame.rename(columns={"setting": "protocol"})


def ranks(rows: pd.DataFrame) -> pd.DataFrame:
    """``fedlib.papers.ranking.ranks`` of all methods but those that only serve as baselines; no rows where nothing can be ranked."""
    each = rows[~rows["method"].isin([CUT, PLAIN])]
    groups = ranking.ranked(ranking.distinct(each), PROTOCOLS, NONE)
    return ranking.ranks(gains(rows), groups) if groups else pd.DataFrame()


def unranked(rows: pd.DataFrame) -> pd.DataFrame:
    """What is not ranked for want of images: setting, method, images (in the worst column)."""
    images = ranking.distinct(rows[~rows["method"].isin([CUT, PLAIN])])
    return images[images < ranking.LEAST].rename("images").reset_index()


def times(p: Parameters, *, repeats: int = 3) -> pd.DataFrame:
    """Seconds per 1,000 samples on one BRFL client with untrained weights: method, run_model, seconds, and n-1 std over repeats.

    Forward pass, adaptation and prediction of a stream of its own, ``timed_samples`` images drawn with replacement from the client's test;
    methods with per-sample gradients on the first ``costly_samples`` of them. No rows where ``tables`` leaves the costs out.
    """
    if not p.asks("cost") or "BRFL" not in p.clients_of():
        return pd.DataFrame(columns=["method", "run_model", "seconds", "seconds_std", "repeats", "timed_samples"])
    clients = p.clients_of()["BRFL"]
    benchmark, rows = clients.build(p.seeds[0], p.data_root).to(p.device), []
    pair, images = benchmark.clients[:2], benchmark.clients[0].tests["original"][0].images
    drawn = images[torch.randint(len(images), (p.timed_samples,), generator=generator(p.seeds[0], "timing")).to(images.device)]
    for plain, table in enumerate((p.recipes("BRFL", rounds=1, cohort=1), p.plain_recipes("BRFL"))):
        setting = p.setting("BRFL", bool(plain), clients)
        task = make_task(setting, benchmark, p.seeds[0], p.engine())
        for method, recipe in table.items():
            state, part = recipe.train.init(task, pair)["model"], {}
            sample = drawn[: p.costly_samples or None] if recipe.costly else drawn
            with running_on(p.engine()):
                if recipe.personalize:
                    part = recipe.personalize.fit(task, [state] * 2, pair, recipe.personalize.init(task, pair), 1)
                seconds = seconds_per_1000(recipe.adapt, task, state, slice_of(part, 0), sample, repeats=repeats)
            row = {"method": method, "run_model": setting.model, "seconds": np.mean(seconds), "seconds_std": pd.Series(seconds).std()}
            rows.append(row | {"repeats": repeats, "timed_samples": len(sample)})
    return pd.DataFrame([row for row in rows if row["method"] != CUT])


def cost(rows: pd.DataFrame, times: pd.DataFrame) -> pd.DataFrame:
    """``times`` with accuracy and gain on BRFL, mean over its tests (of each client first), then clients, then seeds with their n-1
    std, and the number of different test images of a seed. No rows where either is lacking."""
    tests = rows[rows["setting"] == "BRFL"]
    if tests.empty or times.empty:
        return pd.DataFrame()
    found = times.merge(ranking.distinct(tests).loc["BRFL"].rename("images").reset_index(), on="method")
    for name, frame in (("accuracy", tests), ("gain", gains(tests))):
        means = average(_client_means(frame), ["method"])[["method", "mean", "std"]]
        found = found.merge(means.rename(columns={"mean": name, "std": f"{name}_std"}), on="method")
    return found.merge(provenance(tests, ["method"]).drop(columns="run_model"), on="method")


def _client_means(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.groupby(["method", "seed", "client"], sort=False)["accuracy"].mean().reset_index()


def leak(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """BRFL under the fixed split (of ``rows``) and under the published code's, which draws training images anew at every use: method,
    column, fixed, resplit (means, in percent), their n-1 std over seeds, difference. Methods without per-sample gradients; no rows where
    none of them runs."""
    table = {name: recipe for name, recipe in p.recipes("BRFL").items() if not recipe.costly}
    if not p.asks("leak") or "BRFL" not in p.clients_of() or not table:
        return pd.DataFrame()
    clients = replace(p.clients_of()["BRFL"], split="resplit")
    leaky = run([p.setting("BRFL", clients=clients)], table, p.seeds, request=p.request(rounds=(FINAL,)), **p.execution())
    clean = rows[(rows["setting"] == "BRFL") & rows["method"].isin(table)]
    key = ["method", "column"]
    frames = [average(r, key).rename(columns={"mean": n, "std": f"{n}_std"}) for n, r in (("fixed", clean), ("resplit", leaky))]
    both = frames[0].merge(frames[1].drop(columns=["n_seeds", "n", "units"]), on=key).merge(provenance(clean, key), on=key)
    return both.assign(difference=both["resplit"] - both["fixed"])


def about(p: Parameters) -> str:
    """One line that has to stand beside every result: data, stand-ins, networks, schedule, seeds, cut streams."""
    places = {p.dataset: "CIFAR-10", p.domains: "Digit-5"}
    named = [shown(name) + ("" if counts(name, REAL) else f" (stand-in for {of})") for name, of in places.items()]
    seeds = f"{len(p.seeds)} seed{'s' * (len(p.seeds) > 1)}"
    cut = f", per-sample methods on {p.costly_samples} image{'s' * (p.costly_samples > 1)} of each stream" if p.costly_samples else ""
    data = " and ".join(named)
    return f"{data}, {p.model} (FedTTA: {p.plain_model}), {p.rounds} rounds x {p.local_epochs} epochs, {seeds}{cut}, {p.origin}"
