"""Claims of FedICON (its section 5)."""

from fedlib.published.comparisons import above, average, highest, lowest, most, within
from fedlib.published.evidence import Cells, Claim

GIS = (("Local", "FedAvg"), ("FedICON:LIE", "FedICON:LIE+GIS"), ("FedICON:TTA", "FedICON:GIS+TTA"), ("FedICON:LIE+TTA", "FedICON"))
TTA = (("Local", "FedICON:TTA"), ("FedICON:LIE", "FedICON:LIE+TTA"), ("FedAvg", "FedICON:GIS+TTA"), ("FedICON:LIE+GIS", "FedICON"))


def leads(t: Cells, table: str, column: str | None = None) -> list:
    """FedICON over the best other method, in every block and the given or every column."""
    columns = [column] if column else t.columns(table)
    return [above(t.at(table, "FedICON", c, **b), t.best(table, t.base(table), c, **b)) for b in t.blocks(table) for c in columns]


def i1(t):
    return leads(t, "T1")


def i2(t):
    return leads(t, "T2")


def i3(t):
    cells = [(table, c) for table in ("T1", "T2") for c in t.columns(table)]
    return [most(above(t.at(table, "FedAvg", c), t.at(table, m, c)) for table, c in cells) for m in ("FedRep", "FedBN")]


def i4(t):
    return leads(t, "T3", "attribute_shift")


def i5(t):
    findings = []
    for b in t.blocks("T3"):
        gaps = lowest(abs(t.at("T3", m, "delta", **b)) for m in t.base("T3", "Local"))
        findings.append(above(gaps, abs(t.at("T3", "FedICON", "delta", **b))))
    return findings


def i6(t):
    return [*f3a(t), f3b(t)[0]]


def i7(t):
    """On Digits-5 also above the methods that only T1 lists, by their mean over its domains."""
    findings = []
    for b in t.blocks("T4"):
        full, unsupervised = (t.at("T4", m, "test", **b) for m in ("FedICON", "FedICON-us"))
        findings += [above(full, unsupervised), above(unsupervised, t.best("T4", t.base("T4"), "test", **b))]
    means = [average([t.at("T1", m, c) for c in t.columns("T1")]) for m in t.base("T1")]
    return [*findings, above(t.at("T4", "FedICON-us", "test", dataset="digits5"), highest(means))]


def gains(t: Cells, pairs) -> list:
    return [t.at("T5", new, "test") - t.at("T5", old, "test") for old, new in pairs]


def i8(t):
    return [within(gain, 0.5, 6.5) for gain in gains(t, TTA)]


def i9(t):
    """Both the least gain from sharing over the largest from adaptation, and over nothing."""
    sharing = lowest(gains(t, GIS))
    return [above(sharing), above(sharing, highest(gains(t, TTA)))]


def i10(t):
    targets = t.figure("F1b")["column"].unique()
    return [above(*(t.point("F1b", source=s, column=c) for s in ("heterogeneous", "single"))) for c in targets]


def ahead(t: Cells, figure: str, x: str) -> list:
    values = sorted(t.figure(figure)[x].unique())
    return [above(*(t.point(figure, method=m, **{x: v}) for m in ("FedICON", "FedAvg"))) for v in values]


def f3a(t):
    few, many = (t.figure("F3a")["clients"].agg(how) for how in ("min", "max"))
    fall = [above(t.point("F3a", method=m, clients=few), t.point("F3a", method=m, clients=many)) for m in ("FedAvg", "FedICON")]
    return [*ahead(t, "F3a", "clients"), *fall]


def f3b(t):
    """First: whether FedICON gains from more local epochs than the least."""
    few, many = (t.figure("F3b")["epochs"].agg(how) for how in ("min", "max"))
    first, rest = t.point("F3b", method="FedICON", epochs=few), t.figure("F3b", method="FedICON")["epochs"]
    later = highest(t.point("F3b", method="FedICON", epochs=e) for e in rest if e > few)
    fall = above(t.point("F3b", method="FedAvg", epochs=few), t.point("F3b", method="FedAvg", epochs=many))
    return [above(later, first), fall, *ahead(t, "F3b", "epochs")]


# How the names of the paper's own methods begin, and how many runs are behind a printed standard deviation.
OURS, SEEDS = ("FedICON",), 3
# figure (or claim) -> its columns besides std and PROVENANCE.
FIGURE_COLUMNS: dict[str, tuple[str, ...]] = {
    "F1b": ("source", "column", "mean"),  # source single, heterogeneous; column: the target
    "F3a": ("clients", "method", "mean"),
    "F3b": ("epochs", "method", "mean"),
}

CLAIMS = (
    Claim("I1", "covariate shift: ahead of all federated, personalised and test-time methods", ("T1",), i1),
    Claim("I2", "the same on unseen domains", ("T2",), i2),
    Claim("I3", "FedRep and FedBN are mostly below FedAvg on shifted tests", ("T1", "T2"), i3),
    Claim("I4", "attribute shift: best on CIFAR10.1", ("T3",), i4),
    Claim("I5", "smallest gap between original and shifted accuracy of all federated methods", ("T3",), i5),
    Claim("I6", "scales with the number of clients, and gains from local epochs", ("F3a", "F3b"), i6),
    Claim("I7", "the unsupervised version is second to FedICON alone", ("T4", "T1"), i7),
    Claim("I8", "test-time adaptation adds about 1 to 5 points to each variant", ("T5",), i8),
    Claim("I9", "sharing matters more than test-time adaptation", ("T5",), i9),
    Claim("I10", "training on heterogeneous sources is more robust than on one domain", ("F1b",), i10),
    Claim("F3a", "ahead of FedAvg at every number of clients; both fall with more clients", ("F3a",), f3a),
    Claim("F3b", "FedAvg falls with local epochs, FedICON is not best at the fewest, and stays ahead", ("F3b",), f3b),
)
