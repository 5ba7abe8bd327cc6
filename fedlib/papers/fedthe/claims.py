"""Claims of FedTHE (its section 6 and appendix E)."""

import numpy as np

from fedlib.published.comparisons import above, at_least, average, below, fact, highest, lowest, most
from fedlib.published.evidence import Absent, Cells, Claim, Quantity

PERSONALISED = ("FedAvg+FT", "APFL", "FedRep", "Ditto", "FedRoD", "kNN-Per", "TTT", "MEMO-P", "T3A")
GLOBAL = ("FedAvg", "GMA", "MEMO-G")
BOTH = ("FedTHE", "FedTHE+")
LONG = ("FedAvg", "FedAvg+FT", "FedRoD", "kNN-Per", *BOTH)  # Figures 12 and 13


def leads(t: Cells, table: str, methods=("FedTHE+",), columns=None, by=0.0, compare=above):
    """Each method over the best of the other papers' methods, in every block and column but the average."""
    columns = columns or t.columns(table, "average")
    blocks = t.blocks(table)
    return [compare(t.at(table, m, c, **b), t.best(table, t.base(table), c, **b), by) for b in blocks for c in columns for m in methods]


def h1(t):
    """Out of client the paper compares with personalised methods only: global models lead there."""
    ooc = [above(t.at("T1", "FedTHE+", "ooc", **b), t.best("T1", PERSONALISED, "ooc", **b)) for b in t.blocks("T1")]
    return leads(t, "T1", columns=t.columns("T1", "ooc")) + ooc


def h2(t):
    return [speedup(t, figure) for figure in ("F12", "F13")]


def speedup(t, figure):
    """Rounds until the best baseline's last mixture accuracy is reached: that baseline's over FedTHE+'s."""
    methods = t.figure(figure, column="mixture")["method"].unique()
    curves = {m: t.curve(figure, method=m, column="mixture") for m in methods}
    others = [m for m in methods if m not in BOTH]
    if "FedTHE+" not in curves or not others:
        raise Absent(f"{figure} with FedTHE+ and a baseline")
    best = max(others, key=lambda m: curves[m].iloc[-1])
    first = {m: curves[m].index[curves[m] >= curves[best].iloc[-1]].min() for m in (best, "FedTHE+")}
    ratio = first[best] / first["FedTHE+"]
    found = f"{best} needs {ratio:.2f} times the rounds" if ratio > 0 else f"FedTHE+ never reaches {best}'s last accuracy"
    text = f"{figure}: {found}, expected 1.5 to 2.5"
    return fact(text, 1.5 <= ratio <= 2.5, lacking=not {*LONG} <= {*curves})


def h3(t):
    return [most(f for table in ("T2", "T5", "T6") for f in leads(t, table, by=10, compare=at_least))]


def h3b(t):
    return [most(f for table in ("T2", "T5", "T6") for f in leads(t, table))]


def h4(t):
    return [below(t.best(table, t.methods(table), "imagenet_a"), limit) for table, limit in (("T2", 10), ("T5", 20))]


def correlation(t, methods, a, b, **block):
    """Correlation of two columns of T1 over the methods that have both, on the same images, and neither misprinted; its standard error is
    that over seeds. Of half of the methods or fewer it decides nothing: the others could turn it."""
    pairs = [(t.at("T1", m, a, **block), t.at("T1", m, b, **block)) for m in methods]
    pairs = [pair for pair in pairs if not any(np.isnan(q.mean) or q.rises or q.falls for q in pair)]
    lost = dict.fromkeys(("rises", "falls"), True) if len(pairs) <= len(methods) / 2 else {}
    if any(q.units and q.units.partial for pair in pairs for q in pair):
        pairs = [[q.on_cut() for q in pair] for pair in pairs]
    means = np.array([[q.mean for q in pair] for pair in pairs])
    if len(means) < 3 or means.std(axis=0).min() == 0:
        return Quantity(np.nan)
    told = all(q.units for pair in pairs for q in pair)
    seeds = [[q.units.seeds for q in pair] for pair in pairs] if told else []
    if len({len(values) for pair in seeds for values in pair}) != 1:
        value = float(np.corrcoef(means.T)[0, 1])
        return Quantity(value, np.nan, **lost) if lost else value
    each = [np.corrcoef(np.array(values).T)[0, 1] for values in zip(*(zip(*pair, strict=True) for pair in seeds), strict=True)]
    error = np.var(each, ddof=1) / len(each) if len(each) > 1 else np.nan
    return Quantity(float(np.corrcoef(means.T)[0, 1]), error, freedom=len(each) - 1, **lost)


def h5(t):
    blocks, columns = t.blocks("T1"), ("corrupted", "natural")
    return [above(correlation(t, t.methods("T1"), "original", c, **b), 0.6) for b in blocks for c in columns]


def h6(t):
    return [below(correlation(t, PERSONALISED, "original", "ooc", **b), 0) for b in t.blocks("T1")]


