"""BTFL's notebook as data: profiles, settings, recipes, and the numbers behind its tables and figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedlib.adapt.btfl import mixture_weight
from fedlib.core import Benchmark, Local, Recipe, Schedule
from fedlib.data import about as about_data
from fedlib.data import load
from fedlib.experiment import Setting, run
from fedlib.models import MODELS
from fedlib.names import check_name
from fedlib.notebook import read_parameters
from fedlib.papers.common import NONE, Common, average, densities, labelled, shown, with_mean, with_refused
from fedlib.protocols.btgfl import BTGFL, COLUMNS, SHIFT_MIXES
from fedlib.protocols.shifts import SPLITS
from fedlib.published import cells
from fedlib.published.compare import REQUIRED, fill
from fedlib.published.reading import Note, Page, same_images, summary
from fedlib.recipes.btfl import ROWS, batches_of_one, recipes
from fedlib.results import draw_figure, write_table

REAL = ("cifar10", "imagenet32", "officehome")  # printed data sets
# Domain held out where a data set of domains takes ImageNet-32's place, so that it is another than in OfficeHome's.
SECOND = {"digits5": "clutter"}
# What a figure sets side by side: with one of it there is nothing to see.
COMPARES = {"F1": "classes", "F4": "setting", "F5": "model"}
# What the parameter ``tables`` may ask for; B13: the cap of the prior, splits: the split and the mixture of shifts.
SECTIONS = (*(f"T{i}" for i in range(1, 8)), "F1", "F4", "F5", "F6", "B13", "switches", "splits")
# Tables of the other data sets -> data set and Dirichlet value.
OTHERS = {"T5": ("officehome", 0.1), "T6": ("officehome", 1.0), "T4": ("imagenet32", 0.1), "T7": ("imagenet32", 1.0)}
# Rows that are not printed, with the tables' own methods.
OURS = ("BTFL (code)", "FedTHE, inclusive history")

# Rounds of the paper where the profile has no number of its own, and the published scripts' factor of the L1 term.
ROUNDS = {"cifar10": 130, "imagenet32": 100, "officehome": 50}
OTHER_CLIENTS = 10
FEATURE_L1 = {"cnn": 1e-3, "cct4_relu": 1e-4, "imagenet32": 1e-4}

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
    of Figures 4, 5 and 1 (which shows all classes of the data as well); timed_samples: of the two methods with gradients in Table 3;
    methods: also ``BTFL (code)``; tables: ``SECTIONS`` (None: all); lr, batch_size: of both local phases.
    """

    FOLLOWS = ("officehome",)

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
        self.check_methods(ROWS)
        for name in self.tables or ():
            check_name(name, SECTIONS, "table, figure or study")
        for name in (*self.architectures, *([self.wide_model] if self.wide_model else [])):
            check_name(name, MODELS, "model")
        if not self.alphas or not all(0 < alpha < np.inf for alpha in self.alphas):
            raise ValueError(f"parameter alphas must be positive Dirichlet values, got {self.alphas}")
        if any(count < 4 for count in self.label_counts):
            raise ValueError(f"parameter label_counts must be at least 4, or clients differ in size, got {self.label_counts}")
        for name in ("other_rounds", "network_rounds", "timed_samples"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"parameter {name} must be at least 1, got {value}")

    def asks(self, *sections: str) -> bool:
        return self.tables is None or any(section in self.tables for section in sections)

    def allows(self, method: str) -> bool:
        return self.methods is None or method in self.methods

    def absent(self, section: str) -> str:
        """Why a section that was not measured was not."""
        return "left out by the parameter methods" if self.asks(section) else "not asked for"

    def network(self, of: str) -> str:
        """The network of a block, which is called by its network or by its data set."""
        return self.wide_model if of in ROUNDS else of

    def recipes(self, of: str = "cnn", names: Sequence[str] | None = None) -> dict[str, Recipe]:
        """The recipes of ``names`` (None: the tables' and one's own) as the paper runs them ``of`` a network or one of its other data sets:
        those that ``methods`` allows. One's own run as they are."""
        large = of == "imagenet32" == self.imagenet32
        table = recipes(FEATURE_L1.get(of, 0.0), 0.01 if of.startswith("cct") else 0.1, 128 if large else 32)
        table = {name: r for name, r in table.items() if self.allows(name)} | self.beside(self.network(of))
        return {name: r for name, r in table.items() if names is None or name in names}


def parameters(namespace: Mapping) -> Parameters:
    """The notebook's checked parameters, with the profile's values filled in."""
    return read_parameters(Parameters, namespace).resolved(PROFILES)


