"""ATP's ablations and studies: runs beyond its main tables, and the numbers behind its figures.

Rates are numbers that one federated run has learned; other models can be adapted with them (``ATP(rates=...)``). That is what the studies
across shifts, of outdated rates, of learning curves and of chosen module sets have in common.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from torch.nn.functional import cross_entropy

from fedlib.adapt.atp import ATP, ATPGrid, is_statistic, modules
from fedlib.core import FINAL, Benchmark, Recipe, State
from fedlib.data.corruptions import SOURCE_KINDS, TARGET_KINDS, corrupt
from fedlib.experiment import Setting, look, make_task, personal_parts, run
from fedlib.models.places import kinds, places
from fedlib.papers.atp import settings as atp
from fedlib.papers.atp.recipes import FEDAVG, TRAIN
from fedlib.papers.atp.settings import Parameters, average, labelled
from fedlib.personalize.rates import Rates
from fedlib.published.reading import same_images
from fedlib.seeding import numpy_generator

OWN = ("ATP-batch", "ATP-online")
LATER = (0, 10, 20, 50, 100)  # further rounds of Table 6, after 200
COHORTS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)  # shares of the source clients in Figures 5 and 8: 15 to 240 of 240
BATCHES = (5, 10, 20, 50, 100, 200)
MOVES = {False: (1e-3, 1e-2, 1e-1), True: (-0.3, -0.1, 0.1, 0.3, 1.0)}  # Figure 3: rates of parameters, of statistics
BESIDE = 1e-2  # its rate of parameters in sets that hold statistics as well


def learned(p: Parameters, settings: Iterable[Setting], rates: Rates | None = None, round: int = -1) -> dict[tuple[str, int], State]:
    """(setting, seed) -> what learning the rates gives: ``shared.rates``, ``shared.history``, ``shared.losses``. round: of the model."""
    recipe = Recipe(FEDAVG, rates or p.rates("cifar10"), ATP())
    parts = personal_parts(list(settings), {"": recipe}, p.seeds, round=round, **p.execution())
    return {(label, seed): part for (label, _, seed), part in parts.items()}


def with_rates(p: Parameters, rates: Iterable[float], **fields) -> Recipe:
    """ATP-batch with given rates. fields: of ``ATP``."""
    values = tuple(float(rate) for rate in rates)
    return Recipe(FEDAVG, None, ATP(**{"batch_size": p.rates("cifar10").batch_size, "rates": values} | fields))


def wanted(p: Parameters, *names: str) -> list[str]:
    """Those of the published ``names`` that the parameter ``methods`` lets run."""
    return [name for name in names if p.methods is None or name in p.methods]


def joined(frames: list[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def cross_shift(p: Parameters) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Table 3: the rates of each shift on the model and the target clients of each. Cells, and the rows behind them."""
    settings, frames = p.settings(), []
    for model in p.last:
        found = learned(p, settings, round=model) if wanted(p, "ATP-batch") else {}
        for seed in p.seeds:
            recipes = {"train=none": Recipe(FEDAVG)} if wanted(p, "NoAdapt") else {}
            if found:
                recipes |= {f"train={s.label.split()[0]}": with_rates(p, found[s.label, seed]["shared.rates"]) for s in settings}
            frames += [run(settings, recipes, [seed], request=p.final(rounds=(model,)), **p.execution())] if recipes else []
    if not frames:
        return pd.DataFrame(), pd.DataFrame()
    rows = joined(frames)
    cells = average(rows)
    method = cells["method"].map(lambda name: "NoAdapt" if name == "train=none" else "ATP-batch")
    column = "test_" + cells["setting"].str.split().str[0]
    return cells.assign(setting=cells["method"], method=method, column=column), rows


def ablation(p: Parameters, grad_norm: str = "numel") -> tuple[pd.DataFrame, pd.DataFrame]:
    """Table 4: rates for parameters or for statistics alone. grad_norm: of these two; the full method keeps its own."""
    recipes = p.recipes("cifar10", ("NoAdapt", "ATP-batch"))
    for only in ("params", "stats") if wanted(p, "ATP-batch") else ():
        rates = p.rates("cifar10", only=only, grad_norm=grad_norm)
        recipes[f"ATP-{only}"] = Recipe(FEDAVG, rates, ATP(batch_size=rates.batch_size))
    if not recipes:
        return pd.DataFrame(), pd.DataFrame()
    rows = run(p.settings(), recipes, p.seeds, request=p.final(), **p.execution())
    return average(rows), rows