def h7(t):
    findings = []
    for m in GLOBAL:
        for b in t.blocks("T1"):
            findings.append(above(t.at("T1", m, "ooc", **b), t.best("T1", PERSONALISED, "ooc", **b)))
            findings.append(above(t.worst("T1", PERSONALISED, "original", **b), t.at("T1", m, "original", **b)))
    return findings


def h8(t):
    entropy, alignment = "TwoHead:+BSM+EM", "TwoHead:+BSM+FA"
    return [
        above(t.worst("T3", t.methods("T3", entropy), "average"), t.at("T3", entropy, "average")),
        above(t.at("T3", alignment, "ooc"), t.best("T3", t.methods("T3", alignment), "ooc")),
    ]


def h9(t):
    alone, joint = ("TwoHead:+BSM+FA", "TwoHead:+BSM+EM"), "TwoHead:+BSM+FA+EM"
    columns = t.columns("T3")
    synergy = [above(t.at("T3", joint, c), t.best("T3", alone, c)) for c in columns]
    return synergy + [above(t.at("T3", "FedTHE", c), t.at("T3", joint, c)) for c in columns]


def h10(t):
    def gain(new, old):
        return average([t.at("T3", new, c) - t.at("T3", old, c) for c in columns])

    columns = t.columns("T3", "average")
    better = [above(t.at("T3", "FedTHE+", c), t.at("T3", "FedTHE", c)) for c in columns]
    return [*better, above(gain("FedTHE+", "FedTHE"), gain("MEMO-P:+LPFT", "MEMO-P"))]


def h11(t):
    return [above(t.at("T3", "FedTHE", "average"), t.at("T3", "FedTHE:-history", "average"), 1)]


def h12(t):
    return [above(t.at("T3", m, c), t.at("T3", "TSA", c)) for m in BOTH for c in t.columns("T3")]


def h13(t):
    return [above(t.at("T3", m, "average"), t.at("T3", f"{m}:-BSM", "average")) for m in BOTH]


def h14(t):
    batch, sample = t.at("T3", "FedTHE:batch", "average"), t.at("T3", "FedTHE", "average")
    return [below(abs(batch - sample), 1.5), above(batch, t.at("T3", "MEMO-P", "average"))]


def h15(t):
    return [f for table in ("T1", "T2", "T3") for f in leads(t, table, BOTH, ["mixture"])]


def h16(t):
    weak = most(above(t.at("T4", "FedAvg", "original"), t.at("T4", m, "original")) for m in t.base("T4", "FedAvg"))
    return [weak, *leads(t, "T4", columns=["original", "corrupted", "mixture"])]


def h17(t):
    return leads(t, "T7", BOTH, by=8, compare=at_least)


def h18(t):
    tables = ("T8", "T9", "T11")
    cells = [(table, c, b) for table in tables for b in t.blocks(table) for c in t.columns(table)]
    return [above(t.at(table, "FedTHE", c, **b), t.at(table, "MEMO-P", c, **b)) for table, c, b in cells]


def h19(t):
    findings = []
    for heterogeneity in ("Dir(0.1)", "Dir(1.0)"):
        blocks = [b for b in t.blocks("T10") if b["setting"].startswith(heterogeneity)]
        for c in t.columns("T10"):
            sizes = [t.at("T10", "FedTHE", c, **b) for b in blocks]
            findings.append(below(highest(sizes) - lowest(sizes), 1.5))
    return findings


def h20(t):
    return leads(t, "T12", BOTH)


def h21(t):
    return leads(t, "T14") + leads(t, "T15")


def h22(t):
    findings = []
    for setting in t.figure("F14")["setting"].unique():
        ours, plus, oracle = (t.point("F14", setting=setting, method=m) for m in (*BOTH, "oracle"))
        findings += [below(oracle - ours, 2), above(plus, oracle)]
        for figure in ("F14", "F15"):
            weights = t.figure(figure, setting=setting, method="shared")["weight"]
            shared = [t.point(figure, setting=setting, method="shared", weight=w) for w in weights]
            findings.append(above(ours, highest(shared)))
        findings.append(above(ours, t.point("F15", setting=setting, method="oracle")))
    return findings


def h23(t):
    grid = t.figure("F16", column="mixture")
    chosen = t.point("F16", alpha=0.1, beta=0.3, column="mixture")
    return [at_least(chosen, t.point("F16", alpha=grid["alpha"].min(), beta=grid["beta"].min(), column="mixture"))]


def h24(t):
    findings = []
    for figure in ("F6", "F7"):
        for c in t.figure(figure)["column"].unique():
            both, tuned = (t.point(figure, method=m, column=c) for m in ("LP-FT", "FT"))
            findings.append(above(both, tuned) if c != "original" else at_least(both, tuned, -0.5))
    return findings


def h25(t):
    def weight(column):
        rows = t.figure("F17", column=column)
        return np.average(rows["weight"], weights=rows["density"])

    original, corrupted, natural, ooc = (weight(c) for c in ("original", "corrupted", "natural", "ooc"))
    return [above(original, corrupted), above(original, natural), above(corrupted, ooc), above(natural, ooc)]