def setting(
    p: Parameters, alpha: float, label: str | None = None, *, block: str = "cifar10", model: str = "cnn", rounds: int = 0, **protocol
) -> Setting:
    """BTGFL at Dir(alpha) on what runs in the place of ``block``, under the published label. rounds: 0 for ``other_rounds``; protocol:
    further fields of ``BTGFL``."""
    dataset = p.dataset if block == "cifar10" else getattr(p, block)
    small = about_data(dataset).small
    fields = {"n_clients": p.clients if block == "cifar10" else OTHER_CLIENTS, "split": p.split, "shift_mix": p.shift_mix}
    fields["natural_size"] = 300 if small else None if block == "imagenet32" else 2000
    if dataset in SECOND and block == "imagenet32":
        fields["domain"] = SECOND[dataset]
    phase = {"lr": 0.01, "batch_size": 128 if block == "imagenet32" else 32}
    if small:
        # The digits' clients hold a hundredth of CIFAR-10's; a larger step and smaller batches give them comparably many effective steps.
        phase = {"lr": 0.05 if model == "cnn" else 0.01, "batch_size": 16}
    if model.startswith("resnet"):
        phase["momentum"] = 0.9
    if model.startswith("cct"):
        phase |= {"optimizer": "adam", "lr": 0.001}
    schedule = Schedule(rounds or other_rounds(p, block), p.local(Local(**phase, epochs=p.local_epochs)), p.local(Local(**phase, epochs=1)))
    return Setting(label or f"Dir({alpha})", BTGFL(dataset, alpha=alpha, **fields | protocol), model, schedule)


def other_rounds(p: Parameters, block: str = "cifar10") -> int:
    """Rounds of everything but Tables 1-3 and Figures 5 and 6."""
    return p.other_rounds or (p.rounds if block == "cifar10" else ROUNDS[block])


def measure(p: Parameters, section: str, settings: Sequence[Setting], recipes: Mapping[str, Recipe], **asked) -> pd.DataFrame:
    """Measured rows of a section: none where it is not asked for, or no method of it; ``asked``: fields of the request."""
    if not p.asks(section) or not recipes:
        return pd.DataFrame()
    return run(settings, recipes, p.seeds, request=p.request(**asked), **p.execution())


def main_rows(p: Parameters, main: Setting) -> pd.DataFrame:
    """Rows of ``main`` that Tables 1 and 2 and Figure 6 share, as far as one of them is asked for."""
    names = (*ROWS, *p.own) if p.asks("T2") else ("FedTHE", "BTFL", "BTFL (code)") if p.asks("T1") else ("BTFL",)
    section = next((name for name in ("T2", "T1", "F6") if p.asks(name)), "T2")
    return measure(p, section, [main], p.recipes(names=names), extras=("weight",))


