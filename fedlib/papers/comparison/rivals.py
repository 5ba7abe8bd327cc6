"""How far the methods of the comparison are ahead of a rival that one names, from the files of one or several runs.

Intervals and tests are those of ``significance.paired`` over clients and seeds, of a method's lead over the rival in place of its gain over
no adaptation. One training tells nothing of the next, and the files do not tell which answers were right where all clients have one test:
interval and p-value are not known then.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedlib.papers.comparison.ranking import LEAST, MEAN, OVER, replicated
from fedlib.papers.comparison.significance import BASELINES, interval_of, two_sided
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
    ``against``: ``difference`` in points, with its 95 % interval ``low`` to ``high``, two-sided ``p`` (NaN: not known, or under ``LEAST``
    images) and ``p_holm``, corrected for the methods of the column; numbers of ``clients`` (per seed), ``seeds`` that both have and
    ``images``, whether these are first images alone (``cut``), what was run, and the difference in every seed (``seed_0``, ...). each: see
    ``by_client``. Raises ValueError for an unknown method, for no adaptation, and where no other method can be paired."""
    if against in BASELINES:
        raise ValueError(f"how far methods are ahead of no adaptation ({against}) is in tests.csv: take a method")
    check_name(against, each["method"].unique(), "method")
    parts = []
    for protocol, own in each.groupby("protocol", sort=False):
        rival = own[own["method"] == against]
        others = own[own["method"] != against].merge(rival[[*KIND]].drop_duplicates())
        columns = list(own["column"].unique())
        tests = {column: [column] for column in columns} | ({MEAN: columns} if len(columns) > 1 else {})
        for column, averaged in tests.items():
            leads = [_lead(part, rival, averaged) for _, part in others.groupby("method", sort=False)]
            frame = pd.DataFrame([{"protocol": protocol, "column": column} | lead for lead in leads if lead])
            if len(frame):
                frame.insert(frame.columns.get_loc("p") + 1, "p_holm", holm(frame["p"].to_numpy(float)))
                parts.append(frame)
    if not parts:
        raise ValueError(f"no other method ran on the network and images of {against}")
    return pd.concat(parts, ignore_index=True)


def _lead(own: pd.DataFrame, rival: pd.DataFrame, columns: list[str]) -> dict:
    """One row on the mean over ``columns``, empty where no seed has both methods on all of them."""
    both = own.merge(rival[[*TEST, "accuracy", "method"]], on=TEST, suffixes=("", "_against"))
    both = both[both["column"].isin(columns)].assign(lead=lambda frame: frame["accuracy"] - frame["accuracy_against"])
    wide = both.pivot_table(index="seed", columns=["client", "column"], values="lead").dropna()
    if wide.empty or both["column"].nunique() < len(columns):
        return {}
    scores = wide.T.groupby("client").mean().T
    means, errors, df = replicated(scores.to_numpy()[..., None], own["protocol"].iloc[0], OVER[len(scores) > 1], draws=1000)
    known, images = len(scores) > 1, own.loc[own["column"].isin(columns), "images"].min()
    low, high = (float(end[0]) if known else np.nan for end in interval_of(means))
    p = float(two_sided(means[0], errors, df)[0]) if known and images >= LEAST else np.nan
    row = {"method": own["method"].iloc[0], "against": rival["method"].iloc[0], "difference": means[0][0], "low": low, "high": high, "p": p}
    row |= {"clients": scores.shape[1], "seeds": len(scores), "images": images, "cut": own["cut"].iloc[0]}
    row |= {"run_dataset": " and ".join(both["run_dataset"].unique()), "run_model": own["run_model"].iloc[0]}
    row |= {"status": "stand-in" if both["status"].eq("stand-in").any() else "ok"}
    return row | {f"seed_{seed}": value for seed, value in scores.mean(axis=1).items()}
