"""ATP's tables, and the numbers beside them: what is run for each, and how the rows become its numbers.

Rates are numbers that one federated run has learned; other models can be adapted with them (``ATP(rates=...)``). That is what the tables
across shifts and of outdated rates and the figures of learning curves and of chosen module sets have in common.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from importlib.resources import files

import pandas as pd

from fedlib import common
from fedlib.adapt.atp import ATP
from fedlib.core import FINAL, Recipe, State
from fedlib.data import about as about_data
from fedlib.data import counts, is_own, shown
from fedlib.experiment import personal_parts
from fedlib.paper import Block
from fedlib.papers.atp.recipes import FEDAVG, RECIPES, TRAIN
from fedlib.papers.atp.settings import BLOCKS, BY_DOMAIN, NEW, Parameters, domains, network
from fedlib.personalize.rates import Rates
from fedlib.published.reading import same_images
from fedlib.setting import Setting
from fedlib.study import Study

OWN = ("ATP-batch", "ATP-online")
# Tables of all methods, and their blocks.
WHOLE = {"T1": ("cifar10",), "T2": BY_DOMAIN, "T5": ("cifar10_cnn", "cifar100")}
README = {"T1": ("cifar10",), "T5": ("cifar10_cnn",)}  # what the README of the public code has numbers for
LATER = (0, 10, 20, 50, 100)  # further rounds of Table 6, after 200


def whole(p: Parameters, block: str, *, settings: Sequence[Setting] | None = None, names: Sequence[str] | None = None) -> Block:
    """A printed block: its settings (None: all) and recipes (``names``; None: all)."""
    published, optional = BLOCKS[block], BLOCKS[block].dataset != "cifar10"
    absent = about_data(p.data(block)).lacks("domains") if block in BY_DOMAIN else ""
    usual = p.settings(block) if settings is None else settings
    return Block(usual, p.recipes(block, names), {}, published.dataset, published.model, absent, optional, NEW)


def table(name: str) -> Callable[[Parameters], list[Block]]:
    return lambda p: [whole(p, block) for block in WHOLE[name]]


def study(settings: Sequence[Setting], recipes: dict[str, Recipe], seeds: Sequence[int] | None = None, **request) -> Block:
    """A block on the clients and the network of Table 1 in which the user's methods have no part."""
    published = BLOCKS["cifar10"]
    return Block(settings, recipes, request, published.dataset, published.model, offers=None, seeds=seeds)


def learned(p: Parameters, settings: Iterable[Setting], rates: Rates | None = None, round: int = FINAL) -> dict[tuple[str, int], State]:
    """(setting, seed) -> what learning the rates gives: ``shared.rates``, ``shared.history``, ``shared.losses``. round: of the model."""
    recipe = Recipe(FEDAVG, rates or p.rates("cifar10"), ATP())
    parts = personal_parts(list(settings), {"": recipe}, p.seeds, round=round, **p.execution())
    return {(label, seed): part for (label, _, seed), part in parts.items()}


def with_rates(p: Parameters, rates: Iterable[float], **fields) -> Recipe:
    """ATP-batch with given rates. fields: of ``ATP``."""
    values = tuple(float(rate) for rate in rates)
    return Recipe(FEDAVG, None, ATP(**{"batch_size": p.rates("cifar10").batch_size, "rates": values} | fields))


def cross_shift(p: Parameters) -> list[Block]:
    """Table 3: the rates of each shift on the model and the target clients of each."""
    settings, blocks = p.settings(), []
    plain = {"train=none": Recipe(FEDAVG)} if p.allowed("NoAdapt") else {}
    for model in p.last:
        found = learned(p, settings, round=model) if p.allowed("ATP-batch") else {}
        for seed in p.seeds:
            own = {f"train={s.label.split()[0]}": with_rates(p, found[s.label, seed]["shared.rates"]) for s in settings if found}
            blocks.append(study(settings, plain | own, [seed], rounds=(model,)))
    return blocks