def outdated(p: Parameters) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Table 6: the rates of the scheduled model on models that train on. The printed further rounds, of 200, scale with the schedule.

    Each row is one model: in a short schedule they follow on each other too closely for means.
    """
    setting, names = p.settings()[-1], wanted(p, "NoAdapt", *OWN)
    if not names:
        return pd.DataFrame(), pd.DataFrame()
    found, frames = learned(p, [setting]) if wanted(p, *OWN) else {}, []
    rounds, every = setting.schedule.rounds, setting.schedule.save_every
    later = {rounds + 1: LATER[0]}
    for extra in LATER[1:]:
        # In a short schedule at least one saved round later than the one before.
        later[max(max(later) + every, rounds + 1 + every * round(extra * rounds / (200 * every)))] = extra
    longer = replace(setting, schedule=replace(setting.schedule, rounds=max(later) - 1))
    for seed in p.seeds:
        recipes = {"NoAdapt": Recipe(FEDAVG)}
        if found:
            rates = found[setting.label, seed]["shared.rates"]
            recipes |= {name: with_rates(p, rates, online=name == "ATP-online") for name in OWN}
        recipes = {name: recipes[name] for name in names}
        frames.append(run([longer], recipes, [seed], request=p.final(rounds=tuple(later)), **p.execution()))
    rows = joined(frames)
    rows = rows.assign(setting=[f"+{later[t]} rounds" for t in rows["round"]])
    return average(rows), rows


def global_training(p: Parameters) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Table 7: rates learned and used on models of three training methods, hybrid shift."""
    names = wanted(p, "NoAdapt", *OWN)
    if not names:
        return pd.DataFrame(), pd.DataFrame()
    frames = []
    for name, train in TRAIN.items():
        recipes = p.recipes("cifar10", names, train=train)
        frames.append(run([replace(p.settings()[-1], label=name)], recipes, p.seeds, request=p.final(), **p.execution()))
    rows = joined(frames)
    return average(rows), rows


def trade_off(p: Parameters) -> pd.DataFrame:
    """Figure 2: the cells of Table 1 under feature and label shift, on the same images."""
    table = same_images(atp.table("T1", {"cifar10": atp.measure(p, "cifar10", settings=p.settings()[:2])}))
    shown = table[table["setting"].isin(["feature shift", "label shift"]) & table["mean"].notna()]
    return shown.drop(columns=["paper", "table", "dataset", "model", "column", "published_mean", "published_std"])


def groups(p: Parameters) -> pd.DataFrame:
    """The network's modules in order: name, block, type."""
    setting = p.settings()[0]
    model = make_task(setting, setting.protocol.build(p.seeds[0], p.data_root), p.seeds[0], p.engine()).model
    names = modules(model)
    return pd.DataFrame({"name": names, "block": [places(model)[n] for n in names], "type": [kinds(model)[n] for n in names]})


def first_images(p: Parameters) -> int | None:
    """Images of each stream that figures 3 and 8 read: three batches, or ``costly_samples`` where that is more; None for all."""
    return max(p.costly_samples, 3 * p.rates("cifar10").batch_size) if p.costly_samples else None


