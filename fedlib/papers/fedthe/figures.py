"""FedTHE's figures and studies: what runs for each, and how the rows become the plotted numbers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from fedlib.adapt.fedthe import FedTHE
from fedlib.adapt.fedthe_terms import SmoothedFeatures
from fedlib.common import average, densities, labelled
from fedlib.core import Recipe
from fedlib.paper import Block
from fedlib.papers.fedthe.claims import BOTH, LONG, PERSONALISED
from fedlib.papers.fedthe.recipes import BSM, RECIPES, interpolations
from fedlib.papers.fedthe.settings import MAIN, Parameters, setting
from fedlib.papers.fedthe.tables import printed, scores
from fedlib.personalize.head import PersonalHead
from fedlib.published import cells
from fedlib.published.ledger import PROVENANCE
from fedlib.published.reading import same_images
from fedlib.published.units import together
from fedlib.setting import Setting

STRONG, WEAK = "Dir(0.1)", "Dir(1.0)"
ALPHAS, BETAS = (0.05, 0.1, 0.2), (0.1, 0.2, 0.3, 0.4, 0.5)
OTHERS = ("original", "corrupted", "ooc", "natural")
HISTORY = {"FedTHE": "with history", "FedTHE:-history": "without history"}
Blocks = Callable[[Parameters], list[Block]]


def at(p: Parameters, *labels: str, rounds: int | None = None) -> list[Setting]:
    """The printed settings ``labels``, as far as ``alphas`` leaves them in."""
    return [setting(p, label, rounds=rounds) for label in labels if p.asks_for(label)]


def block(p: Parameters, settings: Sequence[Setting], recipes: Mapping[str, Recipe], **request) -> Block:
    return Block(settings, recipes, {"costly_samples": p.side_samples or None} | request)


def personalised(p: Parameters) -> list[Block]:
    own = [name for name in p.own if p.extras[name].recipe.personalize]
    return printed("T1", (*PERSONALISED, *own), [STRONG])(p)


def at_test_time(p: Parameters) -> list[Block]:
    names = p.recipes(("FedAvg+FT", "TTT", "MEMO-P", "T3A", "FedTHE+", *p.own))
    return printed("T1", tuple(names), [STRONG])(p) if "FedAvg+FT" in names else []


def architectures(p: Parameters) -> list[Block]:
    return printed("T6", cells("fedthe", "T6")["method"].unique())(p)


def rounds_of(total: int, points: int) -> tuple[int, ...]:
    """Rounds at which learning curves are evaluated: ``points`` of them, or all, evenly spread, the last included."""
    return tuple(int(t) for t in np.unique(np.linspace(total if points == 1 else 1, total, min(points, total)).round()))


def curves(label: str, columns: Sequence[str] = ("mixture",), long: int | None = None) -> Blocks:
    """Learning curves of the methods of Table 1, or of selected ones over the ``long``-th number of ``long_rounds``: all methods are costly
    there, so that a curve compares them on the same images."""

    def blocks(p: Parameters) -> list[Block]:
        total = p.rounds if long is None else p.long_rounds[long]
        recipes = {n: replace(r, costly=True) for n, r in p.recipes(None if long is None else (*LONG, *p.own)).items()}
        asked = {"rounds": rounds_of(total, p.curve_points), "columns": p.has(columns), "costly_samples": p.curve_samples or None}
        return [block(p, at(p, label, rounds=total), recipes, **asked)]

    return blocks


def one_weight(between: str) -> Blocks:
    """One weight for all between "heads" or "models", and FedTHE and FedTHE+ as in Table 1, on whose images all are compared."""

    def blocks(p: Parameters) -> list[Block]:
        if not any(p.allows(name) for name in BOTH):
            return []
        fixed = block(p, at(p, STRONG, WEAK), interpolations(between), columns=("mixture",), costly_samples=p.costly_samples or None)
        return [fixed, *printed("T1", BOTH, [STRONG, WEAK])(p)]

    return blocks


def grid(p: Parameters) -> list[Block]:
    table = {f"{a} {b}": Recipe(BSM, PersonalHead(), FedTHE(alpha=a, beta=b)) for a in ALPHAS for b in BETAS}
    return [block(p, at(p, STRONG), table)] if p.allows("FedTHE") else []


def weighed(*names: str) -> Blocks:
    return lambda p: [block(p, at(p, STRONG), p.recipes(names), extras=("weight",))]


def smoothed(p: Parameters) -> list[Block]:
    recipes = {"FedTHE": Recipe(BSM, PersonalHead(), SmoothedFeatures())}
    of_one_seed = block(p, at(p, STRONG), recipes, columns=("mixture",), extras=("features", "smoothed"))
    return [replace(of_one_seed, seeds=p.seeds[:1])] if p.allows("FedTHE") else []


def t3a(p: Parameters) -> list[Block]:
    """T3A whose supports grow by one sample or by a batch of 32 at a time."""
    recipe = RECIPES["T3A"]
    table = {"T3A by sample": recipe, "T3A by batch": replace(recipe, adapt=replace(recipe.adapt, batch_size=32))}
    return [block(p, at(p, STRONG), table)] if p.allows("T3A") else []


def leak(p: Parameters) -> list[Block]:
    """The same methods with one fixed split and with the split redrawn at every use."""
    splits = {"fixed": "fixed", "resplit (leaks)": "resplit"}
    plain = at(p, STRONG)
    settings = [replace(s, label=label, protocol=replace(s.protocol, split=split)) for s in plain for label, split in splits.items()]
    return [block(p, settings, p.recipes(("FedAvg", "FedAvg+FT", "FedTHE")))]


def means(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Mean and deviation over seeds of every setting, method and column, with what was run."""
    return labelled(average(rows), rows, MAIN)


