"""FedTHE's figures: for each the frame of plotted numbers, in the columns that ``claims.FIGURE_COLUMNS`` names."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.manifold import TSNE

from fedlib.adapt.fedthe import FedTHE
from fedlib.adapt.fedthe_terms import SmoothedFeatures
from fedlib.core import Recipe
from fedlib.experiment import Setting, run
from fedlib.papers.common import average, densities, labelled
from fedlib.papers.fedthe import tables
from fedlib.papers.fedthe.claims import PERSONALISED
from fedlib.papers.fedthe.recipes import BSM, RECIPES, interpolations
from fedlib.papers.fedthe.settings import NOT_ASKED, REAL, Parameters, about, setting
from fedlib.papers.fedthe.transfer import about_transfer, transfer
from fedlib.personalize.head import PersonalHead
from fedlib.published import cells as printed
from fedlib.published.ledger import PROVENANCE
from fedlib.published.reading import Note, same_images
from fedlib.results import write_figure

BOTH = ("Dir(0.1)", "Dir(1.0)")
ALPHAS, BETAS = (0.05, 0.1, 0.2), (0.1, 0.2, 0.3, 0.4, 0.5)
CURVES = {**dict.fromkeys(("F8", "F9"), ("mixture",)), **dict.fromkeys(("F10", "F11"), ("original", "corrupted", "ooc", "natural"))}
LONG = ("FedAvg", "FedAvg+FT", "FedRoD", "kNN-Per", "FedTHE", "FedTHE+")
# Printed settings behind each figure; F5 rests on table 6, F6 and F7 on a study of their own.
LABELS = {
    **dict.fromkeys(("F2a", "F2b", "F8", "F10", "F12", "F13", "F16", "F17", "F18", "F19", "H26", "leak"), BOTH[:1]),
    **dict.fromkeys(("F9", "F11"), BOTH[1:]),
    **dict.fromkeys(("F14", "F15"), BOTH),
}


def settings(p: Parameters, name: str) -> list[Setting]:
    """What runs for the figure ``name``; empty where ``alphas`` leaves all of it out."""
    if name == "F5":
        return [s for block in tables.settings(p, "T6").values() for s in block]
    labels = [label for label in LABELS[name] if p.allows(label)]
    rounds = dict(zip(("F12", "F13"), p.long_rounds, strict=True)).get(name)
    chosen = [setting(p, label, rounds=rounds) for label in labels]
    if name == "leak":
        splits = {"fixed": "fixed", "resplit": "resplit (leaks)"}
        return [replace(s, label=label, protocol=replace(s.protocol, split=split)) for s in chosen for split, label in splits.items()]
    return chosen


def measure(p: Parameters, name: str, recipes: dict[str, Recipe], *, seeds: Sequence[int] | None = None, **request) -> pd.DataFrame:
    """Rows of ``recipes`` in the settings of the figure ``name``; ``request``: fields of ``fedlib.experiment.Request``."""
    request = p.request(**{"costly_samples": p.side_samples or None} | request)
    chosen = settings(p, name)
    return run(chosen, recipes, seeds or p.seeds, request=request, **p.execution()) if chosen and recipes else pd.DataFrame()


def prepare(p: Parameters) -> None:
    """Run the learning curves of Figures 8 to 11 ahead of everything else: personal parts that persist then pass each round once, since
    a later run goes on from them."""
    asked = [name for name in ("F8", "F9", "F10", "F11") if p.asks(name)]
    chosen = {s.label: s for name in asked for s in settings(p, name)}
    columns = p.has(dict.fromkeys(column for name in asked for column in CURVES[name]))
    recipes = _cut(p.recipes())
    if chosen and recipes:
        request = p.request(rounds=rounds_of(p.rounds, p.curve_points), columns=columns, costly_samples=p.curve_samples or None)
        run(list(chosen.values()), recipes, p.seeds, request=request, **p.execution())


def rounds_of(total: int, points: int) -> tuple[int, ...]:
    """Rounds at which learning curves are evaluated: ``points`` of them, or all, evenly spread, the last included."""
    return tuple(int(t) for t in np.unique(np.linspace(total if points == 1 else 1, total, min(points, total)).round()))


def _cut(recipes: dict[str, Recipe]) -> dict[str, Recipe]:
    """``recipes`` on the images to which costly methods are cut, so that a curve compares all methods on the same."""
    return {name: replace(recipe, costly=True) for name, recipe in recipes.items()}


def shown(means: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """``means`` with what was run."""
    return labelled(means, rows, REAL)


def of_table(p: Parameters, table: str, name: str, methods: Sequence[str]) -> pd.DataFrame:
    """Measured cells of ``methods`` in ``table``, in the settings of the figure ``name``; run for the figure where the table is not asked
    for."""
    labels = [s.label for s in settings(p, name)]
    rows = tables.rows(p, table, methods=methods, labels=labels)[0] if labels and methods else pd.DataFrame()
    return tables.measured(rows) if len(rows) else rows


def personalised(p: Parameters) -> pd.DataFrame:
    """Figure 2a: personalised methods, and one's own, on every test, on the same images."""
    cells = same_images(of_table(p, "T1", "F2a", (*PERSONALISED, *p.own)))
    return cells[cells["column"] != "average"] if len(cells) else cells