def h26(t):
    columns = t.figure("H26")["column"].unique()
    points = [[t.point("H26", method=f"T3A by {unit}", column=c) for unit in ("sample", "batch")] for c in columns]
    return [below(abs(sample - batch), 1) for sample, batch in points]


# How the names of the paper's own methods begin, and how many runs are behind a printed standard deviation.
OURS, SEEDS = ("FedTHE", "TwoHead"), 3
# figure (or claim) -> its columns besides std and PROVENANCE.
FIGURE_COLUMNS: dict[str, tuple[str, ...]] = {
    "F2a": ("method", "column", "mean"),
    "F2b": ("method", "column", "mean"),  # gain over FedAvg+FT in points
    "F5": ("model", "method", "mean"),  # std: over the five tests
    "F6": ("method", "column", "mean"),  # method LP, FT, LP-FT; column original, corrupted, natural, domain
    "F7": ("method", "column", "mean"),
    "F8": ("round", "method", "column", "mean"),
    "F9": ("round", "method", "column", "mean"),
    "F10": ("round", "method", "column", "mean"),
    "F11": ("round", "method", "column", "mean"),
    "F12": ("round", "method", "column", "mean"),
    "F13": ("round", "method", "column", "mean"),
    "F14": ("setting", "method", "weight", "mean"),  # mixture; method shared (one row per weight), oracle, FedTHE, FedTHE+
    "F15": ("setting", "method", "weight", "mean"),
    "F16": ("alpha", "beta", "column", "mean"),
    "F17": ("column", "weight", "density"),  # weight of the local head
    "F18": ("method", "label", "x", "y"),  # method: with history, without history
    "F19": ("method", "column", "weight", "density"),
    "H26": ("method", "column", "mean"),  # method: T3A by sample, T3A by batch
}

CLAIMS = (
    Claim("H1", "FedTHE+ beats every competitor on ID and OOD tests of CIFAR10", ("T1",), h1),
    Claim("H2", "reaches the competitors' final accuracy in 1.5 to 2.5 times fewer rounds", ("F12", "F13"), h2),
    Claim("H3", "on stronger models and ImageNet, ahead by at least 10 points in most tests", ("T2", "T5", "T6"), h3),
    Claim("H3b", "the weaker form of H3: ahead in most tests", ("T2", "T5", "T6"), h3b),
    Claim("H4", "ImageNet-A defeats all methods", ("T2", "T5"), h4),
    Claim("H5", "over methods, robustness to corruption and natural shift goes with ID accuracy", ("T1",), h5),
    Claim("H6", "among personalised methods, better ID accuracy goes with worse out-of-client accuracy", ("T1",), h6),
    Claim("H7", "global models do well out of client and badly on the client's own distribution", ("T1",), h7),
    Claim("H8", "ablation: entropy alone is poor, feature alignment alone is the best out of client", ("T3",), h8),
    Claim("H9", "entropy and alignment help each other, and weighting them by similarity helps more", ("T3",), h9),
    Claim("H10", "test-time fine-tuning improves every test, more than LP-FT improves MEMO", ("T3",), h10),
    Claim("H11", "leaving out the test history hurts", ("T3",), h11),
    Claim("H12", "better than TSA on every test", ("T3",), h12),
    Claim("H13", "a global model trained with Balanced Softmax helps", ("T3",), h13),
    Claim("H14", "one weight for a batch is about as good as one for each sample", ("T3",), h14),
    Claim("H15", "robust to the kind and order of shifts: ahead on the mixture", ("T1", "T2", "T3"), h15),
    Claim("H16", "under weak heterogeneity most baselines do not beat FedAvg, FedTHE+ still gains", ("T4",), h16),
    Claim("H17", "under entangled shifts ahead by about 10 points (checked: 8)", ("T7",), h17),
    Claim(
        "H18",
        "FedTHE (in the text FedTHE+) ahead of MEMO at every severity, personalisation length and training size",
        ("T8", "T9", "T11"),
        h18,
    ),
    Claim("H19", "the size of the local test set hardly matters", ("T10",), h19),
    Claim("H20", "with 100 clients ahead on every test", ("T12",), h20),
    Claim("H21", "with client sampling ahead on every test", ("T14", "T15"), h21),
    Claim("H22", "close to the per-client best head weight, FedTHE+ above it, model weights worse", ("F14", "F15"), h22),
    Claim("H23", "alpha 0.1 and beta 0.3 serve the mixture at least as well as smaller values", ("F16",), h23),
    Claim("H24", "LP-FT keeps the ID accuracy of FT and is better OOD", ("F6", "F7"), h24),
    Claim("H25", "the local head's weight falls from original over corrupted and natural to out of client", ("F17",), h25),
    Claim("H26", "T3A by sample is like T3A by batch", ("H26",), h26),
)
