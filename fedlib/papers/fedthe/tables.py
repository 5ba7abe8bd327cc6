"""FedTHE's printed tables: what runs for every printed block, and how the rows become cells."""

from collections.abc import Callable, Sequence

import pandas as pd

from fedlib.common import average, labelled, with_mean
from fedlib.data import about as about_data
from fedlib.paper import Block
from fedlib.papers.fedthe.settings import COLUMNS, Parameters, setting
from fedlib.protocols.brfl import COLUMNS as STREAMS
from fedlib.published import cells

# Further rows, which the print does not have: what some names say where the published code differs, and what an earlier code does.
FURTHER = {
    "T1": ("APFL (paper)", "Ditto (prox)", "kNN-Per (oracle)"),
    "T4": ("APFL (paper)", "Ditto (prox)"),
    **dict.fromkeys(("T3", "T13"), ("TSA (augmented)", "FedTHE (earlier code)", "FedTHE+ (earlier code)")),
    **dict.fromkeys(("T2", "T5", "T6", "T7"), ("MEMO-P (paper)",)),
}


def printed(name: str, methods: Sequence[str] | None = None, labels: Sequence[str] = ()) -> Callable[[Parameters], list[Block]]:
    """The blocks of the table ``name``, one for each printed data set and network, with its settings in the order of the print.

    methods (None: those of the table, further ones and the user's), labels: only these methods and settings.
    """
    table = cells("fedthe", name)

    def blocks(p: Parameters) -> list[Block]:
        columns = p.has(column for column in table["column"].unique() if column != "average")
        entangled = {"columns": STREAMS} if "corrupted_ooc" in columns else {}
        request = {"columns": columns, "costly_samples": p.samples(name)}
        names = (*table["method"].unique(), *FURTHER.get(name, ()), *p.own) if methods is None else methods
        found = []
        for (dataset, model), all_labels in table.groupby(["dataset", "model"], sort=False)["setting"].unique().items():
            absent = p.left_out(dataset) if dataset == "imagenet32" else ""
            chosen = [label for label in all_labels if p.asks_for(label) and label in (labels or all_labels) and not absent]
            settings = [setting(p, label, model=model, dataset=dataset, **entangled) for label in chosen]
            recipes = p.recipes(names, model, dataset)
            found.append(Block(settings, recipes, request, dataset, model, absent, optional=dataset == "imagenet32"))
        return found

    return blocks


def scores(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Mean and deviation over seeds of every cell, and the mean of a method's columns as the column ``average``, with what was run.

    The print's deviation of that column is over the five tests; here it is over seeds, as everywhere.
    """
    parts = []
    for (dataset, model), block in rows.groupby(["printed_dataset", "printed_model"], sort=False):
        parts.append(labelled(average(with_mean(block, "average")), block, (dataset,)).assign(dataset=dataset, model=model))
    return pd.concat(parts, ignore_index=True)


def lacking(p: Parameters) -> dict[str, str]:
    """Why columns are absent that the print has."""
    shift = about_data(p.dataset).lacks("natural shift")
    return {"natural": shift} if shift else {}


def mean_of_four(numbers: pd.DataFrame) -> pd.DataFrame:
    """For each row of a table: the printed and our mixture beside the mean of the other four columns.

    For all methods without an optimised weight the printed mixture *is* that mean to rounding: an earlier public version of the code
    (LINs-lab/FedTHE, 699d55f, ``base_worker.py``) computes it so, and measures a stream for the others.
    """
    by = ["setting", "method"]
    wide = numbers.pivot_table(index=by, columns="column", values=["published_mean", "mean"], sort=False)
    result = pd.DataFrame(index=wide.index)
    for side, name in (("published_mean", "published"), ("mean", "ours")):
        if side in wide:
            parts = wide[side].reindex(columns=COLUMNS)
            result[f"{name} mixture"] = parts["mixture"]
            result[f"{name} mean of four"] = parts[list(COLUMNS[:4])].mean(axis=1, skipna=False)
    return result.reset_index()
