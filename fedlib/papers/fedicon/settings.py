"""FedICON's notebook as data: profiles, settings, recipes, and the numbers behind its tables and figures."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from fedlib.core import FINAL, Benchmark, Local, Recipe, Schedule
from fedlib.data import about as about_data
from fedlib.data import load
from fedlib.experiment import Setting, run
from fedlib.names import check_name
from fedlib.notebook import read_parameters
from fedlib.papers.common import LABELLED, NONE, Common, average, labelled, own_path, shown, with_refused
from fedlib.papers.fedicon.recipes import MAIN, RECIPES, VIEWS, recipes, views_of
from fedlib.protocols.brfl import BRFL
from fedlib.protocols.fedicon import Domains
from fedlib.published import cells
from fedlib.published.compare import REQUIRED, fill
from fedlib.results import write_table

REAL = ("digits5", "office10", "cifar10")  # printed data sets
PER_CLASS = ("office10", "pacs")  # data sets of which every domain gives 50 training images of each class
DATASETS = {
    "dataset": ("digits5", "digits5_fedbn", NONE),
    "office": ("digits5", "pacs", "office10", NONE),
    "attribute": ("digits", "cifar10", "cifar10_jpeg", NONE),
}
# Columns of a table, in the order of the domains they stand for.
COLUMNS = {"T1": ("MNIST", "SVHN", "USPS", "SynthDigits", "MNIST-M"), "T2": ("Amazon", "Caltech", "DSLR", "Webcam")}
T4 = ("Local", "FedAvg", "FedAvg+FT", "FedICON", "FedICON-us")
# What is shown, and for sections that share the trainings of the covariate shift the methods that each needs.
SECTIONS = ("T1", "T2", "T3", "corrupted", "T4", "T5", "tuning", "F1b", "F3a", "F3b")
T5 = ("Local", "FedICON:LIE", "FedAvg", "FedICON:TTA", "FedICON:LIE+GIS", "FedICON:GIS+TTA", "FedICON:LIE+TTA", "FedICON")
TUNING = {
    "FedICON:LIE+GIS": "none",
    "FedICON:1 epoch": "1 epoch",
    "FedICON": "5 epochs",
    "FedICON:momentum": "5 epochs, momentum 0.9",
    "FedICON:online": "online, one image at a time",
}
COVARIATE = {"T1": (*MAIN, VIEWS), "T4": (*T4, VIEWS), "T5": T5, "tuning": tuple(TUNING)}

# images: for training, per domain of the covariate shift; counts: clients in Figure 3a; epochs: local, in Figure 3b.
_DIGITS = {
    **{"dataset": "digits5", "office": "digits5", "attribute": "digits", "model": "fedicon_cnn_small", "clients": 10, "share": 1.0},
    **{"images": 100, "rounds": 15, "local_epochs": 2, "classifier_rounds": 3, "costly_samples": 6},
    **{"lr": 0.02, "contrast_lr": 0.02, "counts": [5, 10, 20], "epochs": [1, 2, 3]},
}
PROFILES = {
    "smoke": _DIGITS | {"rounds": 10, "seeds": [0]},
    "small": _DIGITS | {"seeds": [0, 1, 2]},
    "paper": {"dataset": "digits5_fedbn", "office": "office10", "attribute": "cifar10", "model": "fedicon_cnn", "clients": 20, "share": 1.0}
    | {"images": 743, "rounds": 100, "local_epochs": 5, "classifier_rounds": 5, "seeds": [0, 1, 2], "costly_samples": 0}
    | {"lr": 0.01, "contrast_lr": 0.005, "counts": [5, 10, 20, 40, 80], "epochs": [1, 3, 5, 7, 9]},
}


@dataclass(frozen=True)
class Parameters(Common):
    """The parameters of ``notebooks/fedicon.ipynb``.

    dataset, office, attribute: images of the three families of tables, ``none`` to leave one out; model: network; images: for training,
    per domain of ``dataset``; share: part of their images that Table 3's clients keep; classifier_rounds: FedICON's last rounds; lr,
    contrast_lr: rates of cross-entropy and of contrastive training; counts, epochs: points of Figure 3; tables: of ``SECTIONS``, what is
    run and shown (None: all).
    """

    FOLLOWS = ("office", "attribute")

    office: str | None
    attribute: str | None
    model: str | None
    images: int | None
    share: float | None
    classifier_rounds: int | None
    contrast_lr: float | None
    counts: list[int] | None
    epochs: list[int] | None

    def __post_init__(self):
        super().__post_init__()
        for name, valid in DATASETS.items():
            if (value := getattr(self, name)) is not None and own_path(value) is None:
                check_name(value, valid, name)
        if self.share is not None and not 0 < self.share <= 1:
            raise ValueError(f"parameter share must lie in (0, 1], got {self.share}")
        self.check_methods(RECIPES)
        for name in self.tables or ():
            check_name(name, SECTIONS, "table, figure or study")

    def asks(self, *sections: str) -> bool:
        """Whether one of ``sections`` is wanted."""
        return self.tables is None or any(section in self.tables for section in sections)

    def recipes(self, dataset: str, names: Sequence[str]) -> dict[str, Recipe]:
        """Those of ``names`` that ``methods`` allows, with the views that suit ``dataset`` and the profile's schedule; one's own as they
        are."""
        table = recipes(views_of(dataset), classifier_rounds=self.classifier_rounds, lr=self.contrast_lr)
        table = {n: recipe for n, recipe in table.items() if n in (self.methods or table)} | self.beside(self.model, offers(self, dataset))
        return {name: table[name] for name in names if name in table}


def parameters(namespace: Mapping) -> Parameters:
    """The notebook's checked parameters, with the profile's values filled in."""
    return read_parameters(Parameters, namespace).resolved(PROFILES)


def offers(p: Parameters, dataset: str) -> tuple[str, ...]:
    """What the clients of a data set bring: those of the domains have no validation part."""
    return LABELLED if dataset == p.attribute else LABELLED[:1]


def _setting(p: Parameters, label: str, protocol, momentum: float = 0.9) -> Setting:
    local = p.local(Local(lr=p.lr, momentum=momentum, batch_size=32, epochs=p.local_epochs))
    return Setting(label, protocol, p.model, Schedule(p.rounds, local, replace(local, epochs=1)))


def _protocol(p: Parameters, dataset: str, **fields) -> Domains:
    images = {"n_train": 50, "per_class": True, "n_test": None} if dataset in PER_CLASS else {"n_train": p.images}
    return Domains(dataset, **images | fields)


def covariate(p: Parameters, label: str = "covariate shift", **fields) -> list[Setting]:
    """Tables 1, 4 and 5, Figures 1b and 3; ``fields``: further ones of ``Domains``. Empty where ``dataset`` is none."""
    return [] if absent(p, "dataset") else [_setting(p, label, _protocol(p, p.dataset, **fields))]


def wanted(p: Parameters) -> list[str]:
    """Methods that the sections asked for need under covariate shift, and one's own where they are shown."""
    published = [name for name in RECIPES if any(name in needed and p.asks(section) for section, needed in COVARIATE.items())]
    return [*published, *(p.own if p.asks("T1", "T4") else ())]


