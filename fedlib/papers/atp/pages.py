"""What ATP's notebook shows: every table and figure by name, as far as the parameters ask for it, and its result files."""

from dataclasses import fields
from importlib.resources import files

import pandas as pd
from matplotlib.figure import Figure

from fedlib.core import Benchmark, Recipe
from fedlib.experiment import personal_parts
from fedlib.papers.atp import plots as charts
from fedlib.papers.atp import settings as atp
from fedlib.papers.atp import studies as atp_studies
from fedlib.papers.atp import toy as atp_toy
from fedlib.papers.atp.settings import BLOCKS, LEFT_OUT, NOT_ASKED, Parameters
from fedlib.published.reading import Note, Page, summary
from fedlib.results import write_figure, write_numbers, write_table

PRINTED = {"T1": ("cifar10",), "T2": ("digits5", "pacs"), "T5": ("cifar10_cnn", "cifar100")}
STUDIES = {
    "T3": atp_studies.cross_shift,
    "T4": atp_studies.ablation,
    "T6": atp_studies.outdated,
    "T7": atp_studies.global_training,
}
# Figures that show ATP itself, which the parameter methods can leave out.
LEARNED = ("F4", "F5", "F8")
FIGURES = {
    "F2": (atp_studies.trade_off, charts.trade_off, "Figure 2"),
    "F3": (atp_studies.module_sets, charts.module_sets, "Figure 3: fixed rates for one set of modules, final model"),
    "F4": (atp_studies.rates_by_group, charts.rates, "Figure 4: rates learned on the final model"),
    "F5": (atp_studies.sizes, charts.sizes, "Figure 5: hybrid shift"),
    "F8": (atp_studies.loss_curves, charts.losses, "Figure 8: hybrid shift, final model"),
    "F9": (lambda p: atp_toy.histograms(), charts.toy, "Figure 9: toy example, accuracy of 200,000 drawn samples"),
}


def rows(p: Parameters, name: str) -> dict[str, pd.DataFrame]:
    """Block -> measured rows of T1, T2 or T5; none where the table is not asked for."""
    return {block: atp.measure(p, block) for block in PRINTED[name]} if p.asks(name) else {}


def table(p: Parameters, name: str) -> pd.DataFrame:
    """Contract frame of one table."""
    if not p.asks(name):
        return atp.table(name, {}, NOT_ASKED)
    if name in PRINTED:
        return atp.table(name, rows(p, name), p=p)
    return atp.study(name, *STUDIES[name](p))


def publish(p: Parameters, frame: pd.DataFrame, about: str) -> Page | Note:
    """Write the result files of a table that was asked for, and return it laid out for reading."""
    name = frame["table"].iloc[0]
    if not p.asks(name):
        return Note(f"not run: {NOT_ASKED}")
    write_table(frame, p.folder("atp"), name)
    if frame["mean"].isna().all():
        return Note(frame["status"].iloc[0])
    print(about)
    return summary(frame)


def figure(p: Parameters, name: str) -> pd.DataFrame:
    """Numbers behind one figure; none where it is not asked for or ``methods`` leaves out what it shows."""
    if not p.asks(name) or (name in LEARNED and not atp_studies.wanted(p, *atp_studies.OWN)):
        return pd.DataFrame()
    return FIGURES[name][0](p)


def caption(p: Parameters, name: str, about: str) -> str:
    """A figure's title with what was run, and how much of each stream was read where that is a part."""
    if name == "F9":
        return FIGURES[name][2]
    first = atp_studies.first_images(p) if name in ("F3", "F8") else None
    read = f", first {first} images of each stream" if first else ", all images of each stream" if name in ("F3", "F8") else ""
    return f"{FIGURES[name][2]}{read}: {about}"


def draw(p: Parameters, name: str, numbers: pd.DataFrame, about: str) -> str:
    """Draw a figure that has numbers and write its files; returns its caption."""
    if numbers.empty:
        return f"not run: {NOT_ASKED if not p.asks(name) else LEFT_OUT}"
    title, chart = caption(p, name, about), FIGURES[name][1]
    picture: Figure = chart(numbers, atp_studies.groups(p), title) if name == "F4" else chart(numbers, title)
    write_figure(picture, numbers, p.folder("atp"), name, title)
    return title


