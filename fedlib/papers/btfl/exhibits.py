"""BTFL's tables, figures and studies: what is run for each, and how the rows become its numbers."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from fedlib.adapt.btfl import mixture_weight
from fedlib.common import average, densities, labelled, with_mean
from fedlib.core import Recipe
from fedlib.data import about as about_data
from fedlib.paper import Block, Exhibit
from fedlib.papers.btfl import plots, times
from fedlib.papers.btfl.claims import STRONG
from fedlib.papers.btfl.recipes import METHODS, ROWS, batches_of_one, strengths, switches, terms
from fedlib.papers.btfl.settings import MAIN, ROUNDS, Parameters, class_settings, setting
from fedlib.plots import charts
from fedlib.protocols.btgfl import COLUMNS
from fedlib.published import cells
from fedlib.published.reading import same_images
from fedlib.setting import Setting
from fedlib.study import Study

# Rows that are not printed, with the tables' own methods.
CODE, INCLUSIVE = "BTFL (code)", "FedTHE, inclusive history"


def main(p: Parameters, label: str | None = None) -> Setting:
    """The clients of Tables 1 and 2 and of Figure 6."""
    return setting(p, 0.1, label, rounds=p.rounds)


def of_main(*names: str):
    """Blocks: the methods ``names`` (none: all) of Table 2, whose rows Tables 1 and 2 and Figure 6 share."""
    return lambda p: [Block([main(p)], p.recipes(names=names or (*ROWS, *p.own)), {"extras": ("weight",)})]


def batch_sizes(p: Parameters) -> list[Block]:
    """Table 1: the methods that it prints at the usual test batches, and at batches of one."""
    chosen = {name: r for name, r in batches_of_one().items() if p.allows(name.removesuffix(", inclusive history"))}
    return [*of_main("FedTHE", "BTFL", CODE)(p), Block([main(p, "Dir(0.1), bs=1")], chosen)]


def at_both_batch_sizes(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    return scores(p, rows.replace({"setting": {"Dir(0.1)": "Dir(0.1), bs=32"}}))


def other(table: str, images: str, alpha: float):
    """Blocks of a ``table`` on OfficeHome or ImageNet-32: its printed methods, and a user's."""
    printed = cells("btfl", table)

    def blocks(p: Parameters) -> list[Block]:
        name = getattr(p, images)
        absent = p.left_out(images)
        if not absent and images == "officehome" and about_data(name).own:
            absent = about_data(name).lacks("domains")
        settings = [] if absent else [setting(p, alpha, block=images, model=p.wide_model)]
        (model,) = printed["model"].unique()
        recipes = p.recipes(images, (*printed["method"].unique(), CODE, *p.own))
        return [Block(settings, recipes, dataset=images, model=model, absent=absent, optional=True)]

    return blocks


def on(recipes: Mapping[str, Recipe], *settings: Setting, **request) -> list[Block]:
    """The block of a study, if ``methods`` leaves any of it."""
    return [Block(settings, recipes, request)] if recipes and settings else []


def heterogeneity(p: Parameters) -> list[Block]:
    return on(p.recipes(names=(*METHODS, *p.own)), *(setting(p, alpha) for alpha in p.alphas))


def architectures(p: Parameters) -> list[Block]:
    rounds = p.network_rounds or p.rounds
    return [
        Block([setting(p, 0.1, model, model=model, rounds=rounds)], p.recipes(model, (*STRONG, "BTFL", *p.own)))
        for model in ("cnn", *p.architectures)
    ]


def splits(p: Parameters) -> list[Block]:
    cases = {
        "fixed, all": {"split": "fixed", "shift_mix": "all"},
        "fixed, half": {"split": "fixed", "shift_mix": "half"},
        "resplit (leaks), all": {"split": "resplit", "shift_mix": "all"},
    }
    chosen = p.recipes(names=("FedAvg", "FedAvg+FT", "FedTHE", "BTFL"))
    return on(chosen, *(setting(p, 0.1, label, **fields) for label, fields in cases.items()))


def of_btfl(recipes: Mapping[str, Recipe]):
    return lambda p: on(recipes if p.allows("BTFL") else {}, main(p))


def classes(p: Parameters) -> list[Block]:
    """Figure 1; ImageNet-32's streams come in batches of 128, as in its tables."""
    pairs = [(128 if s.protocol.dataset == "imagenet32" else 32, s) for s in class_settings(p)] if p.allows("FedTHE") else []
    return [block for size, s in pairs for block in on(terms(size), s, extras=("similarity", "alignment"))]


