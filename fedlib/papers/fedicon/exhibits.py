"""FedICON's tables, figures and studies: what is run for each, and how the rows become its numbers."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pandas as pd

from fedlib.common import LABELLED, average, labelled, with_mean
from fedlib.core import FINAL
from fedlib.paper import Block, Exhibit
from fedlib.papers.fedicon import plots
from fedlib.papers.fedicon.recipes import MAIN, RECIPES, VIEWS
from fedlib.papers.fedicon.settings import (
    COLUMNS,
    PRINTED,
    Parameters,
    counts,
    covariate,
    dirichlet,
    epochs,
    held_out,
    office,
    single_sources,
)
from fedlib.plots import charts, style
from fedlib.published import cells
from fedlib.published.reading import Page
from fedlib.published.units import all_seen
from fedlib.setting import Setting

T4 = ("Local", "FedAvg", "FedAvg+FT", "FedICON", "FedICON-us", VIEWS)
T5 = ("Local", "FedICON:LIE", "FedAvg", "FedICON:TTA", "FedICON:LIE+GIS", "FedICON:GIS+TTA", "FedICON:LIE+TTA", "FedICON")
TUNING = {
    "FedICON:LIE+GIS": "none",
    "FedICON:1 epoch": "1 epoch",
    "FedICON": "5 epochs",
    "FedICON:momentum": "5 epochs, momentum 0.9",
    "FedICON:online": "online, one image at a time",
}


def runs(family: str, settings: Callable[[Parameters], list[Setting]], names: Sequence[str], *, own: bool = True):
    """Blocks of the methods ``names`` on the images of a ``family``, for the final models. own: the user's methods too.

    Methods whose personal part persists read the model of every round; the trainings of all others keep every tenth.
    """
    # The clients of the domains have no validation part.
    offers = LABELLED if family == "attribute" else LABELLED[:1]
    common = {"request": {"rounds": (FINAL,)}, "dataset": PRINTED[family], "offers": offers if own else None}

    def blocks(p: Parameters) -> list[Block]:
        if why := p.absent(family):
            return [Block([], {}, absent=why, **common)]
        every, chosen = settings(p), p.recipes(getattr(p, family), (*names, *(p.own if own else ())), offers)
        tenth = [replace(setting, schedule=replace(setting.schedule, save_every=10)) for setting in every]
        lasting = {name: recipe for name, recipe in chosen.items() if getattr(recipe.personalize, "persistent", False)}
        rest = {name: recipe for name, recipe in chosen.items() if name not in lasting}
        return [Block(tenth, rest, **common), Block(every, lasting, **common)]

    return blocks


def scores(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Mean and deviation over seeds of every setting, method and column, with what was run; methods as the recipes name them."""
    known = [*RECIPES, *p.own]
    rows = rows.sort_values("method", key=lambda method: method.map(known.index), kind="stable", ignore_index=True)
    return labelled(average(rows), rows, p.real)


