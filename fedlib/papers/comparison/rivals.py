"""How far the methods of the comparison are ahead of a rival that one names, from the files of a run: ``accuracies.csv``, ``tests.csv``.

Intervals and tests are those of ``significance.paired``, of a method's lead over the rival in place of its gain over no adaptation. The
files do not tell which answers were right, nor which images clients share: where all have one test, and for a single training of clients
that every seed draws anew, interval and p-value are therefore not known.
"""

import numpy as np
import pandas as pd

from fedlib.papers.comparison.ranking import LEAST, MEAN, OVER, REDRAWN, replicated
from fedlib.papers.comparison.significance import BASELINES, interval_of, two_sided
from fedlib.published.pairs import holm
from fedlib.tools.names import check_name

RAN = ["run_dataset", "run_model", "status"]


def rivals(accuracies: pd.DataFrame, tests: pd.DataFrame, against: str) -> pd.DataFrame:
    """One row per protocol, test column (and ``mean``, every client's over its columns) and method on the network and images of
    ``against``: ``difference`` in points, with its 95 % interval ``low`` to ``high``, two-sided ``p`` (NaN: not known, or under ``LEAST``
    images) and ``p_holm``, corrected for the methods of the column; numbers of ``clients`` (per seed), ``seeds`` that both have and
    ``images`` (different ones within a seed), what was run, and the difference in every seed (``seed_0``, ...). accuracies: of
    ``grid.accuracies``; tests: of ``significance.cells``. Raises ValueError for an unknown method, and for no adaptation."""
    if against in BASELINES:
        raise ValueError(f"how far methods are ahead of no adaptation ({against}) is in tests.csv: take a method")
    check_name(against, tests["method"].unique(), "method")
    parts = []
    for (protocol, column), cells in tests.groupby(["protocol", "column"], sort=False):
        own = accuracies[(accuracies["protocol"] == protocol) & ((accuracies["column"] == column) | (column == MEAN))]
        alike = cells.merge(cells.loc[cells["method"] == against, ["images", "run_model"]])
        found = [_lead(own, cell, against) for cell in alike[alike["method"] != against].itertuples()]
        frame = pd.DataFrame([row for row in found if row])
        if len(frame):
            frame.insert(frame.columns.get_loc("p") + 1, "p_holm", holm(frame["p"].to_numpy(float)))
            parts.append(frame)
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _lead(own: pd.DataFrame, cell, against: str) -> dict:
    """One row, empty where no seed has both methods."""
    lead = own[cell.method] - own[against]
    both = ~own["seed"].isin(own.loc[lead.isna(), "seed"])
    each = lead[both].groupby([own["seed"], own["client"]]).mean().unstack("client")
    if each.empty:
        return {}
    means, errors, df = replicated(each.to_numpy()[..., None], cell.protocol, over := OVER[len(each) > 1], draws=1000)
    known = over != OVER[0] or cell.protocol not in REDRAWN
    low, high = (float(end[0]) if known else np.nan for end in interval_of(means))
    p = float(two_sided(means[0], errors, df)[0]) if known and cell.images >= LEAST else np.nan
    row = {"protocol": cell.protocol, "column": cell.column, "method": cell.method, "against": against}
    row |= {"difference": means[0][0], "low": low, "high": high, "p": p}
    row |= {"clients": each.shape[1], "seeds": len(each), "images": cell.images}
    return row | {name: getattr(cell, name) for name in RAN} | {f"seed_{seed}": value for seed, value in each.mean(axis=1).items()}
