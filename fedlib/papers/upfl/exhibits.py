"""UPFL's tables and figures: what is run for each, and how the rows become its numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pandas as pd

from fedlib.adapt.fedtta import FedTTAPlus
from fedlib.common import average
from fedlib.core import FINAL, Recipe
from fedlib.data import about, counts, shown
from fedlib.paper import Block, Exhibit
from fedlib.papers.upfl import appendix, plots
from fedlib.papers.upfl.claims import ONE_MODEL
from fedlib.papers.upfl.recipes import hetero
from fedlib.papers.upfl.settings import BLOCKS, NEW, STAND_IN, Parameters, evaluated, setting
from fedlib.study import Study

KEPT = ("Tent", "ODPFL-HN", "FedTTA", "FedTTA-Prox", "FedTTA++")  # methods of Figure 3
SHARES = tuple(round(0.1 * i, 1) for i in range(1, 11))
STEPS = 50


def block(p: Parameters, printed: str, partition: str, names: Iterable[str] | None = None, *, own: bool = True, **request) -> list[Block]:
    """The methods ``names`` (None: all) on a printed data set under ``partition``, tested at every evaluation; none where nothing runs for
    it. own: of the recipes; request: further fields of ``Request``."""
    recipes = p.recipes(printed, names, own=own)
    if not recipes:
        return []
    s = setting(p, printed, partition)
    request = {"rounds": evaluated(s)} | request
    return [Block([s], recipes, request, dataset=printed, model=BLOCKS[printed][1].removesuffix("_2048"), offers=NEW)]


def main(p: Parameters) -> list[Block]:
    """Table 1: the data sets of the print. Where one stands in, blocks of one partition share their run."""
    return [found for printed, (partition, _, _) in BLOCKS.items() for found in block(p, printed, partition)]


def histories(p: Parameters) -> list[Block]:
    """Appendix figure 2: every run of the main table once, under the names of all data sets for which it stands; a user's under its own."""
    served: dict[str, list[Block]] = {}
    for found in main(p):
        served.setdefault(repr(found.settings), []).append(found)
    own = about(p.dataset).shown if p.dataset and about(p.dataset).own else ""
    return [replace(blocks[0], dataset=own or ", ".join(block.dataset for block in blocks)) for blocks in served.values()]


def drift(names: Sequence[str] | None = None):
    return lambda p: block(p, "cifar10", "dirichlet", names, own=False)


def rotated(p: Parameters) -> list[Block]:
    return block(p, "mnist", "concept", own=False)


def kept(p: Parameters) -> list[Block]:
    """Figure 3's methods in the main table."""
    return block(p, "cifar10", "pathological", (*KEPT, *p.own))


def unequal(p: Parameters) -> list[Block]:
    """Figure 5: networks of three sizes, tested on the new clients only."""
    if p.run_on("cifar10") is None:
        return []
    # Where digits stand in, 179 of them replace 6,000 public images, in small batches, and the training half of 20 clients replaces fifty:
    # holding two classes each, they would know few of the classes that the new clients hold.
    stands_in = {"networks": ("mlp_small", "mlp", "mlp_big"), "batch_size": 5}, {"shards": 5}
    small, wide = stands_in if p.run_on("cifar10") == STAND_IN else ({}, {})
    s = setting(p, "cifar10", "public", **wide)
    learners = {name: recipe for name, recipe in hetero(**small).items() if p.allows("Tent" if name == "Tent" else "FedTTA")}
    return [Block([s], learners, {"rounds": evaluated(s), "columns": ("test",)}, dataset="cifar10", offers=None)]


def walks(p: Parameters) -> list[Block]:
    """Figure 2: the final FedTTA model and ``STEPS`` of its steps on every new client, in the first of the seeds."""
    found = block(p, "cifar10", "pathological", ["FedTTA"], rounds=(FINAL,), columns=("test",), extras=("predictions", "loss", "entropy"))

    def walking(recipe: Recipe) -> Recipe:
        return replace(recipe, adapt=FedTTAPlus(recipe.adapt.lr, patience=STEPS + 1, max_steps=STEPS + 1, path=True))

    return [replace(one, recipes={name: walking(recipe) for name, recipe in one.recipes.items()}, seeds=p.seeds[:1]) for one in found]


def stops(p: Parameters) -> list[Block]:
    """Claim U14: the final FedTTA++ model."""
    return block(p, "cifar10", "pathological", ["FedTTA++"], rounds=(FINAL,), columns=("test",), extras=("steps",))


