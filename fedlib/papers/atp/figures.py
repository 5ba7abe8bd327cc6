"""ATP's figures: what is run or learned for each, and the numbers behind it."""

from dataclasses import replace

import numpy as np
import pandas as pd

from fedlib.adapt.atp import ATP, ATPGrid, is_statistic, modules
from fedlib.core import FINAL, Benchmark, Recipe
from fedlib.data.corruptions import SOURCE_KINDS, TARGET_KINDS, corrupt
from fedlib.experiment import make_task
from fedlib.models import Net
from fedlib.models.places import kinds, places
from fedlib.paper import Block
from fedlib.papers.atp.recipes import FEDAVG
from fedlib.papers.atp.settings import Parameters
from fedlib.papers.atp.tables import OWN, average, learned, ran, scores, study, whole
from fedlib.published.reading import same_images
from fedlib.study import Study
from fedlib.tools.seeding import numpy_generator

COHORTS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)  # shares of the source clients in Figures 5 and 8: 15 to 240 of 240
BATCHES = (5, 10, 20, 50, 100, 200)
MOVES = {False: (1e-3, 1e-2, 1e-1), True: (-0.3, -0.1, 0.1, 0.3, 1.0)}  # Figure 3: rates of parameters, of statistics
BESIDE = 1e-2  # its rate of parameters in sets that hold statistics as well
WITH_RUN = ["run_dataset", "run_model", "status"]


def benchmarks(p: Parameters) -> dict[str, Benchmark]:
    """The clients under the three shifts."""
    return {s.label: s.protocol.build(p.seeds[0], p.data_root) for s in p.settings()}


def held(study: Study) -> pd.DataFrame:
    """Samples per client and class under the three shifts."""
    return pd.concat([b.report().assign(setting=label) for label, b in benchmarks(study.p).items()]).reset_index()


def two_shifts(p: Parameters) -> list[Block]:
    """Figure 2: Table 1 under feature and label shift."""
    return [whole(p, "cifar10", settings=p.settings()[:2])]