def across(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Table 3's cells: the shift of the rates is the setting, that of the test clients the column."""
    cells = scores(p, rows)
    method = cells["method"].map(lambda name: "NoAdapt" if name == "train=none" else "ATP-batch")
    return cells.assign(setting=cells["method"], method=method, column="test_" + cells["setting"].str.split().str[0])


def ablation(grad_norm: str) -> Callable[[Parameters], list[Block]]:
    """Table 4: rates for parameters or for statistics alone. grad_norm: of these two; the full method keeps its own."""

    def blocks(p: Parameters) -> list[Block]:
        recipes = p.recipes("cifar10", ("NoAdapt", "ATP-batch"))
        for only in ("params", "stats") if p.allowed("ATP-batch") else ():
            rates = p.rates("cifar10", only=only, grad_norm=grad_norm)
            recipes[f"ATP-{only}"] = Recipe(FEDAVG, rates, ATP(batch_size=rates.batch_size))
        return [study(p.settings(), recipes)]

    return blocks


def later(p: Parameters) -> dict[int, int]:
    """Table 6: round of the model -> the printed further rounds. Those, of 200, scale with the schedule."""
    schedule = p.settings()[-1].schedule
    rounds, every = schedule.rounds, schedule.save_every
    found = {rounds + 1: LATER[0]}
    for extra in LATER[1:]:
        # In a short schedule at least one saved round later than the one before.
        found[max(max(found) + every, rounds + 1 + every * round(extra * rounds / (200 * every)))] = extra
    return found


def outdated(p: Parameters) -> list[Block]:
    """Table 6: the rates of the scheduled model on models that train on.

    Each row is one model: in a short schedule they follow on each other too closely for means.
    """
    setting, models, blocks = p.settings()[-1], tuple(later(p)), []
    longer = replace(setting, schedule=replace(setting.schedule, rounds=max(models) - 1))
    found = learned(p, [setting]) if p.allowed(*OWN) else {}
    for seed in p.seeds:
        recipes = {"NoAdapt": Recipe(FEDAVG)} if p.allowed("NoAdapt") else {}
        for name in p.allowed(*OWN):
            recipes[name] = with_rates(p, found[setting.label, seed]["shared.rates"], online=name == "ATP-online")
        blocks.append(study([longer], recipes, [seed], rounds=models))
    return blocks


def by_model(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    return scores(p, rows.assign(setting=rows["round"].map(later(p)).map("+{} rounds".format)))


def global_training(p: Parameters) -> list[Block]:
    """Table 7: rates learned and used on models of three training methods, hybrid shift; with a user's methods that start from plain
    FedAvg, on the same models."""
    hybrid, names = p.settings()[-1], ("NoAdapt", *OWN)
    beside = {name: recipe for name, recipe in p.beside(p.network("cifar10"), NEW, FEDAVG).items() if recipe.train == FEDAVG}
    return [
        study(
            [replace(hybrid, label=name)],
            p.recipes("cifar10", names, train=train) | {n: replace(r, train=train) for n, r in beside.items()},
        )
        for name, train in TRAIN.items()
    ]


def average(rows: pd.DataFrame, by: Sequence[str] = ("setting", "method", "column"), value: str = "accuracy") -> pd.DataFrame:
    """Mean and n-1 standard deviation over seeds of the mean over all test samples of all target clients, the paper's metric, and what
    else ``fedlib.common.average`` returns. Several models after the last rounds count as several draws of the same images."""
    rows = rows.assign(draw=rows.groupby([*by, "seed", "client"], sort=False).cumcount())
    return common.average(rows, by, value=value, weighted=True)


def ran(data: str, model: str, block: str = "cifar10") -> dict[str, str]:
    """What was run, as the columns that close a result. "ok": the block's own images and network, "stand-in" otherwise."""
    own = counts(data, [BLOCKS[block].dataset]) and (model == network(BLOCKS[block].model) or is_own(shown(data)))
    return {"run_dataset": shown(data), "run_model": model, "status": "ok" if own else "stand-in"}


def scores(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """The cells of every block under the printed names of its data set and network, with what was run."""
    names, parts = {(block.dataset, block.model): name for name, block in BLOCKS.items()}, []
    for (dataset, model), part in rows.groupby(["printed_dataset", "printed_model"], sort=False):
        what = ran(*part[["dataset", "model"]].iloc[0], names[dataset, model])
        parts.append(average(part).assign(dataset=dataset, model=model, **what))
    return pd.concat(parts, ignore_index=True)


def by_domain(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Table 2's cells: what is printed as a test column was run as a setting."""
    return scores(p, rows).assign(column=lambda cells: cells["setting"], setting="hybrid shift")


def own_columns(p: Parameters) -> dict[str, str]:
    """Printed columns of Table 2 and, in a block of a user's images, the domains that stand for them; empty where there is none."""
    own = [block for block in BY_DOMAIN if about_data(p.data(block)).own]
    pairs = [(block, *pair) for block in BY_DOMAIN for pair in domains(block, p.data(block)).items()]
    return {printed: domain if block in own else printed for block, printed, domain in pairs} if own else {}


def with_ranks(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """The cells of Tables 1 and 5, and the ranks of blocks that are complete."""
    parts = []
    for _, block in scores(p, rows).groupby(["dataset", "model"], sort=False):
        complete = block["setting"].nunique() == 3 and set(RECIPES) <= set(block["method"])
        # As everywhere: where streams of costly methods are cut, on the images that all have seen.
        parts += [block, ranks(same_images(block))] if complete else [block]
    return pd.concat(parts, ignore_index=True)


def unranked(p: Parameters) -> dict[str, str]:
    """Why a block may have no ranks though its methods have run."""
    return {"avg_rank": "ranks are among all eleven methods under all three shifts, which this run does not have"}


def ranks(measured: pd.DataFrame) -> pd.DataFrame:
    """Average over the shifts of each method's rank by its mean (1 is best), as cells of the setting ``all shifts``.

    Published methods are ranked among themselves, as in print, and every other one as if it were the only one beside them.
    """
    further = [name for name in measured["method"].unique() if name not in RECIPES]
    among = measured[~measured["method"].isin(further)]
    parts = [_ranked(pd.concat([among, measured[measured["method"] == name]])).tail(1) for name in further]
    return pd.concat([_ranked(among), *parts], ignore_index=True)


def _ranked(measured: pd.DataFrame) -> pd.DataFrame:
    wide = measured.pivot_table(index="method", columns="setting", values="mean", sort=False)
    rank = wide.rank(ascending=False).mean(axis=1)
    one = measured.drop_duplicates("method").set_index("method")
    return one.assign(setting="all shifts", column="avg_rank", mean=rank, std=float("nan"), n=pd.NA, units=None).reset_index()


def asked(p: Parameters, tables: dict[str, Sequence[str]]) -> list[str]:
    """The blocks of those ``tables`` that are asked for, of all where none is."""
    names = [name for name in tables if p.asks(name)] or [*tables]
    return [block for name in names for block in tables[name]]


def hyperparameters(study: Study) -> pd.DataFrame:
    """Every candidate of every tuned baseline with its accuracy on the source clients' validation parts, and which one was chosen.

    One row per block, setting, method, seed, model (``Request.rounds``) and candidate.
    """
    p, found = study.p, []
    for block in asked(p, WHOLE):
        tuned = {name: recipe for name, recipe in p.recipes(block).items() if hasattr(recipe.adapt, "candidates")}
        for model in p.last if tuned else ():
            try:
                parts = personal_parts(p.settings(block), tuned, p.seeds, round=model, **p.execution())
            except FileNotFoundError:  # the table says that its images are absent
                continue
            for (setting, method, seed), part in parts.items():
                for k, (words, value) in enumerate(zip(described(tuned[method]), part["shared.accuracies"].tolist(), strict=True)):
                    where = {"dataset": BLOCKS[block].dataset, "model": BLOCKS[block].model, "setting": setting, "method": method}
                    where |= {"run_dataset": shown(p.data(block)), "run_model": p.network(block), "seed": seed, "state": model}
                    found.append(where | {"candidate": words, "validation": value, "chosen": k == int(part["shared.choice"])})
    return pd.DataFrame(found)


def described(recipe: Recipe) -> list[str]:
    """A tuned recipe's candidates in words: the fields in which they differ."""
    candidates = recipe.adapt.candidates
    names = [f.name for f in fields(candidates[0])]
    varying = [name for name in names if len({getattr(candidate, name) for candidate in candidates}) > 1] or names[:1]
    return [", ".join(f"{name}={getattr(candidate, name)}" for name in varying) for candidate in candidates]


def chosen(frame: pd.DataFrame) -> pd.DataFrame:
    """What was chosen, settings across; several seeds and models in one cell. A user's images, and their network, have their own names."""
    if frame["run_dataset"].map(is_own).all():
        frame = frame.assign(dataset=frame["run_dataset"], model=frame["run_model"])
    picked = frame[frame["chosen"]].groupby(["dataset", "model", "method", "setting"], sort=False)["candidate"]
    words = picked.agg(lambda values: " | ".join(dict.fromkeys(values)))
    return words.unstack("setting").fillna("")


def readme() -> pd.DataFrame:
    """Results of one run, of seed 0, in the README of ATP's public code, under the names of its printed cells (``table`` is README): the
    nearest there is to a run of seed 0. They are not in the paper, and no table of it is filled or judged with them."""
    frame = pd.read_csv(files(__package__) / "readme.csv", dtype=str, keep_default_na=False)
    return frame.assign(mean_value=frame["mean"].astype(float))


def of_seed_0(p: Parameters) -> list[Block]:
    if (main := about_data(p.dataset)).own:
        return [Block([], {}, absent=f"the authors' run was not on {main.shown}")]
    if 0 not in p.seeds:
        return [Block([], {}, absent="the authors' run has seed 0, which the parameter seeds leaves out")]
    return [whole(p, block, names=("NoAdapt", *OWN)) for block in asked(p, README)]


def beside_readme(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Our run of seed 0 beside the authors', cell by cell."""
    place = ["dataset", "model", "setting", "method", "column"]
    authors = readme().rename(columns={"mean_value": "authors"})[[*place, "authors"]]
    both = authors.merge(scores(p, rows[rows["seed"] == 0]).rename(columns={"mean": "ours"}), on=place)
    both = both.assign(gap=both["ours"] - both["authors"])
    return both[["dataset", "model", "setting", "method", "authors", "ours", "gap", "run_dataset", "run_model", "status"]]