def over_rounds(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Figures 8 to 13: the same at every round."""
    return labelled(average(rows, ("setting", "round", "method", "column")), rows, MAIN)


def each_test(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Figure 2a: every method on every test, on the same images."""
    return same_images(scores(p, rows)).query("column != 'average'")


def gains(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Figure 2b: points over FedAvg+FT on every test, all methods on the same images, with the deviation of the differences over seeds."""
    cells = each_test(p, rows)
    base = cells[cells["method"] == "FedAvg+FT"].set_index("column")["units"]
    others = cells[cells["method"] != "FedAvg+FT"]
    gained = [together(own, base[column], np.subtract) for own, column in zip(others["units"], others["column"], strict=True)]
    return others.assign(mean=[u.mean for u in gained], std=[u.std for u in gained]).drop(columns="units")


def over_tests(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Figure 5: mean and standard deviation over the five tests, by architecture."""
    cells = each_test(p, rows)
    by = ["model", "method", *PROVENANCE]
    found = cells.assign(status=cells["status"].max()).groupby(by, sort=False)["mean"].agg(["mean", "std"]).reset_index()
    return found[["model", "method", "mean", "std", *PROVENANCE]]


def one_weight_and_ours(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Figures 14 (heads) and 15 (models): mixture accuracy with one weight of the global side for all (``shared``), with the best one of
    every client, found with its test labels (``oracle``), and of FedTHE and FedTHE+; all on the same images."""
    is_fixed = rows["method"].str.startswith("e=")
    fixed, ours = rows[is_fixed], rows[~is_fixed]
    fixed = fixed.assign(weight=fixed["method"].str.removeprefix("e=").astype(float))
    best = fixed.groupby(["setting", "seed", "client"], sort=False)[["accuracy", "cut_accuracy", "cut", "n", "cut_n"]].max().reset_index()
    parts = [average(fixed, ("setting", "weight")).assign(method="shared"), average(best, ("setting",)).assign(method="oracle")]
    if len(ours):
        parts.append(scores(p, ours).query("column == 'mixture'")[["setting", "method", "mean", "std", "n_seeds", "n", "units"]])
    return labelled(same_images(pd.concat(parts, ignore_index=True)).assign(column="mixture"), fixed, MAIN)


def over_grid(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Figure 16: accuracy of FedTHE over alpha and beta."""
    frame = means(p, rows)
    pairs = frame["method"].str.split(expand=True).astype(float)
    return frame.assign(alpha=pairs[0], beta=pairs[1], method="FedTHE")


def weights(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Figure 17: density of the weight of the personal head, 1 - e."""
    return labelled(densities(rows.assign(personal=[1 - weight for weight in rows["weight"]]), "personal"), rows, MAIN)


def by_history(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Figure 19: the same with and without history."""
    frame = weights(p, rows)
    return frame.assign(method=frame["method"].map(HISTORY))


def embedding(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Figure 18: t-SNE of the features of the first client's mixture stream, raw (z) and smoothed by the history (z'), with the labels."""
    # Takes long, and whoever imports a recipe comes by here.
    from sklearn.manifold import TSNE

    row = rows[rows["client"] == 0].iloc[0]
    benchmark = setting(p, STRONG).protocol.build(p.seeds[0], p.data_root)
    parts = []
    for method, name in (("without history", "features"), ("with history", "smoothed")):
        points = row[name]
        flat = TSNE(perplexity=min(30, (len(points) - 1) / 3), init="pca", random_state=0).fit_transform(points)
        parts.append(pd.DataFrame({"method": method, "x": flat[:, 0], "y": flat[:, 1]}))
        parts[-1]["label"] = benchmark.clients[0].tests["mixture"][0].labels.numpy()
    return labelled(pd.concat(parts, ignore_index=True).assign(setting=row["setting"], column="mixture", n_seeds=1), rows, MAIN)


def gaps(numbers: pd.DataFrame) -> pd.DataFrame:
    """Of the study of the leak: accuracy with the fixed split and with the redrawn one, and what the leak adds, by method and test."""
    if numbers.empty:
        return numbers
    wide = numbers.pivot_table(index=["method", "column"], columns="setting", values="mean", sort=False)
    return wide.assign(gap=wide["resplit (leaks)"] - wide["fixed"])
