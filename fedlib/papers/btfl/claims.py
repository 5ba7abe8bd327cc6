"""Claims of BTFL (its sections 3 and 5)."""

import numpy as np
import pandas as pd

from fedlib.published.comparisons import above, at_least, below, fact, highest, lowest, within
from fedlib.published.evidence import Absent, Cells, Claim, Quantity

EXTERNAL = ("original_exd", "shifted_exd")
INTERNAL = ("original_ind", "shifted_ind")
# Figure 5's "strong baselines": the paper does not name them.
STRONG = ("FedAvg", "FedAvg+FT", "FedRoD", "kNN-Per", "FedTHE")


def lead(t: Cells, table: str) -> Quantity:
    """BTFL's average over the best other method's."""
    return t.at(table, "BTFL", "avg") - t.best(table, t.base(table), "avg")


def b1(t):
    small, large = {"setting": "Dir(0.1), bs=1"}, {"setting": "Dir(0.1), bs=32"}
    drop = {c: t.at("T1", "FedTHE", c, **large) - t.at("T1", "FedTHE", c, **small) for c in t.columns("T1")}
    change = [abs(t.at("T1", "BTFL", c, **small) - t.at("T1", "BTFL", c, **large)) for c in t.columns("T1")]
    most_external = above(lowest(drop[c] for c in EXTERNAL), highest(drop[c] for c in INTERNAL))
    return [*(above(d) for d in drop.values()), most_external, *(below(c, 2) for c in change)]


def b2(t):
    return [at_least(lead(t, table), 1.88) for table in ("T2", "T4", "T5")]


def b3(t):
    def seconds(method, block):
        return t.at("T3", method, "seconds_per_1000", **block)

    return [at_least(seconds(m, b) / seconds("BTFL", b), 3) for m in t.base("T3") for b in t.blocks("T3")]


def b4(t):
    times = [t.at("T3", "BTFL", "seconds_per_1000", **b) for b in t.blocks("T3")]
    return [below(highest(times) / lowest(times), 1.2)]


def b5(t):
    return [within(t.at("T2", "BTFL", c) - t.at("T2", "FedTHE", c), 0.5, 3) for c in ("avg", "synthetical")]


def b6(t):
    """FedAvg, no personalised method, stays above outside the client's distribution and is left out."""
    findings = []
    for table in ("T4", "T5"):
        findings += [above(t.at(table, "BTFL", "original_ind"), t.at(table, m, "original_ind")) for m in ("TTT", "MEMO-P")]
        findings += [above(t.at(table, "BTFL", c), t.best(table, t.base(table, "FedAvg"), c)) for c in EXTERNAL]
    return findings


def b7(t):
    """A lead is more than being less far behind."""
    leads = [lead(t, table) for table in ("T4", "T5")]
    return [*(above(there) for there in leads), *(above(there, lead(t, "T2")) for there in leads)]


def b8(t):
    cells = [(table, m) for table in ("T2", "T4", "T5") for m in t.methods(table, "FedAvg")]
    return [above(t.at(table, m, "original_ind"), t.at(table, m, "synthetical"), 10) for table, m in cells]


def b9(t):
    return [above(lead(t, table)) for table in ("T6", "T7")]


def b10(t):
    findings = []
    for figure, group, others in (("F4", "setting", t.base("T2")), ("F5", "model", STRONG)):
        for value in t.figure(figure)[group].unique():
            bars = {"column": "avg", group: value}
            findings.append(above(t.point(figure, method="BTFL", **bars), highest(t.points(figure, others, **bars))))
    return findings


def b11(t):
    few, many = (t.figure("F1")["classes"].agg(how) for how in ("min", "max"))
    if few == many:
        raise Absent("F1 at two numbers of classes")
    similarity, alignment = ([t.point("F1", column=c, classes=n) for n in (few, many)] for c in ("similarity", "alignment"))
    return [above(*similarity), above(*reversed(alignment))]