def corruptions(p: Parameters, benchmark: Benchmark) -> str:
    """Figure 7, which shows an image and no result."""
    if not p.asks("F7"):
        return f"not run: {NOT_ASKED}"
    pictures, changes = atp_studies.corrupted_pictures(benchmark)
    title = f"Figure 7: one image under all corruptions, {benchmark.images}"
    write_figure(charts.corruptions(pictures, 15, title), changes, p.folder("atp"), "F7", title)
    return title


def hyperparameters(p: Parameters) -> pd.DataFrame:
    """Every candidate of every tuned baseline with its accuracy on the source clients' validation parts, and which one was chosen.

    Written to ``hyperparameters.csv``. One row per block, setting, method, seed, model (``Request.rounds``) and candidate.
    """
    found = []
    for block in [block for name, blocks in PRINTED.items() if p.asks(name) for block in blocks]:
        tuned = {name: recipe for name, recipe in p.recipes(block).items() if hasattr(recipe.adapt, "candidates")}
        for model in p.last if tuned else ():
            try:
                parts = personal_parts(p.settings(block), tuned, p.seeds, round=model, **p.execution())
            except FileNotFoundError:  # the table says that its images are absent
                continue
            for (setting, method, seed), part in parts.items():
                for k, (words, value) in enumerate(zip(described(tuned[method]), part["shared.accuracies"].tolist(), strict=True)):
                    where = {"dataset": BLOCKS[block].dataset, "model": BLOCKS[block].model, "setting": setting, "method": method}
                    where |= {"run_dataset": p.data(block), "run_model": p.network(block), "seed": seed, "state": model}
                    found.append(where | {"candidate": words, "validation": value, "chosen": k == int(part["shared.choice"])})
    frame = pd.DataFrame(found)
    if len(frame):
        write_numbers(frame, p.folder("atp"), "hyperparameters")
    return frame


def described(recipe: Recipe) -> list[str]:
    """A tuned recipe's candidates in words: the fields in which they differ."""
    candidates = recipe.adapt.candidates
    names = [f.name for f in fields(candidates[0])]
    varying = [name for name in names if len({getattr(candidate, name) for candidate in candidates}) > 1] or names[:1]
    return [", ".join(f"{name}={getattr(candidate, name)}" for name in varying) for candidate in candidates]


def chosen(frame: pd.DataFrame) -> pd.DataFrame | str:
    """What was chosen, settings across; several seeds and models in one cell."""
    if frame.empty:
        return "not run: no tuned method is part of this run"
    picked = frame[frame["chosen"]].groupby(["dataset", "model", "method", "setting"], sort=False)["candidate"]
    words = picked.agg(lambda values: " | ".join(dict.fromkeys(values)))
    return words.unstack("setting").fillna("")


def readme() -> pd.DataFrame:
    """Results of one run, of seed 0, in the README of ATP's public code, under the names of its printed cells (``table`` is README): the
    nearest there is to a run of seed 0. They are not in the paper, and no table of it is filled or judged with them."""
    frame = pd.read_csv(files(__package__) / "readme.csv", dtype=str, keep_default_na=False)
    return frame.assign(mean_value=frame["mean"].astype(float))


def beside_readme(p: Parameters) -> pd.DataFrame:
    """Our run of seed 0 beside the authors' (README of their code), for the blocks of T1 and T5 that ran; written to ``readme.csv``.

    Columns dataset, model, setting, method, authors, ours, gap, run_dataset, run_model, status.
    """
    parts = []
    for block in [block for name, block in (("T1", "cifar10"), ("T5", "cifar10_cnn")) if p.asks(name)]:
        names = atp_studies.wanted(p, "NoAdapt", *atp_studies.OWN)
        if 0 in p.seeds and names:
            measured = atp.measure(p, block, names)
            parts.append(atp.block_cells(block, measured[measured["seed"] == 0]))
    if not parts:
        return pd.DataFrame()
    place = ["dataset", "model", "setting", "method", "column"]
    authors = readme().rename(columns={"mean_value": "authors"})[[*place, "authors"]]
    both = authors.merge(pd.concat(parts).rename(columns={"mean": "ours"}), on=place)
    both = both.assign(gap=both["ours"] - both["authors"])
    both = both[["dataset", "model", "setting", "method", "authors", "ours", "gap", "run_dataset", "run_model", "status"]]
    write_numbers(both, p.folder("atp"), "readme")
    return both