def batch_sizes(p: Parameters, main: Setting, rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of Table 1: of ``rows``, those of ``main``, the methods that it prints, and the same at test batches of one."""
    chosen = {name: r for name, r in batches_of_one().items() if p.allows(name.removesuffix(", inclusive history"))}
    single = measure(p, "T1", [replace(main, label="Dir(0.1), bs=1")], chosen)
    full = rows[rows["method"].isin(chosen)].assign(setting="Dir(0.1), bs=32") if len(single) else single
    return pd.concat([full, single], ignore_index=True)


def other_rows(p: Parameters, block: str) -> tuple[pd.DataFrame, str]:
    """Rows of the tables that are asked for on ``block`` (officehome or imagenet32), or no rows and the reason."""
    asked = {table: alpha for table, (of, alpha) in OTHERS.items() if of == block and p.asks(table)}
    if not asked:
        return pd.DataFrame(), "not asked for"
    if getattr(p, block) == NONE:
        return pd.DataFrame(), f"switched off by the parameter {block}"
    if block == "officehome" and (lacking := about_data(p.officehome).lacks("domains")) and about_data(p.officehome).own:
        return pd.DataFrame(), lacking
    settings = [setting(p, alpha, block=block, model=p.wide_model) for alpha in asked.values()]
    try:
        return measure(p, next(iter(asked)), settings, p.recipes(block)), "left out by the parameter methods or tables"
    except FileNotFoundError as error:
        return pd.DataFrame(), p.missing(error)


def class_settings(p: Parameters) -> list[Setting]:
    """Figure 1's settings under their numbers of classes: the first so many of the main data set, all of them, and the other data sets that
    run and have more."""
    most = len(load(p.dataset, p.data_root).classes)
    settings = {n: setting(p, 0.1, str(n), classes=n) for n in sorted(p.label_counts) if n < most}
    settings[most] = setting(p, 0.1, str(most))
    for block in ("officehome", "imagenet32"):
        try:
            n = 0 if getattr(p, block) == NONE else len(load(getattr(p, block), p.data_root).classes)
        except FileNotFoundError:
            continue
        if n > most:
            settings[n] = setting(p, 0.1, str(n), block=block, model=p.wide_model)
    return list(settings.values())


def scores(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean and deviation over seeds of every setting, method and column, ``avg`` among the latter, with what was run."""
    return labelled(average(with_mean(rows, "avg")), rows, REAL)


def table(name: str, rows: pd.DataFrame, reason: str = "left out by the parameter methods", p: Parameters | None = None) -> pd.DataFrame:
    """Contract frame of one printed table from measured rows; ``reason``: why the cells that were not measured were not; p: whose own
    methods are shown with the print's, or why they are not run."""
    measured = scores(rows) if len(rows) else pd.DataFrame(columns=list(REQUIRED))
    printed = cells("btfl", name)
    measured = measured[measured["method"].isin((*printed["method"], *OURS, *(p.own if p else ())))]
    measured = measured.merge(printed[["setting", "column"]].drop_duplicates())
    if p and p.asks(name):
        measured = with_refused("btfl", name, measured, p.refused(p.network(OTHERS.get(name, ("cnn",))[0])))
    return fill("btfl", name, measured, reason=reason)


def bars(rows: pd.DataFrame) -> pd.DataFrame:
    """Figures 4 and 5: mean over the five tests of every setting, network and method, on the same images."""
    if rows.empty:
        return rows
    means = same_images(scores(rows))
    return means[means["column"] == "avg"].assign(model=lambda t: t["run_model"])


def weights(rows: pd.DataFrame) -> pd.DataFrame:
    """Figure 6: density of the weight of the global head in 20 bins, for every column and for the average of the first four."""
    if rows.empty or not (rows["method"] == "BTFL").any():
        return pd.DataFrame()
    rows = rows[rows["method"] == "BTFL"]
    each = densities(rows, "weight", bins=20)
    first = each[each["column"].isin(COLUMNS[:4])]
    mean = first.groupby(["setting", "method", "weight", "n_seeds"], sort=False)["density"].mean().reset_index().assign(column="average")
    return labelled(pd.concat([each, mean], ignore_index=True), rows, REAL)


def mean_weights(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean weight of every column of Figure 6's frame, in one line."""
    found = (
        {c: np.average(part["weight"], weights=part["density"]) for c, part in frame.groupby("column", sort=False)} if len(frame) else {}
    )
    return pd.DataFrame(found, index=["mean weight"]).round(3)


def terms(rows: pd.DataFrame) -> pd.DataFrame:
    """Figure 1: mean over all test samples of the similarity and the alignment loss, by number of classes (the setting's label)."""
    if rows.empty:
        return rows
    parts = []
    for name in ("similarity", "alignment"):
        value = rows.assign(accuracy=rows[name].map(np.mean)).drop(columns="cut_accuracy", errors="ignore")
        parts.append(average(value, ("setting", "method")).assign(column=name))
    frame = pd.concat(parts, ignore_index=True)
    return labelled(frame.assign(classes=frame["setting"].astype(int)), rows, REAL)


def strengths(rows: pd.DataFrame) -> pd.DataFrame:
    """Accuracy against the cap on the prior, which the name of the recipe tells after that of the method."""
    if rows.empty:
        return rows
    frame = scores(rows)
    named = frame["method"].str.split(", cap ", expand=True)
    return frame.assign(method=named[0], strength=named[1].astype(int))


def integral_error() -> pd.DataFrame:
    """The weight of the global head for a ratio of one under priors left by one-sided external streams: exact, trapezoid, and the gap."""
    alpha = np.array([1.0, 2.6, 5.0, 15.0, 31.0, 299.0])
    exact, code = (mixture_weight(alpha, 1.0, 1.0, integral).numpy() for integral in ("exact", "trapezoid"))
    return pd.DataFrame({"alpha": alpha, "beta": 1.0, "exact": exact, "trapezoid": code, "gap": code - exact})


def publish_table(p: Parameters, frame: pd.DataFrame, about: str) -> Page | Note:
    """Write the result files of a table that was asked for, say what was run, and return it laid out for reading."""
    name = frame["table"].iloc[0]
    if not p.asks(name):
        return Note(f"not run: {p.absent(name)}")
    write_table(frame, p.folder("btfl"), name)
    if frame["mean"].isna().all():
        return Note(frame["status"].iloc[0])
    print(f"Table {name[1:]}: ran on {', '.join(frame['run_dataset'].dropna().unique())}; {about}")
    return summary(frame)


def publish_figure(p: Parameters, name: str, frame: pd.DataFrame, draw: Callable[..., Figure], title: str, **options) -> Note:
    """Draw a figure that was asked for and write its files; returns the caption, or why there is none."""
    if frame.empty or not p.asks(name):
        return Note(f"not run: {p.absent(name)}")
    return draw_figure(draw, frame, p.folder("btfl"), name, title, compares=COMPARES.get(name, ""), **options)


def about(p: Parameters, benchmark: Benchmark, rounds: int | None = None) -> str:
    """One line that has to stand beside every result: data, stand-in, schedule, seeds, split."""
    data = shown(benchmark.dataset)
    stand_in = f" (stand-in: {benchmark.stand_in})" if benchmark.stand_in else ""
    shift = " (shifted and mixed tests: stand-in for CIFAR-10.1)" if benchmark.stand_in_columns else ""
    if lacking := about_data(p.dataset).lacks("natural shift"):
        shift = f" ({lacking}: shifted tests are corrupted images alone)"
    seeds = f"{len(p.seeds)} seed{'s' * (len(p.seeds) > 1)}"
    schedule = f"{len(benchmark.clients)} clients, {rounds or p.rounds} rounds x {p.local_epochs} epochs"
    return f"{data}{stand_in}{shift}, {schedule}, {seeds}, {p.split} split, {p.profile}"