def moment(rows: pd.DataFrame, power: int) -> float:
    """Mean (power 1) or central moment of the weights of a histogram."""
    mean = np.average(rows["weight"], weights=rows["density"])
    return mean if power == 1 else np.average((rows["weight"] - mean) ** power, weights=rows["density"])


def bimodality(rows: pd.DataFrame) -> float:
    """Sarle's coefficient (skewness**2 + 1) / kurtosis: 5/9 for an even spread, 1 for two points."""
    if not (variance := moment(rows, 2)):
        raise Absent("a spread of weights")
    return (moment(rows, 3) ** 2 / variance**3 + 1) / (moment(rows, 4) / variance**2)


def b12(t):
    rows = {c: t.figure("F6", column=c) for c in ("original_ind", "shifted_ind", *EXTERNAL, "synthetical", "average")}
    mean = {c: moment(r, 1) for c, r in rows.items()}
    local = {c: np.average(rows[c]["weight"] < 0.5, weights=rows[c]["density"]) for c in INTERNAL}
    peaks = {c: bimodality(rows[c]) for c in ("synthetical", "average")}
    return [
        fact(f"original_ind: {100 * local['original_ind']:.1f}% on the side of the local head", local["original_ind"] > 0.95),
        fact(f"shifted_ind: {100 * local['shifted_ind']:.1f}%, less than original_ind", local["shifted_ind"] < local["original_ind"]),
        *(above(mean[c], mean["original_ind"]) for c in EXTERNAL),
        above(peaks["synthetical"], 5 / 9),
        above(peaks["synthetical"], peaks["average"]),
    ]


def b13(t):
    mean = {"method": "BTFL", "column": "avg"}
    values = [t.point("B13", **mean, strength=s) for s in t.figure("B13", **mean)["strength"]]
    return [below(highest(values) - lowest(values), 1)]


# How the names of the paper's own methods begin, and how many runs are behind a printed standard deviation (it does not say).
OURS, SEEDS = ("BTFL",), None
# figure (or claim) -> its columns besides std and PROVENANCE.
FIGURE_COLUMNS: dict[str, tuple[str, ...]] = {
    "F1": ("classes", "column", "mean"),  # column similarity, alignment
    "F4": ("setting", "method", "column", "mean"),
    "F5": ("model", "method", "column", "mean"),
    "F6": ("column", "weight", "density"),  # weight of the global head, bin centres; column average: mean of the first four
    "B13": ("method", "strength", "column", "mean"),  # prior strength
}

CLAIMS = (
    Claim("B1", "FedTHE suffers from test batches of one, most outside the client's distribution; BTFL does not", ("T1",), b1),
    Claim("B2", "on average 1.88 to 3.15 points above the other methods", ("T2", "T4", "T5"), b2),
    Claim("B3", "about 4 to 12 times faster than other test-time methods (checked: 3)", ("T3",), b3),
    Claim("B4", "speed hardly depends on the architecture", ("T3",), b4),
    Claim("B5", "on CIFAR10 one to two points above FedTHE (checked: 0.5 to 3)", ("T2",), b5),
    Claim("B6", "on harder data on par with test-time methods inside, ahead outside the client's distribution", ("T4", "T5"), b6),
    Claim("B7", "a larger lead on OfficeHome and ImageNet than on CIFAR10", ("T2", "T4", "T5"), b7),
    Claim("B8", "the synthetical test costs every personalised method more than 10 points", ("T2", "T4", "T5"), b8),
    Claim("B9", "the advantage is kept at Dir(1.0)", ("T6", "T7"), b9),
    Claim("B10", "ahead on every architecture and at every degree of heterogeneity", ("F4", "F5"), b10),
    Claim("B11", "with more classes the heads' similarity falls and FedTHE's alignment loss grows", ("F1",), b11),
    Claim("B12", "own images go to the local head, foreign ones to the global head; the synthetical test has two peaks", ("F6",), b12),
    Claim("B13", "the prior strength hardly matters", ("B13",), b13),
)
