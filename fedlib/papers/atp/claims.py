"""Claims of ATP (its section 6 and appendix C)."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np

from fedlib.published.comparisons import Finding, above, at_least, below, fact, highest, lowest, within
from fedlib.published.evidence import Cells, Claim, Quantity

FEATURE, LABEL, HYBRID = "feature shift", "label shift", "hybrid shift"
SHIFTS = (FEATURE, LABEL, HYBRID)
OWN = ("ATP-batch", "ATP-online")
# F9, closed form: accuracy in percent for each weight alpha of the test statistics.
TOY = {1.0: 71.48, 0.5: 82.34, 0.0: 89.44, -0.25: 91.49, -0.5: 92.65, -0.75: 93.03, -1.0: 92.81}


def gain(t: Cells, table: str, method: str, **where: str) -> Quantity:
    return t.at(table, method, "test", **where) - t.at(table, "NoAdapt", "test", **where)


def trade_off(feature: dict, label: dict, for_feature, for_label) -> list:
    """Each method gains under the shift it is made for and loses under the other."""
    wins = [above(feature[m]) for m in for_feature] + [above(label[m]) for m in for_label]
    losses = [below(label[m], 0) for m in for_feature] + [below(feature[m], 0) for m in for_label]
    return wins + losses


def a1(t):
    for_feature, for_label = ("BN-Adapt", "SHOT", "Tent", "T3A"), ("EM", "BBSE")
    feature, label = ({m: gain(t, "T1", m, setting=s) for m in for_feature + for_label} for s in (FEATURE, LABEL))
    return trade_off(feature, label, for_feature, for_label)


def a2(t):
    return [above(gain(t, "T1", m, setting=s)) for m in ("MEMO", "Surgical") for s in SHIFTS]


def a3(t):
    best = {s: t.best("T1", t.base("T1"), "test", setting=s) for s in (FEATURE, LABEL)}
    return [above(t.at("T1", m, "test", setting=s), best[s], -1) for m in OWN for s in best]


def a4(t):
    batch, online = (t.at("T1", m, "test", setting=HYBRID) for m in OWN)
    return [above(batch, t.best("T1", t.base("T1"), "test", setting=HYBRID), 2), above(online, batch)]


def a5(t):
    def pairs(table):
        blocks = [b for b in t.blocks(table) if b["setting"] != "all shifts"]
        return [[t.at(table, m, c, **b) for m in OWN] for b in blocks for c in t.columns(table, **b)]

    strict = [above(online, batch) for table in ("T1", "T5", "T6", "T7") for batch, online in pairs(table)]
    return strict + [at_least(online, batch) for batch, online in pairs("T2")]


def a6(t):
    domains = [(b, c) for b in t.blocks("T2") for c in t.columns("T2", **b)]
    return [above(t.worst("T2", OWN, c, **b), t.best("T2", t.base("T2"), c, **b)) for b, c in domains]


def a7(t):
    shifts = [b for b in t.blocks("T5") if b["setting"] in SHIFTS]
    ranks = t.blocks("T5", setting="all shifts")
    ahead = [above(t.at("T5", "ATP-online", "test", **b), t.best("T5", t.base("T5"), "test", **b)) for b in shifts]
    return ahead + [rank(t, m, how, limit, b) for m, how, limit in (("ATP-online", "<=", 1), ("ATP-batch", "<", 3)) for b in ranks]


def rank(t: Cells, method: str, how: str, limit: float, block: dict) -> Finding:
    """A rank has no spread of its own: it is taken as the means over the seeds give it. how: "<=" or "<"."""
    cell = t.at("T5", method, "avg_rank", **block)
    found = fact(f"{cell.where}: {cell} {how} {limit:g}", cell.mean < limit or (how == "<=" and cell.mean == limit))
    return replace(found, state=None) if math.isnan(cell.mean) else found


def rates(t: Cells, train: str, test: str) -> Quantity:
    """Cell of T3: adaptation rates of shift ``train`` ("none": no adaptation) used under shift ``test``."""
    return t.at("T3", "NoAdapt" if train == "none" else "ATP-batch", f"test_{test}", setting=f"train={train}")


def a8(t):
    kinds = ("feature", "label", "hybrid")
    return [above(rates(t, k, k), highest(rates(t, other, k) for other in ("none", *kinds) if other != k)) for k in kinds]


def a9(t):
    pairs = (("feature", "label"), ("label", "feature"))
    fail = [above(rates(t, "none", test), rates(t, train, test)) for train, test in pairs]
    carry = [above(rates(t, "hybrid", k), rates(t, "none", k)) for k in ("feature", "label")]
    return fail + carry + [above(rates(t, k, k), rates(t, "hybrid", k)) for k in ("feature", "label")]


def a10(t):
    label, feature = ({m: gain(t, "T4", m, setting=s) for m in ("ATP-params", "ATP-stats")} for s in (LABEL, FEATURE))
    parts = [above(label["ATP-params"], label["ATP-stats"]), above(feature["ATP-stats"], feature["ATP-params"])]
    both = [above(t.at("T4", "ATP-batch", "test", setting=s), t.best("T4", ("ATP-params", "ATP-stats"), "test", setting=s)) for s in SHIFTS]
    return parts + both


def a11(t):
    first, last = "+0 rounds", "+100 rounds"
    useful = [above(gain(t, "T6", m, **b)) for m in OWN for b in t.blocks("T6")]
    kept = [above(gain(t, "T6", m, setting=last), gain(t, "T6", m, setting=first) * 0.9) for m in OWN]
    return [*useful, *kept, below(t.at("T6", "NoAdapt", "test", setting=last) - t.at("T6", "NoAdapt", "test", setting=first), 2)]


def a12(t):
    return [above(gain(t, "T7", m, **b)) for m in OWN for b in t.blocks("T7")]


def over_sizes(t: Cells, column: str, method: str) -> Quantity:
    """Range of F5 over the sizes of cohort or batch."""
    sizes = t.figure("F5", column=column, method=method)["size"]
    values = [t.point("F5", column=column, method=method, size=s) for s in sizes]
    return highest(values) - lowest(values)


def a13(t):
    sizes = t.figure("F5", column="batch", method="NoAdapt")["size"]
    reference = {s: t.point("F5", column="batch", method="NoAdapt", size=s) for s in sizes}
    gains = [above(t.point("F5", column="batch", method=m, size=s), reference[s]) for m in OWN for s in sizes]
    return [below(over_sizes(t, "cohort", m), 2) for m in OWN] + gains


def f5(t):
    return [*a13(t), above(over_sizes(t, "batch", "ATP-batch"), over_sizes(t, "batch", "ATP-online"))]


def a14(t):
    largest = t.figure("F8")["cohort"].max()
    train, test = (t.curve("F8", cohort=largest, column=c) for c in ("train", "test"))
    return [above(train.iloc[0], train.iloc[-1]), above(test.iloc[0], test.iloc[-1])]


def f8(t):
    cohorts = sorted(t.figure("F8")["cohort"].unique(), reverse=True)
    train, test = (t.curve("F8", cohort=cohorts[0], column=c) for c in ("train", "test"))
    jagged = [t.curve("F8", cohort=c, column="train").diff().var() for c in cohorts]
    growing = all(a < b for a, b in pairwise(jagged))
    text = "variance of the changes from largest to smallest cohort: " + ", ".join(f"{v:.2g}" for v in jagged)
    return [*a14(t), above(train.iloc[-1], test.iloc[-1]), fact(text, growing)]


def toy(t: Cells, alpha: float) -> Quantity:
    """Accuracy of F9 at one weight of the test statistics: a number of the model, without spread over seeds."""
    return Quantity(t.figure("F9", panel="test", alpha=alpha)["accuracy"].iloc[0], who=f"alpha {alpha:g}")


def toy_negative(t: Cells) -> Quantity:
    """Best accuracy of F9 over negative weights."""
    rows = t.figure("F9", panel="test")
    return Quantity(rows.loc[rows["alpha"] < 0, "accuracy"].max(), who="best negative alpha")


def statistics_rate(t: Cells, setting: str) -> float:
    """Mean learned rate of the batch-norm running means and variances."""
    rows = t.figure("F4", setting=setting, grouping="type")
    return rows.loc[rows["modules"].str.contains("running"), "mean"].mean()


def f4(t):
    rates = {s: t.figure("F4", setting=s, grouping="module").set_index("modules")["mean"].abs() for s in (FEATURE, LABEL)}
    head = [rates[s].filter(like="head.").mean() for s in (LABEL, FEATURE)]
    return [above(statistics_rate(t, FEATURE)), below(statistics_rate(t, LABEL), 0), above(*head)]


def a15(t):
    return [below(statistics_rate(t, LABEL), 0), above(toy_negative(t), toy(t, 0.0))]


def f9(t):
    zero, half, one = (toy(t, alpha) for alpha in (0.0, 0.5, 1.0))
    drawn = [alpha for alpha in t.figure("F9", panel="test")["alpha"].unique() if alpha in TOY]
    exact = [within(toy(t, a), TOY[a] - 0.5, TOY[a] + 0.5) for a in drawn]
    return [above(toy_negative(t), zero), above(zero, half), above(half, one), *exact]


def a16(t):
    """Numbers sent: the model once and the rates both ways in each round, against the model both ways."""
    rounds, parameters, modules = t.figure("A16").iloc[0][["rounds", "parameters", "modules"]].astype(int)
    ours, federated = parameters + 2 * rounds * modules, 2 * rounds * parameters
    return [fact(f"{ours:,} numbers sent against {federated:,}", ours < federated, exact=True)]


def a17(t):
    return [below(Quantity(t.figure("A17")["peak_gigabytes"].max(), who="peak GB"), 2)]


def f2(t):
    methods = ("BN-Adapt", "SHOT", "Tent", "EM", "BBSE")
    feature, label = (
        {m: t.point("F2", method=m, setting=s) - t.point("F2", method="NoAdapt", setting=s) for m in methods} for s in (FEATURE, LABEL)
    )
    return trade_off(feature, label, methods[:3], methods[3:])


def f3(t):
    """Running means of all layers against single blocks, and the effect of the rate's sign."""
    means = t.figure("F3", setting=FEATURE, grouping="type", modules="running mean")
    up = means.loc[means["rate"] > 0, "mean"].max()
    findings = [above(up, t.figure("F3", setting=FEATURE, grouping="block")["mean"].max())]
    for s in (FEATURE, LABEL):
        rows = t.figure("F3", setting=s, grouping="type", modules="running mean")
        effect = rows["mean"] - t.point("F3", setting=s, grouping="none").mean
        findings.append(below(np.prod([effect[rows["rate"] > 0].mean(), effect[rows["rate"] < 0].mean()]), 0))
    return findings


