"""FedTHE's printed tables: for every printed block the setting of its words, all methods that the table prints, and the contract frame."""

from collections.abc import Sequence

import pandas as pd

from fedlib.data import about as about_data
from fedlib.experiment import Setting, run
from fedlib.papers.common import NONE, average, labelled, with_mean, with_refused
from fedlib.papers.fedthe.settings import COLUMNS, NOT_ASKED, REAL, Parameters, about, setting
from fedlib.protocols.brfl import COLUMNS as STREAMS
from fedlib.published import cells
from fedlib.published.compare import REQUIRED, fill
from fedlib.published.reading import Note, Page, summary
from fedlib.results import write_table

BLOCK = ["dataset", "model"]
# Further rows, which the print does not have: what some names say where the published code differs.
FURTHER = {
    "T1": ("APFL (paper)", "Ditto (prox)", "kNN-Per (oracle)"),
    "T4": ("APFL (paper)", "Ditto (prox)"),
    **dict.fromkeys(("T3", "T13"), ("TSA (augmented)",)),
    **dict.fromkeys(("T2", "T5", "T6", "T7"), ("MEMO-P (paper)",)),
}


def settings(p: Parameters, name: str) -> dict[tuple[str, str], list[Setting]]:
    """What runs for the table ``name``: (printed data set, printed model) -> its settings, in the order of the print.

    A block is left out with ``imagenet32 = "none"``, a setting by ``alphas``.
    """
    printed = cells("fedthe", name)
    entangled = {"columns": STREAMS} if "corrupted_ooc" in set(printed["column"]) else {}
    return {
        (dataset, model): [setting(p, label, model=model, dataset=dataset, **entangled) for label in labels if p.allows(label)]
        for (dataset, model), labels in printed.groupby(BLOCK, sort=False)["setting"].unique().items()
        if dataset != "imagenet32" or p.imagenet32 != NONE
    }


def rows(p: Parameters, name: str, *, methods: Sequence[str] = (), labels: Sequence[str] = ()) -> tuple[pd.DataFrame, str]:
    """Measured rows of the table ``name`` with its printed data set and model, and why those of a missing data set are not among them.

    methods, labels: only these methods and settings, whether ``tables`` asks for the table or not (empty: all).
    """
    printed = cells("fedthe", name)
    columns = p.has(column for column in printed["column"].unique() if column != "average")
    parts, reason = [], "left out by the parameters methods, alphas or imagenet32"
    for (dataset, model), block in settings(p, name).items():
        chosen = [s for s in block if s.label in (labels or (s.label,))]
        recipes = p.recipes(methods or (*printed["method"].unique(), *FURTHER.get(name, ()), *p.own), model, dataset)
        if not chosen or not recipes:
            continue
        try:
            request = p.request(columns=columns, costly_samples=p.samples(name))
            part = run(chosen, recipes, p.seeds, request=request, **p.execution())
        except FileNotFoundError as error:
            if dataset != "imagenet32":
                raise
            reason = p.missing(error)
            continue
        parts.append(part.assign(printed_dataset=dataset, printed_model=model))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(), reason


def measured(rows: pd.DataFrame, real: Sequence[str] = REAL) -> pd.DataFrame:
    """Mean and deviation over seeds of every cell, and the mean of a method's columns as the column ``average``, with what was run.

    The print's deviation of that column is over the five tests; here it is over seeds, as everywhere.
    """
    parts = []
    for (dataset, model), block in rows.groupby(["printed_dataset", "printed_model"], sort=False):
        frame = labelled(average(with_mean(block, "average")), block, real)
        parts.append(frame.assign(dataset=dataset, model=model))
    return pd.concat(parts, ignore_index=True)


def table(p: Parameters, name: str) -> pd.DataFrame:
    """Contract frame of the table ``name``, run as far as the cache does not hold it."""
    found, reason = rows(p, name) if p.asks(name) else (pd.DataFrame(), NOT_ASKED)
    frame = measured(found) if len(found) else pd.DataFrame(columns=[*REQUIRED, "dataset", "model"])
    printed = cells("fedthe", name)
    key = ["dataset", "model", "setting", "column"]
    further = frame["method"].isin((*FURTHER.get(name, ()), *p.own))
    kept = [frame[~further].merge(printed[[*key, "method"]]), frame[further].merge(printed[key].drop_duplicates())]
    found_cells = pd.concat(kept, ignore_index=True)
    for dataset, model in settings(p, name) if p.asks(name) else ():
        found_cells = with_refused("fedthe", name, found_cells, p.refused(p.network(model, dataset)), dataset=dataset, model=model)
    return fill("fedthe", name, found_cells, reason=reason, reasons=_reasons(p, printed))


def _reasons(p: Parameters, printed: pd.DataFrame) -> dict[str, str]:
    absent = set(printed["method"]) - set(p.recipes(printed["method"].unique())) - set(p.methods or ())
    shift = about_data(p.dataset).lacks("natural shift")
    lacking = {"natural": shift} if shift else {}
    return lacking if p.methods is not None else lacking | dict.fromkeys(absent, "the kit has no recipe of this name")


def publish(p: Parameters, frame: pd.DataFrame) -> Page | Note:
    """Write the result files of a table that was asked for, say what was run, and return it laid out for reading."""
    name = frame["table"].iloc[0]
    if not p.asks(name):
        return Note(f"not run: {NOT_ASKED}")
    write_table(frame, p.folder("fedthe"), name)
    run_settings = [s for part in settings(p, name).values() for s in part]
    if frame["mean"].isna().all():
        return Note(frame["status"].iloc[0])
    costly = any(recipe.costly for recipe in p.recipes(frame["method"].unique()).values())
    print(about(p, run_settings, p.samples(name) if costly else None))
    return summary(frame)


def mean_of_four(table: pd.DataFrame) -> pd.DataFrame:
    """For each row of a table: the printed and our mixture beside the mean of the other four columns.

    For all methods without an optimised weight the printed mixture *is* that mean to rounding, which no stream would give.
    """
    by = ["setting", "method"]
    wide = table.pivot_table(index=by, columns="column", values=["published_mean", "mean"], sort=False)
    result = pd.DataFrame(index=wide.index)
    for side, name in (("published_mean", "published"), ("mean", "ours")):
        if side in wide:
            parts = wide[side].reindex(columns=COLUMNS)
            result[f"{name} mixture"] = parts["mixture"]
            result[f"{name} mean of four"] = parts[list(COLUMNS[:4])].mean(axis=1, skipna=False)
    return result.reset_index()