def by_domain(family: str, setting: str):
    """Tables 1 and 2: printed columns in place of the domains that stand for them, in the one setting of the print."""

    def reduce(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
        columns = dict(zip(p.domains_of(family), COLUMNS[family], strict=False))
        return scores(p, rows.assign(setting=setting, column=rows["column"].map(columns)))

    return reduce


def with_delta(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Table 3: with ``delta``, every client's accuracy under shift less that on its own test."""
    rows = rows[rows["column"] != "corrupted"].replace({"column": {"natural": "attribute_shift"}})
    if "attribute_shift" not in set(rows["column"]):
        return scores(p, rows)
    key = ["setting", "dataset", "model", "method", "seed", "client"]
    points, images = ([name for name in names if name in rows] for names in (("accuracy", "cut_accuracy"), ("n", "cut_n", "cut")))
    under, own = (rows[rows["column"] == name].set_index(key) for name in ("attribute_shift", "original"))
    delta = (under[points] - own[points]).join(under[images] + own[images]).assign(column="delta", draw=0)
    if "seen" in rows:
        delta = delta.join(all_seen(rows[rows["column"].isin(["attribute_shift", "original"])], key))
    return labelled(average(pd.concat([rows, delta.reset_index()])), rows, p.real)


def over_domains(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Table 5: the mean over domains."""
    return scores(p, rows.assign(column="test"))


def over_domains_of_both(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Table 4: the mean over domains of each data set."""
    parts = rows.groupby("printed_dataset", sort=False)
    return pd.concat([over_domains(p, part).assign(dataset=name) for name, part in parts])


def clean_and_corrupted(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    return scores(p, rows[rows["column"].isin(["original", "corrupted"])])


def by_tuning(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Accuracy by domain and their mean, by way of test-time tuning; online on the first images of each stream only."""
    measured = scores(p, with_mean(rows, "mean")).set_index("method")
    return measured.loc[[name for name in TUNING if name in measured.index]].rename(index=TUNING).reset_index()


def by_source(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Figure 1b: source, column (the target domain), mean; a single source is tested on its own domain only. ``single`` has as many images
    of the target domain as ``heterogeneous`` has, ``single, as many parts`` as many images in all."""
    name = lambda s: s if s == "heterogeneous" else "single, as many parts" if " x " in s else "single"  # noqa: E731
    return scores(p, rows).assign(source=lambda t: t["setting"].map(name))


def against(x: str):
    """Figure 3: x (clients or epochs, the settings' labels), method, mean over the domains."""

    def reduce(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
        return scores(p, rows.assign(column="mean over the domains")).assign(**{x: lambda t: t["setting"].astype(int)})

    return reduce


def stand_ins(p: Parameters) -> pd.DataFrame:
    """The domain behind each printed column of Tables 1 and 2."""
    tables = {"T1": "dataset", "T2": "office"}
    rows = [
        {"table": table, "printed": column, "run": domain}
        for table, family in tables.items()
        if not p.absent(family)
        for column, domain in zip(COLUMNS[family], p.domains_of(family), strict=False)
    ]
    return pd.DataFrame(rows, columns=["table", "printed", "run"])


def copied() -> Page:
    """Cells of Table 3 that repeat FedTHE's Table 1 digit for digit, spread included: they were not run anew for FedICON."""
    frame = cells("fedicon", "T3")
    frame = frame[frame["note"].str.startswith("same value as FedTHE")]
    return Page(frame[["setting", "method", "column", "mean", "std", "note"]].reset_index(drop=True))


COLOURS = {"single": style.GREY, "single, as many parts": style.BROWN, "heterogeneous": style.BLUE}
LINES = {"panels": "column"}
EXHIBITS: Sequence[Exhibit] = (
    Exhibit(
        "T1",
        "Table 1: covariate shift, one domain per client",
        runs("dataset", covariate, (VIEWS, *MAIN)),
        by_domain("dataset", "covariate shift"),
        further=(VIEWS,),
        columns=lambda p: p.own_columns("dataset"),
    ),
    Exhibit(
        "T2",
        "Table 2: an unseen domain",
        runs("office", held_out, MAIN),
        by_domain("office", "domain shift"),
        columns=lambda p: p.own_columns("office"),
    ),
    Exhibit("T3", "Table 3: attribute shift", runs("attribute", dirichlet, MAIN), with_delta),
    Exhibit(
        "corrupted",
        "Clean and corrupted tests at Dir(0.1)",
        runs("attribute", dirichlet, MAIN),
        clean_and_corrupted,
        plots.first_setting,
        {"x": "column", "hue": "method"},
    ),
    Exhibit(
        "T4",
        "Table 4: with and without labels in contrastive training",
        lambda p: [*runs("dataset", covariate, T4)(p), *runs("office", office, T4)(p)],
        over_domains_of_both,
        further=(VIEWS,),
    ),
    Exhibit("T5", "Table 5: what is needed", runs("dataset", covariate, T5, own=False), over_domains),
    Exhibit("tuning", "How long to tune at test time", runs("dataset", covariate, tuple(TUNING), own=False), by_tuning),
    Exhibit(
        "F1b",
        "Figure 1b: FedAvg trained on one domain or on all",
        runs("dataset", single_sources, ["FedAvg"], own=False),
        by_source,
        charts.bars,
        {"x": "column", "hue": "source", "xlabel": "target domain", "palette": COLOURS},
    ),
    Exhibit(
        "F3a",
        "Figure 3a: accuracy against the number of clients",
        runs("dataset", counts, ["FedAvg", "FedICON"]),
        against("clients"),
        charts.curves,
        LINES | {"x": "clients", "xlabel": "clients"},
    ),
    Exhibit(
        "F3b",
        "Figure 3b: accuracy against local epochs",
        runs("dataset", epochs, ["FedAvg", "FedICON"]),
        against("epochs"),
        charts.curves,
        LINES | {"x": "epochs", "xlabel": "local epochs"},
    ),
)