def gains(p: Parameters) -> pd.DataFrame:
    """Figure 2b: points over FedAvg+FT, on the same images, of test-time methods on every test."""
    recipes = p.recipes(("FedAvg+FT", "TTT", "MEMO-P", "T3A", "FedTHE+"))
    cells = of_table(p, "T1", "F2b", tuple(recipes))
    if cells.empty or "FedAvg+FT" not in recipes:
        return pd.DataFrame()
    cells = cells[cells["column"] != "average"]
    base = cells[cells["method"] == "FedAvg+FT"].set_index("column")["mean"]
    cut = {"FedAvg+FT": replace(recipes["FedAvg+FT"], costly=True)}
    cut_base = average(measure(p, "F2b", cut, costly_samples=p.samples("T1"))).set_index("column")["mean"]
    others = cells[cells["method"] != "FedAvg+FT"]
    costly = others["method"].map(lambda method: recipes[method].costly)
    over = others["column"].map(cut_base).where(costly, others["column"].map(base))
    return others.assign(mean=others["mean"] - over).drop(columns=["std", "units"], errors="ignore")


def architectures(p: Parameters) -> pd.DataFrame:
    """Figure 5: mean and standard deviation over the five tests, by architecture."""
    rows, _ = tables.rows(p, "T6", methods=tuple(printed("fedthe", "T6")["method"].unique()))
    if rows.empty:
        return rows
    cells = same_images(tables.measured(rows))
    by = ["model", "method", *PROVENANCE]
    tests = cells[cells["column"] != "average"].assign(status=cells["status"].max())
    return tests.groupby(by, sort=False)["mean"].agg(["mean", "std"]).reset_index()[["model", "method", "mean", "std", *PROVENANCE]]


def learning(p: Parameters, name: str) -> pd.DataFrame:
    """Figures 8 to 11, and 12 and 13 of selected methods over many rounds: accuracy against the round, all methods on the same images."""
    long = name not in CURVES
    total = p.long_rounds[("F12", "F13").index(name)] if long else p.rounds
    asked = {"rounds": rounds_of(total, p.curve_points), "columns": p.has(CURVES.get(name, ("mixture",)))}
    rows = measure(p, name, _cut(p.recipes((*LONG, *p.own) if long else None)), **asked, costly_samples=p.curve_samples or None)
    return shown(average(rows, ("setting", "round", "method", "column")), rows) if len(rows) else rows


def interpolation(p: Parameters, name: str) -> pd.DataFrame:
    """Figures 14 (heads) and 15 (models): mixture accuracy with one weight of the global side for all (``shared``), with the best one of
    every client, found with its test labels (``oracle``), and of FedTHE and FedTHE+."""
    rows = measure(p, name, interpolations({"F14": "heads", "F15": "models"}[name]), columns=("mixture",))
    if rows.empty:
        return rows
    rows = rows.assign(e=rows["method"].str.removeprefix("e=").astype(float))
    best = rows.groupby(["setting", "seed", "client"], sort=False)[["accuracy", "cut_accuracy", "cut", "n", "cut_n"]].max().reset_index()
    ours = of_table(p, "T1", name, ("FedTHE", "FedTHE+"))
    shared = average(rows, ("setting", "e")).rename(columns={"e": "weight"})
    parts = [shared.assign(method="shared"), average(best, ("setting",)).assign(method="oracle")]
    if len(ours):
        parts.append(ours.loc[ours["column"] == "mixture", ["setting", "method", "mean", "std", "n_seeds", "n", "units"]])
    return shown(pd.concat(parts, ignore_index=True).assign(column="mixture"), rows)


def grid(p: Parameters) -> pd.DataFrame:
    """Figure 16: accuracy of FedTHE over alpha and beta."""
    pairs = {f"{a} {b}": (a, b) for a in ALPHAS for b in BETAS}
    rows = measure(p, "F16", {n: Recipe(BSM, PersonalHead(), FedTHE(alpha=a, beta=b)) for n, (a, b) in pairs.items()})
    if rows.empty:
        return rows
    return shown(average(rows), rows).assign(
        alpha=lambda t: [pairs[m][0] for m in t["method"]], beta=lambda t: [pairs[m][1] for m in t["method"]], method="FedTHE"
    )