def scores(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Mean and deviation over seeds of every setting, method and column, ``avg`` among the latter, with what was run."""
    return labelled(average(with_mean(rows, "avg")), rows, ROUNDS if "printed_dataset" in rows else MAIN)


def bars(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Figures 4 and 5: mean over the five tests of every setting, network and method, on the same images."""
    means = same_images(scores(p, rows))
    return means[means["column"] == "avg"].assign(model=lambda t: t["run_model"])


def weights(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Figure 6: density of the weight of the global head in 20 bins, for every column and for the average of the first four."""
    each = densities(rows, "weight", bins=20)
    first = each[each["column"].isin(COLUMNS[:4])]
    mean = first.groupby(["setting", "method", "weight", "n_seeds"], sort=False)["density"].mean().reset_index().assign(column="average")
    return labelled(pd.concat([each, mean], ignore_index=True), rows, MAIN)


def mean_weights(numbers: pd.DataFrame) -> pd.DataFrame:
    """Mean weight of every column of Figure 6, in one line."""
    by_column = numbers.groupby("column", sort=False) if len(numbers) else ()
    found = {column: np.average(part["weight"], weights=part["density"]) for column, part in by_column}
    return pd.DataFrame(found, index=["mean weight"]).round(3)


def two_terms(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Figure 1: mean over all test samples of the similarity and the alignment loss, by number of classes (the setting's label)."""
    parts = []
    for name in ("similarity", "alignment"):
        value = rows.assign(**{name: rows[name].map(np.mean)})
        parts.append(average(value, ("setting", "method"), value=name, weighted=True).assign(column=name))
    frame = pd.concat(parts, ignore_index=True)
    return labelled(frame.assign(classes=frame["setting"].astype(int)), rows, ROUNDS)


def by_strength(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Accuracy against the cap on the prior, which the recipe's name gives after the method's: of the tests those on which it
    acts most, and their mean."""
    frame = scores(p, rows)
    named = frame["method"].str.split(", cap ", expand=True)
    return frame.assign(method=named[0], strength=named[1].astype(int))[frame["column"].isin(["original_ind", "original_exd", "avg"])]


def integral_error() -> pd.DataFrame:
    """The weight of the global head for a ratio of one under priors left by one-sided external streams: exact, trapezoid, and the gap."""
    alpha = np.array([1.0, 2.6, 5.0, 15.0, 31.0, 299.0])
    exact, code = (mixture_weight(alpha, 1.0, 1.0, integral).numpy() for integral in ("exact", "trapezoid"))
    return pd.DataFrame({"alpha": alpha, "beta": 1.0, "exact": exact, "trapezoid": code, "gap": code - exact})


def timed(study: Study) -> pd.DataFrame:
    return times.table(study.p, study.benchmark)


MEAN = {"hue": "method", "ylabel": "mean accuracy of five sets (%)"}
EXHIBITS: Sequence[Exhibit] = (
    Exhibit("T2", "Table 2: accuracy on the five sets", of_main(), scores, further=(CODE,)),
    Exhibit("T1", "Table 1: test batches of 32 and of one", batch_sizes, at_both_batch_sizes, further=(CODE, INCLUSIVE)),
    Exhibit("T3", "Table 3: seconds per 1,000 samples", numbers=timed, further=tuple(times.OWN.values()), said=times.said),
    Exhibit(
        "F6", "Figure 6: where BTFL's weight goes", of_main("BTFL"), weights, plots.histograms, {"xlabel": "weight of the global head"}
    ),
    Exhibit("F4", "Figure 4: degrees of heterogeneity", heterogeneity, bars, charts.bars, {"x": "setting"} | MEAN, compares="setting"),
    Exhibit("F5", "Figure 5: architectures at Dir(0.1)", architectures, bars, charts.bars, {"x": "model"} | MEAN, compares="model"),
    Exhibit("T5", "Table 5: a domain held out, Dir(0.1)", other("T5", "officehome", 0.1), scores, further=(CODE,)),
    Exhibit("T6", "Table 6: a domain held out, Dir(1.0)", other("T6", "officehome", 1.0), scores, further=(CODE,)),
    Exhibit("T4", "Table 4: ImageNet-32, Dir(0.1)", other("T4", "imagenet32", 0.1), scores, further=(CODE,)),
    Exhibit("T7", "Table 7: ImageNet-32, Dir(1.0)", other("T7", "imagenet32", 1.0), scores, further=(CODE,)),
    Exhibit(
        "F1",
        "Figure 1: the two terms of FedTHE at Dir(0.1)",
        classes,
        two_terms,
        charts.curves,
        {"x": "classes", "panels": "column", "xlabel": "number of classes", "ylabel": "mean over test samples"},
        compares="classes",
    ),
    Exhibit("switches", "Points gained over BTFL's default", of_btfl(switches()), scores, plots.differences, {"base": "BTFL"}),
    Exhibit(
        "B13",
        "Accuracy against the cap of BTFL's prior",
        of_btfl(strengths()),
        by_strength,
        charts.curves,
        {"x": "strength", "panels": "column", "xlabel": "cap", "scale": "log"},
    ),
    Exhibit("splits", "The split and the mixture of shifts", splits, scores),
)
