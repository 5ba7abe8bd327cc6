"""How far the methods of the comparison are ahead of a rival that one names, from the files of one or several runs.

Intervals and tests are those of ``significance.paired`` over clients and seeds, of a method's lead over the rival in place of its gain over
no adaptation. One training tells nothing of the next, and the files do not tell which answers were right where all clients have one test:
interval and p-value are not known then.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedlib.papers.comparison.ranking import OVER
from fedlib.papers.comparison.significance import BASELINES, paired_by_seeds, with_mean_column
from fedlib.published.pairs import holm
from fedlib.tools.names import check_name

TEST = ["protocol", "column", "seed", "client"]
IMAGES = ["n", "run_dataset", "status"]  # of a client's test
KIND = ["run_model", "cut"]  # of a method on a protocol


def by_client(accuracies: pd.DataFrame, tests: pd.DataFrame) -> pd.DataFrame:
    """One row per method, test column, seed and client of a run: ``accuracy``, ``images`` (different ones of the column), what was run,
    and whether the method was ``cut``, saw fewer images of some test than others of the protocol. accuracies: of ``grid.accuracies``;
    tests: of ``significance.cells``, whose methods alone have rows."""
    most = tests.groupby(["protocol", "column"])["images"].transform("max")
    cut = (tests["images"] < most).groupby([tests["protocol"], tests["method"]]).transform("any")
    cells = tests.assign(cut=cut)[["protocol", "column", "method", "images", *KIND]]
    long = accuracies.melt([*TEST, *IMAGES], var_name="method", value_name="accuracy").dropna(subset="accuracy")
    return long.merge(cells, on=["protocol", "column", "method"])


def joined(runs: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """``by_client`` of several runs as of one: of what several have, the first's, and of its methods no seed that a later run tested on
    another network, or on fewer images. Raises ValueError where a client's test images are not the same."""
    whole = pd.concat(runs, ignore_index=True)
    differ = whole.groupby(TEST, sort=False)[IMAGES].nunique().max(axis=1) > 1
    if differ.any():
        protocol, column, seed, client = differ.idxmax()
        what = f"client {client} of seed {seed} has other images on {protocol}'s {column} in each"
        raise ValueError(f"the runs do not go together: {what} (one of costly methods alone knows the first images only: add FedAvg to it)")
    first = whole.groupby(["protocol", "method"], sort=False)[KIND].transform("first")
    return whole[(whole[KIND] == first).all(axis=1)].drop_duplicates([*TEST, "method"], ignore_index=True)


def rivals(each: pd.DataFrame, against: str) -> pd.DataFrame:
    """One row per protocol, test column (and ``mean``, every client's over its columns) and method on the network and images of
    ``against``: ``difference`` in points, with its 95 % interval ``low`` to ``high``, two-sided ``p`` (NaN: not known, or on too few
    images) and ``p_holm``, corrected for the methods of the column; numbers of ``clients`` (per seed), ``seeds`` that both have and
    ``images``, whether these are first images alone (``cut``), what was run, and the difference in every seed (``seed_0``, ...). each: see
    ``by_client``. Raises ValueError for an unknown method, for no adaptation, and where no other method can be paired."""
    if against in BASELINES:
        raise ValueError(f"how far methods are ahead of no adaptation ({against}) is in tests.csv: take a method")
    check_name(against, each["method"].unique(), "method")
    whose = [*TEST, *KIND]
    leads = each.merge(each.loc[each["method"] == against, [*whose, "accuracy"]], on=whose, suffixes=("", "_against"))
    leads = leads[leads["method"] != against].rename(columns={"protocol": "setting"})
    if leads.empty:
        raise ValueError(f"no other method ran on the network and images of {against}")
    leads = with_mean_column(leads.assign(accuracy=leads["accuracy"] - leads["accuracy_against"]))
    parts = []
    for (protocol, column), part in leads.groupby(["setting", "column"], sort=False):
        has = part.groupby(["method", "seed", "client"])["accuracy"].transform("size")
        part = part[has == has.max()]  # a mean over fewer tests is another quantity
        methods = part.groupby("method", sort=False)
        frame = paired_by_seeds(part, protocol, methods["images"].min()).set_index("method")
        frame.loc[frame["over"] == OVER[0], ["low", "high", "p"]] = np.nan
        frame["p_holm"] = holm(frame["p"].to_numpy())
        ran = {name: (name, "first") for name in ("cut", "run_dataset", "run_model")} | {"status": ("status", "max")}  # stand-in before ok
        told = methods.agg(clients=("client", "nunique"), seeds=("seed", "nunique"), **ran)
        by_seed = part.groupby(["method", "seed"])["accuracy"].mean().unstack().add_prefix("seed_")
        frame = frame[["gain", "low", "high", "p", "p_holm", "images"]].rename(columns={"gain": "difference"}).join(told).join(by_seed)
        parts.append(frame.reset_index().assign(protocol=protocol, column=column, against=against))
    found = pd.concat(parts, ignore_index=True)
    first = ["protocol", "column", "method", "against"]
    return found[[*first, *found.columns.difference(first, sort=False)]]