def pooled(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Accuracy over all images of all clients, as in the paper's code, then mean and n-1 standard deviation over seeds, with what was run
    in place of the rows' printed data set (of several, the first)."""
    return ran(average(rows, list(by), weighted=True), rows)


def ran(frame: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """``frame`` with the data set and the network of ``rows``, and whether they stand in for the printed ones; a copy or part of a printed
    data set is named and counts, a user's images stand in for nothing."""
    dataset, model, printed = rows[["dataset", "model", "printed_dataset"]].iloc[0]
    status = "ok" if counts(dataset, printed.split(", ")[:1]) else "stand-in"
    return frame.assign(run_dataset=shown(dataset), run_model=model, status=status)


def selected(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows at each (setting, method, seed)'s round of best validation accuracy, the first of equals; tests are never looked at."""
    run = ["setting", "method", "seed"]
    validation = rows[rows["column"] == "validation"]
    parts = validation.assign(correct=validation["accuracy"] * validation["n"]).groupby([*run, "round"], sort=False)
    accuracy = (parts["correct"].sum() / parts["n"].sum()).rename("accuracy").reset_index()
    best = accuracy.sort_values(["accuracy", "round"], ascending=[False, True]).drop_duplicates(run)
    return rows.merge(best[[*run, "round"]], on=[*run, "round"])


def at_best(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Table 1: validation and test at the round of best validation."""
    parts = []
    for (printed, model), part in rows.groupby(["printed_dataset", "printed_model"], sort=False):
        scores = pooled(selected(part), ["setting", "method", "column"])
        parts.append(scores.assign(dataset=printed, model=model, setting=BLOCKS[printed][0]))
    return pd.concat(parts, ignore_index=True)


def label_drift(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Table 2; a method with one model for all clients has one test value, over the images of all test alphas."""
    best = selected(rows).assign(setting="Dir(0.1) train")
    one = best["method"].isin(ONE_MODEL) & (best["column"] != "validation")
    best["column"] = best["column"].where(~one, "test")
    return pooled(best, ["setting", "method", "column"])


def by_alpha(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Claim U6: alpha, method, mean of the methods with one model."""
    best = selected(rows[rows["method"].isin(ONE_MODEL)])
    tests = best[best["column"] != "validation"]
    tests = tests.assign(alpha=tests["column"].str.removeprefix("test_alpha_").astype(float))
    return pooled(tests, ["setting", "column", "alpha", "method"]).sort_values(["method", "alpha"], ignore_index=True)


def concept_shift(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Figure 4: method, column (validation, test), mean."""
    return pooled(selected(rows), ["method", "column"])


def by_strength(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Figure 5: round, method (Tent, HeteroFedTTA), strength (lambda, 0 for Tent), mean over the new clients."""
    name = rows["method"].str.split(":")
    model = "mlp_small|mlp|mlp_big" if p.run_on("cifar10") == STAND_IN else "convnet_small|medium|big"
    rows = rows.assign(method=name.str[0], strength=pd.to_numeric(name.str[1]).fillna(0.0), round=rows["round"] - 1, model=model)
    return pooled(rows, ["round", "method", "strength"])


def final(numbers: pd.DataFrame) -> pd.DataFrame:
    """Figure 5's last points, one row per learner."""
    if numbers.empty:
        return numbers
    last = numbers[numbers["round"] == numbers["round"].max()]
    return last[["method", "strength", "mean"]].reset_index(drop=True).round(2)


def curves(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Appendix figure 2: dataset, round, method, column, mean; ``dataset`` names all for which a run stands in."""
    done, by = rows.assign(round=rows["round"] - 1), ["setting", "round", "method", "column"]
    parts = [pooled(part, by).assign(dataset=names) for names, part in done.groupby("printed_dataset", sort=False)]
    return pd.concat(parts, ignore_index=True)


def by_share(study: Study) -> pd.DataFrame:
    """Figure 3: share, method, mean over the new clients, each at the main table's round."""
    p, (rows, _) = study.p, study.rows(kept(study.p))
    if rows.empty:
        return rows
    best = selected(rows)[["method", "seed", "round"]].drop_duplicates()
    (whole,), parts = kept(p), []
    request = {"rounds": tuple(sorted(best["round"].unique().tolist())), "columns": ("test",)}
    for share in SHARES:
        part, _ = study.rows([replace(whole, settings=[setting(p, "cifar10", "pathological", share=share)], request=request)])
        parts.append(part.merge(best, on=["method", "seed", "round"]).assign(share=share))
    return pooled(pd.concat(parts), ["share", "method"])


def paths(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Figure 2: client, step (0 before adaptation), column (accuracy, loss, entropy), mean, for every new client."""
    clients = setting(p, "cifar10", "pathological").protocol.build(p.seeds[0], p.data_root).clients
    labels, parts = {c.id: c.tests["test"][0].labels.numpy() for c in clients if not c.source}, []
    for row in rows.itertuples():
        accuracy = 100 * (row.predictions == labels[row.client][:, None]).mean(0)
        for name, values in {"accuracy": accuracy, "loss": row.loss[0], "entropy": row.entropy[0]}.items():
            parts.append(pd.DataFrame({"client": row.client, "step": range(STEPS + 1), "column": name, "mean": values}))
    return ran(pd.concat(parts, ignore_index=True).assign(n_seeds=1), rows)


def steps_kept(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Claim U14: client, mean: the step whose network answers under FedTTA++ (0: without a step), per new client and seed."""
    frame = rows[["setting", "method", "client", "seed"]]
    steps = {"column": frame["client"], "mean": [steps[0] for steps in rows["steps"]], "n_seeds": frame["seed"].nunique()}
    return ran(frame.assign(**steps), rows)


EXHIBITS: Sequence[Exhibit] = (
    Exhibit("AT1", "Appendix table 1: the clients in numbers", numbers=appendix.clients),
    Exhibit("AT2", "Appendix table 2: the clients of the rotated images", numbers=appendix.rotated),
    Exhibit("AT3", "Appendix table 3: networks of three sizes", numbers=appendix.widths, said=lambda p: "counted on the networks"),
    Exhibit("T1", "Table 1: training clients and new clients", main, at_best),
    Exhibit("T2", "Table 2: label drift between training and new clients", drift(), label_drift),
    Exhibit("U6", "Methods with one model at every test concentration", drift(ONE_MODEL), by_alpha),
    Exhibit("F2", f"Figure 2: {STEPS} steps on one new client", walks, paths, plots.steps),
    Exhibit("U14", "Steps that FedTTA++ keeps on every new client", stops, steps_kept),
    Exhibit("F3", "Figure 3: accuracy against the share of images kept", kept, numbers=by_share, draw=plots.shares),
    Exhibit("F4", "Figure 4: rotated images", rotated, concept_shift, plots.rotated),
    Exhibit("F5", "Figure 5: unequal networks", unequal, by_strength, plots.strengths),
    Exhibit("AF2", "Appendix figure 2: learning curves", histories, curves, plots.learning),
)
