"""What the comparison answers: under which shift a method helps, what it costs, and which one to take.

*A shift* is one or more test columns that mean the same (``SHIFTS``); "own" images are of the few classes that a client has trained on. A
method *helps* under it if its corrected test says so on every one of these columns that has enough images; *hurts* is the reverse; *mixed*
is help on one and harm on another; all else is *undecided*.

*Use this when* (``advice``): for every shift and situation, of the methods that help there, were tested on as many columns and images as
any other and can be fed in the situation, the one with the largest mean gain leads. Of it and those that no corrected paired test puts
behind it (Holm over its rivals, and for its having been chosen by these data: over all pairs and the shift's columns; with few trainings
these are nearly all), what takes at most ``AS_FAST`` times as long as the fastest counts as fast as it, and of these the one with the
largest gain is taken. Where none helps the advice is not to adapt. No other judgement enters.
"""

import numpy as np
import pandas as pd

from fedlib.papers.comparison.cost import seconds_on
from fedlib.papers.comparison.ranking import LEAST, LEVEL, overs, repeats_of, replicated, scores_of, shared_images
from fedlib.papers.comparison.significance import FEW, HELPS, HURTS, UNDECIDED, two_sided
from fedlib.published.pairs import holm

MIXED, NOTHING = "mixed", "no adaptation"
# Between the methods that take up to 2.7 times as long as the fastest and those that take 5.3 times and more: no choice hangs on timings.
AS_FAST = 4.0
SHIFTS = {
    "own images": (("BRFL", "original"), ("BTGFL", "original_ind")),
    "own, corrupted": (("BRFL", "corrupted"), ("BTGFL", "shifted_ind")),
    "own, natural": (("BRFL", "natural"), ("FedICON attribute", "natural")),
    "others' images": (("BRFL", "ooc"), ("BTGFL", "original_exd")),
    "others', corrupted": (("BTGFL", "shifted_exd"),),
    "mixture": (("BRFL", "mixture"),),
    "mixture, half others'": (("BTGFL", "synthetical"),),
    "own domain, corrupted": (("FedICON covariate", "corrupted"),),
    "unseen domain": (("FedICON domain", "unseen domain"),),
    "new client: corruption": (("TTPFL feature", "test"),),
    "new client: labels": (("TTPFL label", "test"),),
    "new client: both": (("TTPFL hybrid", "test"),),
    "new client: few classes": (("UPFL new clients", "test"),),
}
# Situation -> which methods it can feed, by their row of ``fedlib.papers.comparison.needs`` and whether the shift is one of new clients, on
# which nothing starts from a tuned model.
SITUATIONS = {
    "nothing is missing": lambda row, new: True,
    "no labels on the client": lambda row, new: row.labels == "" or (new and row.labels == "used"),
    "images come one by one": lambda row, new: row.together == "one",
    "the model is trained already": lambda row, new: not row.training,
    "batch norm is left alone": lambda row, new: not row.batch_norm,
}


def verdicts(cells: pd.DataFrame) -> pd.DataFrame:
    """One row per shift and method that ran under it: ``gain`` (mean over its tested columns, over all where none has enough images),
    numbers of columns tested, that help and that hurt, n (test images behind the gain, each test's added), verdict, what was run. Undecided
    is what lacks a column on which others were tested. cells: of ``significance.cells``."""
    rows = []
    for shift, places in SHIFTS.items():
        inside = cells[[place in places for place in zip(cells["protocol"], cells["column"], strict=True)]] if len(cells) else cells
        columns = inside.loc[inside["verdict"] != FEW, ["protocol", "column"]].drop_duplicates() if len(inside) else inside
        for method, own in inside.groupby("method", sort=False) if len(inside) else ():
            tested = own[own["verdict"] != FEW]
            lacks = len(columns.merge(own, on=["protocol", "column"])) < len(columns)
            helps, hurts = (tested["verdict"] == HELPS).sum(), (tested["verdict"] == HURTS).sum()
            everywhere = HELPS if helps == len(tested) else HURTS if hurts == len(tested) else UNDECIDED
            word = FEW if tested.empty else MIXED if helps and hurts else UNDECIDED if lacks else everywhere
            counted = own if tested.empty else tested
            counts = {"columns": len(tested), "helps": helps, "hurts": hurts, "n": counted["n"].sum(), "n_seeds": counted["n_seeds"].max()}
            ran = {name: " and ".join(dict.fromkeys(counted[name])) for name in ("run_dataset", "run_model", "status")}
            rows.append({"shift": shift, "method": method, "gain": counted["gain"].mean()} | counts | {"verdict": word} | ran)
    return pd.DataFrame(rows)