def trade_off(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Figure 2: its cells on the same images, by method."""
    cells = same_images(scores(p, rows))
    order = list(cells["method"].unique())
    cells = cells.sort_values("method", key=lambda names: names.map(order.index), kind="stable", ignore_index=True)
    return cells[["setting", "method", "mean", "std", "n_seeds", *WITH_RUN, "n", "units"]]


def network(p: Parameters) -> Net:
    setting = p.settings()[0]
    return make_task(setting, setting.protocol.build(p.seeds[0], p.data_root), p.seeds[0], p.engine(), p.data_root).model


def groups(p: Parameters) -> pd.DataFrame:
    """The network's modules in order: name, block, type."""
    model = network(p)
    names, block, kind = modules(model), places(model), kinds(model)
    return pd.DataFrame({"name": names, "block": [block[n] for n in names], "type": [kind[n] for n in names]})


def first_images(p: Parameters) -> int | None:
    """Images of each stream that figures 3 and 8 read: three batches, or ``costly_samples`` where that is more; None for all."""
    return max(p.costly_samples, 3 * p.rates("cifar10").batch_size) if p.costly_samples else None


def of_vectors(p: Parameters, settings, recipes: dict[str, Recipe]) -> list[Block]:
    """The block of recipes that try many vectors of rates, on the final model and the first images of each stream."""
    recipes = {name: replace(recipe, costly=True) for name, recipe in recipes.items()}
    return [study(settings, recipes, rounds=(FINAL,), costly_samples=first_images(p), extras=("accuracies", "losses"))]


def each_vector(rows: pd.DataFrame) -> pd.DataFrame:
    """A row for each number ``vector`` of the vectors of rates that ``ATPGrid`` tries."""
    one = rows.drop(columns=["accuracy", "loss", *rows.filter(like="cut")]).rename(columns={"accuracies": "accuracy", "losses": "loss"})
    one["vector"] = one["accuracy"].map(lambda values: range(len(values)))
    return one.explode(["vector", "accuracy", "loss"], ignore_index=True).astype({"vector": int, "accuracy": float, "loss": float})


def sets_of_modules(group: pd.DataFrame) -> list[tuple[str, str, pd.Series]]:
    """Figure 3's sets as (grouping, name, members of ``groups``): each type, running statistics together, all of batch norm; and the
    blocks with their running statistics, as in the published code."""
    types = {kind: group["type"].eq(kind) for kind in group["type"].unique()}
    types["both statistics"] = group["name"].map(is_statistic)
    types["all BN"] = types["both statistics"] | group["type"].str.startswith("norm")
    blocks = {block: group["block"].eq(block) for block in group["block"].unique()}
    return [("type", *item) for item in types.items()] + [("block", *item) for item in blocks.items()]


def moves(p: Parameters) -> tuple[pd.DataFrame, np.ndarray]:
    """Figure 3's points and their vectors of rates: a block, or one type, at fixed rates.

    rate: that of the set's running statistics or, where it has none, of its parameters; parameter_rate: of its parameters (0 for none).
    """
    group = groups(p)
    statistic = group["name"].map(is_statistic)
    points, vectors = [("none", "none", 0.0, 0.0)], [np.zeros(len(group))]
    for grouping, name, members in sets_of_modules(group):
        holds, mixed = bool(statistic[members].any()), statistic[members].nunique() == 2
        for rate in MOVES[holds]:
            other = BESIDE if mixed else 0.0 if holds else rate
            points.append((grouping, name, rate, other))
            vectors.append(np.where(members & statistic, rate, np.where(members, other, 0.0)))
    return pd.DataFrame(points, columns=["grouping", "modules", "rate", "parameter_rate"]), np.stack(vectors)


def one_step(p: Parameters) -> list[Block]:
    """Figure 3: one step at fixed rates for one set of modules, without any learning."""
    grid = ATPGrid(tuple(tuple(vector) for vector in moves(p)[1].tolist()), p.rates("cifar10").batch_size)
    return of_vectors(p, p.settings()[:2], {"ATP-batch": Recipe(FEDAVG, None, grid)})


def module_sets(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Figure 3's points by shift."""
    cells = average(each_vector(rows), ["setting", "vector"]).assign(**ran(*rows[["dataset", "model"]].iloc[0]))
    return cells.merge(moves(p)[0], left_on="vector", right_index=True).drop(columns="vector").reset_index(drop=True)


def rates_by_group(study: Study) -> pd.DataFrame:
    """Figure 4: mean learned rate of each block and each type of module (``grouping`` block, type), and every module's own (module)."""
    p, parts = study.p, []
    found = learned(p, p.settings()) if p.allowed(*OWN) else {}
    group = groups(p) if found else None
    for (label, seed), part in found.items():
        one = group.assign(setting=label, seed=seed, rate=part["shared.rates"].numpy())
        for grouping, column in (("block", "block"), ("type", "type"), ("module", "name")):
            parts.append(one.groupby(["setting", "seed", column], sort=False)["rate"].mean().reset_index(name="rate"))
            parts[-1] = parts[-1].rename(columns={column: "modules"}).assign(grouping=grouping)
    return over_seeds(p, pd.concat(parts), ["setting", "grouping", "modules"], "rate") if parts else pd.DataFrame()


def over_seeds(p: Parameters, values: pd.DataFrame, by: list[str], name: str) -> pd.DataFrame:
    """Mean and deviation over seeds of quantities that are not test rows, with what was run."""
    grouped, setting = values.groupby(by, sort=False)[name], p.settings()[0]
    frame = pd.DataFrame({"mean": grouped.mean(), "std": grouped.std(ddof=1), "n_seeds": grouped.size()}).reset_index()
    return frame.assign(**ran(setting.protocol.dataset, setting.model))


def cohorts(p: Parameters) -> list[int]:
    """Cohort sizes of Figures 5 and 8."""
    return sorted({max(1, round(share * p.n_sources("cifar10"))) for share in COHORTS})


def of_sizes(p: Parameters) -> list[Block]:
    """Figure 5, hybrid shift: rates learned anew by cohort, and the usual ones by test batch size."""
    setting, usual = p.settings()[-1], p.rates("cifar10")
    stream = min(len(draws[0]) for c in setting.protocol.build(p.seeds[0], p.data_root).clients for draws in c.tests.values())
    recipes = {f"NoAdapt|{column}|0": Recipe(FEDAVG) for column in ("cohort", "batch")}
    for name in p.allowed(*OWN):
        online = name == "ATP-online"
        for cohort in cohorts(p):
            recipes[f"{name}|cohort|{cohort}"] = Recipe(FEDAVG, replace(usual, cohort=cohort), ATP(online, usual.batch_size))
        for size in BATCHES:
            if size <= stream:
                recipes[f"{name}|batch|{size}"] = Recipe(FEDAVG, usual, ATP(online, size))
    return [study([setting], recipes)] if p.allowed(*OWN) else []


def sizes(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Figure 5: accuracy over cohort and batch size."""
    points = average(rows).assign(**ran(*rows[["dataset", "model"]].iloc[0]))
    points[["method", "column", "size"]] = points["method"].str.split("|", expand=True)
    points = points.astype({"size": int})
    # The reference without adaptation is the same at every size.
    plain = points[points["method"] == "NoAdapt"].drop(columns="size")
    plain = plain.merge(points[points["method"] != "NoAdapt"][["column", "size"]].drop_duplicates(), on="column")
    return pd.concat([plain, points[points["method"] != "NoAdapt"]], ignore_index=True)


def of_cohorts(p: Parameters) -> list[Block]:
    """Figure 8, hybrid shift: ATP-batch with the rates before each round of learning and at the end, by cohort."""
    rates = {str(cohort): replace(p.rates("cifar10"), cohort=cohort) for cohort in cohorts(p)}
    recipes = {name: Recipe(FEDAVG, own, ATPGrid(None, own.batch_size)) for name, own in rates.items()}
    return of_vectors(p, p.settings()[-1:], recipes) if p.allowed(*OWN) else []


def loss_curves(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Figure 8: cross-entropy of the adapted models over the rounds of learning the rates, by cohort.

    train: source clients of the round, after adaptation, during refinement; test: the target clients.
    """
    frames, rows = [], each_vector(rows)
    for cohort in cohorts(p):
        rates = replace(p.rates("cifar10"), cohort=cohort)
        for (_, seed), part in learned(p, p.settings()[-1:], rates).items():
            losses = part["shared.losses"].tolist()
            train = pd.DataFrame({"round": range(1, len(losses) + 1), "loss": losses, "column": "train"})
            frames.append(train.assign(cohort=cohort, seed=seed))
        own = rows[rows["method"] == str(cohort)].groupby(["seed", "vector"])
        test = own.apply(lambda g: np.average(g["loss"], weights=g["n"]), include_groups=False)
        test = test.rename_axis(["seed", "round"]).reset_index(name="loss")
        frames.append(test.assign(column="test", cohort=cohort))
    return over_seeds(p, pd.concat(frames), ["cohort", "round", "column"], "loss")


def communication(study: Study) -> pd.DataFrame:
    """Claim A16: rounds of learning the rates, parameters of the network, modules."""
    p, setting, model = study.p, study.p.settings()[0], network(study.p)
    counts = {"rounds": p.rates("cifar10").rounds, "parameters": sum(t.numel() for t in model.parameters()), "modules": len(modules(model))}
    return pd.DataFrame([counts | {"n_seeds": 1} | ran(setting.protocol.dataset, setting.model)])


def pictures(benchmark: Benchmark) -> dict[str, np.ndarray]:
    """Figure 7: the first image of a target client, as it is ("clean", uint8 [1, C, H, W]) and under every kind, source kinds first, at
    five severities ([5, C, H, W])."""
    target = next(client for client in benchmark.clients if not client.source)
    image = next(iter(target.tests.values()))[0].images[:1].cpu().numpy()
    return {"clean": image} | {
        kind: np.concatenate([corrupt(image, kind, severity, numpy_generator(0, "figure 7", kind, severity)) for severity in range(1, 6)])
        for kind in (*SOURCE_KINDS, *TARGET_KINDS)
    }


def changes(study: Study) -> pd.DataFrame:
    """Figure 7: the mean absolute change of the pixels of a clean image under every kind and severity."""
    five = pictures(study.benchmark)
    clean = five.pop("clean")[0]
    rows = [(kind, s, float(np.abs(one.astype(float) - clean).mean())) for kind, by in five.items() for s, one in enumerate(by, start=1)]
    return pd.DataFrame(rows, columns=["kind", "severity", "mean"])