def weights(p: Parameters, name: str) -> pd.DataFrame:
    """Figures 17 and 19: density of the weight of the personal head, 1 - e; in Figure 19 with and without history."""
    names = {"FedTHE": "with history", "FedTHE:-history": "without history"}
    rows = measure(p, name, p.recipes(list(names)[: 2 if name == "F19" else 1]), extras=("weight",))
    if rows.empty:
        return rows
    frame = shown(densities(rows.assign(personal=[1 - weight for weight in rows["weight"]]), "personal"), rows)
    return frame.assign(method=frame["method"].map(names)) if name == "F19" else frame


def embedding(p: Parameters, client: int = 0) -> pd.DataFrame:
    """Figure 18: t-SNE of the features of one client's mixture stream, raw (z) and smoothed by the history (z'), with their labels."""
    recipes = {"FedTHE": Recipe(BSM, PersonalHead(), SmoothedFeatures())}
    rows = measure(p, "F18", recipes, seeds=p.seeds[:1], columns=("mixture",), extras=("features", "smoothed"))
    if rows.empty:
        return rows
    row = rows[rows["client"] == client].iloc[0]
    benchmark = settings(p, "F18")[0].protocol.build(p.seeds[0], p.data_root)
    parts = []
    for method, name in (("without history", "features"), ("with history", "smoothed")):
        points = row[name]
        flat = TSNE(perplexity=min(30, (len(points) - 1) / 3), init="pca", random_state=0).fit_transform(points)
        parts.append(pd.DataFrame({"method": method, "x": flat[:, 0], "y": flat[:, 1]}))
        parts[-1]["label"] = benchmark.clients[client].tests["mixture"][0].labels.numpy()
    frame = pd.concat(parts, ignore_index=True).assign(setting=row["setting"], column="mixture", n_seeds=1)
    return shown(frame, rows)


def t3a_batches(p: Parameters) -> pd.DataFrame:
    """Claim H26: T3A whose supports grow by one sample or by a batch of 32 at a time."""
    recipe = RECIPES["T3A"]
    units = {"T3A by sample": recipe, "T3A by batch": replace(recipe, adapt=replace(recipe.adapt, batch_size=32))}
    rows = measure(p, "H26", units)
    return shown(average(rows), rows) if len(rows) else rows


def leak(p: Parameters) -> pd.DataFrame:
    """The same methods with one fixed split and with the split redrawn at every use: setting, method, column, mean."""
    rows = measure(p, "leak", p.recipes(("FedAvg", "FedAvg+FT", "FedTHE")))
    return shown(average(rows), rows) if len(rows) else rows


def frame(p: Parameters, name: str) -> pd.DataFrame:
    """The plotted numbers of the figure (or study) ``name``, run as far as the cache does not hold them; empty if not asked for."""
    if not p.asks(name):
        return pd.DataFrame()
    makers: dict[str, Callable[[], pd.DataFrame]] = {
        "F2a": lambda: personalised(p),
        "F2b": lambda: gains(p),
        "F5": lambda: architectures(p),
        **{n: lambda n=n: transfer(p, strong=n == "F6") for n in ("F6", "F7")},
        **{n: lambda n=n: learning(p, n) for n in (*CURVES, "F12", "F13")},
        **{n: lambda n=n: interpolation(p, n) for n in ("F14", "F15")},
        "F16": lambda: grid(p),
        **{n: lambda n=n: weights(p, n) for n in ("F17", "F19")},
        "F18": lambda: embedding(p),
        "H26": lambda: t3a_batches(p),
        "leak": lambda: leak(p),
    }
    return makers[name]()


def publish(p: Parameters, name: str, numbers: pd.DataFrame, draw: Callable[..., Figure], title: str, **options) -> Note:
    """Draw a figure that was asked for and write its files; returns the caption, which says what was run."""
    if numbers.empty:
        return Note(f"not run: {NOT_ASKED}" if not p.asks(name) else "not run: left out by the parameters methods or alphas")
    cut = {"F5": "T6", **dict.fromkeys(("F2a", "F2b", "F14", "F15"), "T1")}
    if name in ("F6", "F7"):
        facts = about_transfer(p)
    elif name in (*CURVES, "F12", "F13"):
        facts = about(p, settings(p, name), p.curve_samples, "all methods")
    else:
        facts = about(p, settings(p, name), p.samples(cut[name]) if name in cut else None)
    caption = f"{title}\n{facts}"
    write_figure(draw(numbers, title=caption, **options), numbers, p.folder("fedthe"), name, caption)
    return Note(caption)