def over_vectors(p: Parameters, settings: Sequence[Setting], recipes: Mapping[str, Recipe]) -> pd.DataFrame:
    """Rows of the final model as ``run`` gives them, with the number ``vector`` of each of the vectors of rates that ``ATPGrid`` tries."""
    recipes = {name: replace(recipe, costly=True) for name, recipe in recipes.items()}
    request, rows = p.final(rounds=(FINAL,), costly_samples=first_images(p)), []
    # Here in processes; below it is read back.
    run(settings, recipes, p.seeds, request=request, **p.execution())
    for setting in settings:
        for name, recipe in recipes.items():
            for seed in p.seeds:
                where = {"request": request, "cache": p.cache, "root": p.data_root, "engine": p.engine()}
                benchmark, outputs = look(setting, recipe, seed, "test", **where)
                about = {"setting": setting.label, "method": name, "seed": seed, "dataset": benchmark.dataset, "model": setting.model}
                for (k, _), output in outputs.items():
                    labels = benchmark.clients[k].tests["test"][0].labels[: output.scores.shape[1]].cpu()
                    for vector, scores in enumerate(output.scores.double()):
                        right = 100 * (scores.argmax(-1) == labels).double().mean().item()
                        values = {"n": len(labels), "accuracy": right, "loss": cross_entropy(scores, labels).item()}
                        rows.append(about | {"column": "test", "client": k, "vector": vector} | values)
    return pd.DataFrame(rows)


def sets_of_modules(group: pd.DataFrame) -> list[tuple[str, str, pd.Series]]:
    """Figure 3's sets as (grouping, name, members of ``groups``): each type, running statistics together, all of batch norm; and the
    blocks with their running statistics, as in the published code."""
    types = {kind: group["type"].eq(kind) for kind in group["type"].unique()}
    types["both statistics"] = group["name"].map(is_statistic)
    types["all BN"] = types["both statistics"] | group["type"].str.startswith("norm")
    blocks = {block: group["block"].eq(block) for block in group["block"].unique()}
    return [("type", *item) for item in types.items()] + [("block", *item) for item in blocks.items()]


def module_sets(p: Parameters) -> pd.DataFrame:
    """Figure 3: one step at fixed rates for one set of modules - a block, or one type - without any learning, on the final model.

    rate: that of the set's running statistics or, where it has none, of its parameters; parameter_rate: of its parameters (0 for none).
    Only the first images of each stream are read (``first_images``).
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
    grid = ATPGrid(tuple(tuple(v.tolist()) for v in vectors), p.rates("cifar10").batch_size)
    rows = over_vectors(p, p.settings()[:2], {"ATP-batch": Recipe(FEDAVG, None, grid)})
    frame = labelled(average(rows, ["setting", "vector"]), rows)
    named = pd.DataFrame(points, columns=["grouping", "modules", "rate", "parameter_rate"])
    return frame.merge(named, left_on="vector", right_index=True).drop(columns="vector").reset_index(drop=True)


def rates_by_group(p: Parameters) -> pd.DataFrame:
    """Figure 4: mean learned rate of each block and each type of module (``grouping`` block, type), and every module's own (module)."""
    found, group = learned(p, p.settings()), groups(p)  # of the final model
    parts = []
    for (label, seed), part in found.items():
        one = group.assign(setting=label, seed=seed, rate=part["shared.rates"].numpy())
        for grouping, column in (("block", "block"), ("type", "type"), ("module", "name")):
            parts.append(one.groupby(["setting", "seed", column], sort=False)["rate"].mean().reset_index(name="rate"))
            parts[-1] = parts[-1].rename(columns={column: "modules"}).assign(grouping=grouping)
    grouped = pd.concat(parts).groupby(["setting", "grouping", "modules"], sort=False)["rate"]
    frame = pd.DataFrame({"mean": grouped.mean(), "std": grouped.std(ddof=1), "n_seeds": grouped.size()}).reset_index()
    return provenance(p, frame)


def provenance(p: Parameters, frame: pd.DataFrame) -> pd.DataFrame:
    """``frame`` with what was run, for quantities that are not test rows."""
    setting = p.settings()[0]
    return labelled(frame, pd.DataFrame({"dataset": [setting.protocol.dataset], "model": [setting.model]}))


def cohorts(p: Parameters) -> list[int]:
    """Cohort sizes of Figures 5 and 8."""
    return sorted({max(1, round(share * p.n_sources("cifar10"))) for share in COHORTS})