def office(p: Parameters) -> list[Setting]:
    """Table 4's second data set under covariate shift: four domains."""
    return (
        []
        if absent(p, "office") or not p.asks("T4")
        else [_setting(p, "covariate shift", _protocol(p, p.office, domains=len(COLUMNS["T2"])))]
    )


def held_out(p: Parameters) -> list[Setting]:
    """Table 2: one setting for every domain that is left out, labelled by the column it stands for."""
    if absent(p, "office") or not p.asks("T2"):
        return []
    pairs = zip(COLUMNS["T2"], domains(p.office), strict=False)
    return [_setting(p, c, _protocol(p, p.office, domains=len(COLUMNS["T2"]), shift="domain", held_out=d)) for c, d in pairs]


def dirichlet(p: Parameters) -> list[Setting]:
    """Table 3: BRFL's clients at two concentrations. FedTHE's recipe, whose numbers the paper repeats, has no momentum."""
    if p.attribute == NONE or not p.asks("T3", "corrupted"):
        return []
    small = about_data(p.attribute).small
    fields = {"columns": ("original", "corrupted", "natural"), "corruption_draws": 1, "natural_size": 300 if small else 2000}
    fields |= {"train_size": p.share, "test_size": p.share}
    clients = [BRFL(p.attribute, p.clients, alpha, **fields) for alpha in (0.1, 1.0)]
    return [_setting(p, f"Dir({c.alpha})", c, momentum=0.9 if small else 0.0) for c in clients]