def not_behind(cells: pd.DataFrame, gains: pd.DataFrame, shift: str, leader: str, rivals: list[str]) -> list[str]:
    """Those of ``rivals`` that no paired test puts behind ``leader`` on any column of ``shift`` on which both have enough images.
    cells: of ``significance.cells``; gains: of ``grid.gains``.

    Any of K methods could have come to lead, with a family of tests of its own, and one column suffices to be behind: each p-value counts
    K / 2 times, since the leader is ahead in its pairs by choice, for every column."""
    behind: set[str] = set()
    for protocol, column in SHIFTS[shift]:
        own = gains[(gains["setting"] == protocol) & (gains["column"] == column)]
        enough = set(cells.loc[(cells["protocol"] == protocol) & (cells["column"] == column) & (cells["verdict"] != FEW), "method"])
        present = [method for method in rivals if method in enough]
        if not present or leader not in enough:
            continue
        methods = [leader, *present]
        scores, images = (of(own[own["method"].isin(methods)], methods) for of in (scores_of, shared_images))
        lead, on_images = (None if of is None else of[..., :1] - of[..., 1:] for of in (scores, images))
        replicates, errors, df = replicated(lead, protocol, overs(own)[-1], draws=1000, images=on_images, repeats=repeats_of(own))
        p = holm(two_sided(replicates[0], errors, df)) * len(methods) / 2 * len(SHIFTS[shift])
        behind |= {m for m, value, ahead in zip(present, p, replicates[0], strict=True) if value <= 1 - LEVEL and ahead > 0}
    return [method for method in rivals if method not in behind]


def advice(verdict: pd.DataFrame, cells: pd.DataFrame, gains: pd.DataFrame, needs: pd.DataFrame, cost: pd.DataFrame) -> pd.DataFrame:
    """One row per shift and situation: ``use`` and its gain and seconds per 1,000 images, the ``leader`` and its gain, who helps and is
    ``not_behind`` it, and how many methods that the situation can feed were tested. cost: of ``cost.cost``, or empty; what was not timed
    on a shift's protocols counts as the slowest."""
    rows = []
    for shift, own in verdict.groupby("shift", sort=False) if len(verdict) else ():
        seconds = seconds_on(cost, [protocol for protocol, _ in SHIFTS[shift]])
        # A mean over fewer columns than others have is another quantity: it may leave out the hard ones. On the first images of the streams
        # a method may lead by luck, and hardly a test would tell it from others.
        whole = own[own["columns"] == max(1, own["columns"].max())]
        whole = whole[whole["n"] == whole["n"].max()]
        for situation, fits in SITUATIONS.items():
            fed = {row.method for row in needs.itertuples() if fits(row, shift.startswith("new client"))}
            there = whole[whole["method"].isin(fed)].sort_values("gain", ascending=False, kind="stable")
            helping = there[there["verdict"] == HELPS].set_index("method")["gain"]
            row = {"shift": shift, "situation": situation, "use": NOTHING, "gain": 0.0, "seconds": seconds.get("FedAvg", np.nan)}
            row |= {"leader": "", "leader_gain": np.nan, "not_behind": "", "tested": len(there)}
            if len(helping):
                leader, *rivals = helping.index
                even = not_behind(cells, gains, shift, leader, rivals)
                limit = AS_FAST * min(seconds.get(method, np.inf) for method in [leader, *even])
                use = max((m for m in [leader, *even] if seconds.get(m, np.inf) <= limit), key=lambda method: helping[method])
                row |= {"use": use, "gain": helping[use], "seconds": seconds.get(use, np.nan)}
                row |= {"leader": leader, "leader_gain": helping[leader], "not_behind": ", ".join(even)}
            if len(there):
                rows.append(row)
    return pd.DataFrame(rows)


def paragraph(verdict: pd.DataFrame, cost: pd.DataFrame) -> str:
    """The verdicts in words: for each shift who helps and who hurts, the largest change first, and what the helpful ones cost."""
    parts = []
    for shift, own in verdict.groupby("shift", sort=False):
        words = []
        for word in (HELPS, HURTS):
            there = own[own["verdict"] == word]
            there = there.reindex(there["gain"].abs().sort_values(ascending=False, kind="stable").index)
            if len(there):
                named = ", ".join(f"{row.method} ({row.gain:+.1f})" for row in there.itertuples())
                words.append(f"{named} {word[:-1] if len(there) > 1 else word}")
        if len(mixed := own.loc[own["verdict"] == MIXED, "method"]):
            helps, hurts = ("help", "hurt") if len(mixed) > 1 else ("helps", "hurts")
            words.append(f"{', '.join(mixed)} {helps} on one test and {hurts} on another")
        open_ = (own["verdict"] == UNDECIDED).sum()
        tested = (own["verdict"] != FEW).any()
        nothing = "no method helps or hurts for certain" if tested else f"nothing was tested, on fewer than {LEAST} images"
        found = "; ".join(words) or nothing
        parts.append(f"{shift[0].upper()}{shift[1:].replace(': ', ', ')}: {found}{f' ({open_} undecided)' if open_ else ''}.")
    helpful = list(dict.fromkeys(verdict.loc[verdict["verdict"] == HELPS, "method"]))
    priced = seconds_on(cost[cost["method"].isin(helpful)] if len(cost) else cost).sort_values()
    if len(priced):
        times = ", ".join(f"{method} {float(f'{seconds:.2g}'):g} s" for method, seconds in priced.items())
        parts.append(f"For the methods that help somewhere, 1,000 images take {times}.")
    return " ".join(parts)