def sizes(p: Parameters) -> pd.DataFrame:
    """Figure 5, hybrid shift: accuracy over the cohort of rates learned anew, and over the test batch size at the usual rates."""
    setting, usual = p.settings()[-1], p.rates("cifar10")
    stream = min(len(draws[0]) for c in setting.protocol.build(p.seeds[0], p.data_root).clients for draws in c.tests.values())
    recipes = {f"NoAdapt|{column}|{size}": Recipe(FEDAVG) for column, size in (("cohort", 0), ("batch", 0))}
    for name in wanted(p, *OWN):
        online = name == "ATP-online"
        for cohort in cohorts(p):
            recipe = Recipe(FEDAVG, replace(usual, cohort=cohort), ATP(online, usual.batch_size))
            recipes[f"{name}|cohort|{cohort}"] = recipe
        for size in BATCHES:
            if size <= stream:
                recipes[f"{name}|batch|{size}"] = Recipe(FEDAVG, usual, ATP(online, size))
    rows = run([setting], recipes, p.seeds, request=p.final(), **p.execution())
    points = labelled(average(rows), rows)
    points[["method", "column", "size"]] = points["method"].str.split("|", expand=True)
    points = points.astype({"size": int})
    # The reference without adaptation is the same at every size.
    plain = points[points["method"] == "NoAdapt"].drop(columns="size")
    plain = plain.merge(points[points["method"] != "NoAdapt"][["column", "size"]].drop_duplicates(), on="column")
    return pd.concat([plain, points[points["method"] != "NoAdapt"]], ignore_index=True)


def loss_curves(p: Parameters) -> pd.DataFrame:
    """Figure 8, hybrid shift: cross-entropy of the adapted models over the rounds of learning the rates, by cohort, on the final model.

    train: source clients of the round, after adaptation, during refinement; test: ATP-batch with the rates before each round and at the
    end, on the first images of the target clients (``first_images``).
    """
    setting, usual, frames = p.settings()[-1], p.rates("cifar10"), []
    for cohort in cohorts(p):
        rates = replace(usual, cohort=cohort)
        for (_, seed), part in learned(p, [setting], rates).items():
            losses = part["shared.losses"].tolist()
            train = pd.DataFrame({"round": range(1, len(losses) + 1), "mean": losses, "column": "train"})
            frames.append(train.assign(cohort=cohort, seed=seed))
        rows = over_vectors(p, [setting], {"ATP-batch": Recipe(FEDAVG, rates, ATPGrid(None, usual.batch_size))})
        test = rows.groupby(["seed", "vector"]).apply(lambda g: np.average(g["loss"], weights=g["n"]), include_groups=False)
        test = test.rename_axis(["seed", "round"]).reset_index(name="mean")
        frames.append(test.assign(column="test", cohort=cohort))
    grouped = pd.concat(frames).groupby(["cohort", "round", "column"], sort=False)["mean"]
    frame = pd.DataFrame({"mean": grouped.mean(), "std": grouped.std(ddof=1), "n_seeds": grouped.size()}).reset_index()
    return provenance(p, frame)


def communication(p: Parameters) -> pd.DataFrame:
    """Claim A16: rounds of learning the rates, parameters of the network, modules."""
    setting = p.settings()[0]
    model = make_task(setting, setting.protocol.build(p.seeds[0], p.data_root), p.seeds[0], p.engine()).model
    counts = {"rounds": p.rates("cifar10").rounds, "parameters": sum(t.numel() for t in model.parameters()), "modules": len(modules(model))}
    return provenance(p, pd.DataFrame([counts | {"n_seeds": 1}]))


def corrupted_pictures(benchmark: Benchmark) -> tuple[dict[str, np.ndarray], pd.DataFrame]:
    """Figure 7: the first clean image of a target client under every kind, source kinds first: kind -> uint8 [5, C, H, W]; and the mean
    absolute change of its pixels."""
    target = next(client for client in benchmark.clients if not client.source)
    image = next(iter(target.tests.values()))[0].images[:1].cpu().numpy()
    pictures = {
        kind: np.concatenate([corrupt(image, kind, severity, numpy_generator(0, "figure 7", kind, severity)) for severity in range(1, 6)])
        for kind in (*SOURCE_KINDS, *TARGET_KINDS)
    }
    changes = [
        {"kind": kind, "severity": s, "mean": float(np.abs(shown.astype(float) - image[0]).mean())}
        for kind, five in pictures.items()
        for s, shown in enumerate(five, start=1)
    ]
    return pictures, pd.DataFrame(changes)