def single_sources(p: Parameters) -> list[Setting]:
    """Figure 1b: one client with a part of one domain each time, five clients with such parts of one domain each time, and five with one
    domain each; parts of equal size."""
    if not p.asks("F1b"):
        return []
    names = domains(p.dataset)
    part = min(p.images, _fewest(p) // len(names)) if names and about_data(p.dataset).small else p.images
    single = [s for d in names for s in covariate(p, d, only=d, n_clients=1, n_train=part)]
    alike = [s for d in names for s in covariate(p, f"{d} x {len(names)}", only=d, n_clients=len(names), n_train=part * len(names))]
    return [*single, *alike, *covariate(p, "heterogeneous", n_train=part)]


def _fewest(p: Parameters) -> int:
    """Training images of the domain that has the fewest."""
    data = load(p.dataset, p.data_root)
    train = data.groups if data.is_test is None else data.groups[~data.is_test]
    # Without an official test part, a fifth becomes one.
    return int(np.bincount(train).min() * (0.8 if data.is_test is None else 1))


def counts(p: Parameters) -> list[Setting]:
    """Figure 3a: the same images with more and more clients."""
    return [s for m in p.counts if p.asks("F3a") for s in covariate(p, str(m), n_clients=m)]


def epochs(p: Parameters) -> list[Setting]:
    """Figure 3b: more and more local epochs."""
    return [s for e in p.epochs if p.asks("F3b") for s in covariate(replace(p, local_epochs=e), str(e))]


def jobs(p: Parameters, settings: Sequence[Setting], names: Iterable[str] = MAIN) -> list[tuple[Sequence[Setting], dict[str, Recipe]]]:
    """Settings and recipes that run together: first those whose personal part persists and reads the model of every round, then all others,
    whose trainings keep every tenth. Empty where there is nothing to run."""
    chosen = p.recipes(settings[0].protocol.dataset, tuple(names)) if settings else {}
    lasting = {name: recipe for name, recipe in chosen.items() if getattr(recipe.personalize, "persistent", False)}
    rest = {name: recipe for name, recipe in chosen.items() if name not in lasting}
    sparse = [replace(setting, schedule=replace(setting.schedule, save_every=10)) for setting in settings]
    return [(s, recipes) for s, recipes in ((settings, lasting), (sparse, rest)) if recipes]


def measure(p: Parameters, settings: Sequence[Setting], names: Iterable[str] | None = None) -> pd.DataFrame:
    """Rows of ``fedlib.experiment.run`` for the final models of all settings; no rows where there is nothing to run. names: None for the
    eleven of the main tables and one's own."""
    names = [*MAIN, *p.own] if names is None else list(names)
    parts = [run(s, recipes, p.seeds, request=p.request(rounds=(FINAL,)), **p.execution()) for s, recipes in jobs(p, settings, names)]
    if not parts:
        return pd.DataFrame(columns=["setting", "method", "column", "seed", "client", "accuracy", "cached", "train_cached", "seconds"])
    return pd.concat(parts).sort_values("method", key=lambda method: method.map(names.index), kind="stable", ignore_index=True)


def absent(p: Parameters, family: str) -> str:
    """Why a family of tables does not run (parameter ``dataset``, ``office`` or ``attribute``), "" where it does."""
    name = getattr(p, family)
    if name == NONE:
        return f"switched off by the parameter {family}"
    return about_data(name).lacks("natural shift" if family == "attribute" else "domains")


# Parameter behind each table.
FAMILY = {"T1": "dataset", "T2": "office", "T3": "attribute", "T4": "dataset", "T5": "dataset"}


def _filled(p: Parameters, table: str, measured: pd.DataFrame) -> pd.DataFrame:
    lacking = absent(p, FAMILY[table]) if p.dataset and about_data(p.dataset).own else ""
    reason = lacking or "left out by the parameters of this run (data sets or methods)"
    if table != "T5" and not lacking:
        measured = measured if len(measured) else pd.DataFrame(columns=list(REQUIRED))
        measured = with_refused("fedicon", table, measured, p.refused(p.model, offers(p, p.attribute if table == "T3" else p.dataset)))
    return fill("fedicon", table, measured if len(measured) else pd.DataFrame(columns=list(REQUIRED)), reason=reason)


def _measured(rows: pd.DataFrame) -> pd.DataFrame:
    return labelled(average(rows), rows, REAL) if len(rows) else rows


def _of(rows: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    return rows[rows["method"].isin(names)]


def _columns(rows: pd.DataFrame, dataset: str, table: str) -> pd.DataFrame:
    """Rows with the printed column in place of the domain that stands for it."""
    return rows.assign(column=rows["column"].map(dict(zip(domains(dataset), COLUMNS[table], strict=False))))


def domains(dataset: str) -> tuple[str, ...]:
    """Names of the domains of a data set, in the order of the printed columns for which they stand."""
    return about_data(dataset).domains


def table1(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    return _filled(p, "T1", _measured(_columns(_of(rows, (*MAIN, VIEWS, *p.own)), p.dataset, "T1")))


def table2(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    return _filled(p, "T2", _measured(_columns(rows.assign(setting="domain shift"), p.office, "T2")))


def table3(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """With ``delta``, every client's accuracy under shift less that on its own test."""
    rows = rows[rows["column"] != "corrupted"].replace({"column": {"natural": "attribute_shift"}})
    if rows.empty:
        return _filled(p, "T3", rows)
    if "attribute_shift" not in set(rows["column"]):
        return _filled(p, "T3", _measured(rows))
    key = ["setting", "dataset", "model", "method", "seed", "client"]
    values = [name for name in ("accuracy", "cut_accuracy", "n", "cut_n", "cut") if name in rows]
    under, own = (rows[rows["column"] == name].set_index(key)[values] for name in ("attribute_shift", "original"))
    delta = (under.drop(columns="cut", errors="ignore") - own.drop(columns="cut", errors="ignore")).assign(column="delta", draw=0)
    for name in set(values) & {"n", "cut_n", "cut"}:
        delta[name] = under[name] + own[name]
    return _filled(p, "T3", labelled(average(pd.concat([rows, delta.reset_index()])), rows, REAL))


def table4(p: Parameters, digits5: pd.DataFrame, objects: pd.DataFrame) -> pd.DataFrame:
    """The mean over domains; the digits rows are those of Table 1."""
    shown = (*T4, VIEWS, *p.own)
    blocks = [(_of(digits5, shown), "digits5"), (_of(objects, shown), "office10")]
    measured = [_measured(rows.assign(column="test")).assign(dataset=name, model="cnn") for rows, name in blocks if len(rows)]
    return _filled(p, "T4", pd.concat(measured) if measured else objects)


def table5(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    return _filled(p, "T5", _measured(_of(rows, T5).assign(column="test")))


def publish(p: Parameters, table: pd.DataFrame, folder: Path, name: str) -> None:
    """Write a table that is asked for."""
    if p.asks(name):
        write_table(table, folder, name)


def copied() -> pd.DataFrame:
    """Cells of Table 3 that repeat FedTHE's Table 1 digit for digit, spread included: they were not run anew for FedICON."""
    frame = cells("fedicon", "T3")
    frame = frame[frame["note"].str.startswith("same value as FedTHE")]
    return frame[["setting", "method", "column", "mean", "std", "note"]].reset_index(drop=True)


def figure1b(rows: pd.DataFrame) -> pd.DataFrame:
    """source, column (the target domain), mean; a single source is tested on its own domain only. ``single`` has as many images of the
    target domain as ``heterogeneous`` has, ``single, five parts`` as many images in all."""
    if rows.empty:
        return rows
    name = lambda s: s if s == "heterogeneous" else "single, five parts" if " x " in s else "single"  # noqa: E731
    return _measured(rows).assign(source=lambda t: t["setting"].map(name))


def figure3(rows: pd.DataFrame, x: str) -> pd.DataFrame:
    """x (clients or epochs), method, mean over the domains."""
    rows = rows.assign(column="mean over the domains")
    return _measured(rows).assign(**{x: lambda t: t["setting"].astype(int)}) if len(rows) else rows


def by_method(rows: pd.DataFrame) -> pd.DataFrame:
    """Accuracy by method, setting and test column, with what was run."""
    return _measured(rows)


def tuning(rows: pd.DataFrame) -> pd.DataFrame:
    """FedICON's accuracy by domain with several ways of test-time tuning; online on the first images of each stream only."""
    wide = _of(rows, tuple(TUNING)).pivot_table(index="method", columns="column", values="accuracy", sort=False)
    shown = wide.reindex([name for name in TUNING if name in wide.index]).rename(index=TUNING)
    return shown.assign(mean=shown.mean(axis=1)).round(2).rename_axis("test-time tuning")


def facts(p: Parameters) -> dict:
    """What ``run.json`` tells of the parameters."""
    names = ("dataset", "office", "attribute", "model", "images", "share", "rounds", "classifier_rounds", "local_epochs", "clients")
    told, rates = p.told(), ("lr", "batch_size", "contrast_lr", "counts", "epochs", "costly_samples")
    return {name: told[name] for name in (*names, *rates)} | p.extra_facts()


def ran(table: pd.DataFrame) -> str:
    """What the cells of a contract frame were run on, in one line."""
    done = table[table["mean"].notna()]
    parts = done[["run_dataset", "status", "run_model", "n_seeds"]].drop_duplicates().itertuples(index=False)
    return "; ".join(f"{d} ({s}), {m}, {n} seed{'s' * int(n > 1)}" for d, s, m, n in parts) or "nothing run"


def about(p: Parameters, benchmark: Benchmark, varied: str = "") -> str:
    """One line that has to stand beside every result: data, stand-in, profile, schedule, seeds, network. varied: ``clients`` or ``epochs``,
    left out as the quantity on an axis."""
    data = shown(benchmark.dataset)
    stand_in = f" (stand-in: {benchmark.stand_in})" if benchmark.stand_in else ""
    seeds = f"{len(p.seeds)} seed{'s' * (len(p.seeds) > 1)}"
    clients = "" if varied == "clients" else f"{len(benchmark.clients)} clients, "
    epochs = "" if varied == "epochs" else f" x {p.local_epochs} epochs"
    return f"{data}{stand_in}, {clients}{p.rounds} rounds{epochs}, {seeds}, {p.model}, {p.profile}"