# How the names of the paper's own methods begin, and how many runs are behind a printed standard deviation.
OURS, SEEDS = ("ATP",), 5  # from its public code
# figure (or claim) -> its columns besides std and PROVENANCE.
FIGURE_COLUMNS: dict[str, tuple[str, ...]] = {
    "F2": ("method", "setting", "mean"),  # setting feature shift, label shift
    # grouping none (NoAdapt, rate 0), type or block; modules among them "running mean" and "running variance" (types) and
    # "head" (block: the last linear layer); mean of F4: the learned rate
    "F3": ("setting", "grouping", "modules", "rate", "mean"),
    "F4": ("setting", "grouping", "modules", "mean"),
    "F5": ("column", "size", "method", "mean"),  # column cohort, batch
    "F8": ("cohort", "round", "column", "mean"),  # column train, test; mean: loss
    "F9": ("panel", "alpha", "label", "z", "density", "accuracy"),  # panel train, test; accuracy in percent, of the whole panel
    "A16": ("rounds", "parameters", "modules"),  # one row
    "A17": ("peak_gigabytes",),  # one row
}

CLAIMS = (
    Claim("A1", "most test-time methods gain under either feature or label shift and lose under the other", ("T1",), a1),
    Claim("A2", "MEMO and Surgical gain under all three shifts", ("T1",), a2),
    Claim("A3", "on par with the strongest baseline under pure feature and pure label shift", ("T1",), a3),
    Claim("A4", "under hybrid shift the highest gain by a clear margin (2 points)", ("T1",), a4),
    Claim("A5", "ATP-online improves on ATP-batch", ("T1", "T2", "T5", "T6", "T7"), a5),
    Claim("A6", "both variants lead on every held-out domain", ("T2",), a6),
    Claim("A7", "works on other architectures: ATP-online leads everywhere, ATP-batch ranks near the top", ("T5",), a7),
    Claim("A8", "rates are specific: best under the shift they were trained for", ("T3",), a8),
    Claim("A9", "rates for one shift fail under the other; those for hybrid shift carry over in part", ("T3",), a9),
    Claim("A10", "parameters serve label shift, running statistics feature shift, both are needed", ("T4",), a10),
    Claim("A11", "outdated rates stay useful; more global rounds alone help little", ("T6",), a11),
    Claim("A12", "improves every way of global training", ("T7",), a12),
    Claim("A13", "robust to the sizes of cohort and batch", ("F5",), a13),
    Claim("A14", "training and testing loss of the rates fall together", ("F8",), a14),
    Claim("A15", "negative rates help under label shift", ("F4", "F9"), a15),
    Claim("A16", "rates cost little communication: D + 2Td numbers instead of 2TD", ("A16",), a16),
    Claim("A17", "less than 2 GB of GPU memory", ("A17",), a17),
    Claim("F2", "the trade-off between feature and label shift, as points", ("F2",), f2),
    Claim("F3", "running means beat any block under feature shift; the sign of their rate has opposite effects", ("F3",), f3),
    Claim("F4", "statistics get positive rates under feature, negative under label shift; the head adapts to labels", ("F4",), f4),
    Claim("F5", "robust to sizes, ATP-online less sensitive to the batch than ATP-batch", ("F5",), f5),
    Claim("F8", "no overfitting of the rates; smaller cohorts only roughen the training curve", ("F8",), f8),
    Claim("F9", "toy problem: the less (down to negative) the test statistics count, the better", ("F9",), f9),
)
