"""Claims of UPFL, that is FedTTA and its variants (its section 4)."""

from itertools import pairwise

from fedlib.published.comparisons import above, below, fact, highest, lowest, most, within
from fedlib.published.evidence import Cells, Claim

OWN = ("FedTTA", "FedTTA-Prox", "FedTTA++")
PFL = ("PFL-Sampled", "PFL-Ensemble")
ONE_MODEL = ("FedAvg", "FedProx", "SCAFFOLD", "AFL", "GMA", "FedADG", "FedSR")
ALPHAS = tuple(f"test_alpha_{a}" for a in ("0.01", "0.03", "0.05", "0.1", "0.3", "0.5"))
LEADS = {"cifar10": 9, "femnist": 2, "cifar100": 10, "fashion_mnist": 1.5}  # over the best baseline, section 4.2


def datasets(t: Cells) -> list[str]:
    return [block["dataset"] for block in t.blocks("T1")]


def u1(t):
    return [
        above(t.at("T1", "FedTTA-Prox", c, dataset=d), t.at("T1", "FedTTA", c, dataset=d)) for d in datasets(t) for c in t.columns("T1")
    ]


def u2(t):
    gain = {d: t.at("T1", "FedTTA++", "test", dataset=d) - t.at("T1", "FedTTA-Prox", "test", dataset=d) for d in datasets(t)}
    return [below(gain[d], 1) if d == "femnist" else above(gain[d], 1) for d in gain]


def u3(t):
    lead = {d: t.at("T1", "FedTTA++", "test", dataset=d) - t.best("T1", t.base("T1"), "test", dataset=d) for d in datasets(t)}
    return [above(lead[d]) for d in lead] + [within(lead[d], size - 1.5, size + 1.5) for d, size in LEADS.items()]


def u4(t):
    """First by data set; FedTTA and its variants first on CIFAR-10, second elsewhere."""
    leader = {"mnist": PFL, "cifar100": PFL, "fashion_mnist": PFL, "femnist": ("SCAFFOLD",), "cifar10": OWN}
    findings = []
    for d, first in leader.items():
        rest = t.methods("T1", *first)
        findings.append(above(t.best("T1", first, "validation", dataset=d), t.best("T1", rest, "validation", dataset=d)))
        if first != OWN:
            others = t.base("T1", *first)
            findings.append(above(t.best("T1", OWN, "validation", dataset=d), t.best("T1", others, "validation", dataset=d)))
    return findings


def u5(t):
    return [above(t.at("T1", "Tent", "test", dataset="cifar10"), t.best("T1", t.base("T1", "Tent"), "test", dataset="cifar10"))]


def u6(t):
    findings = []
    for m in t.figure("U6")["method"].unique():
        values = [t.point("U6", alpha=a, method=m) for a in t.figure("U6", method=m)["alpha"]]
        findings.append(below(highest(values) - lowest(values), 1))
    return findings


def u7(t):
    rest = [t.at("T2", "PFL-Sampled", a) for a in ALPHAS if a != "test_alpha_0.1"]
    return [above(t.at("T2", "PFL-Sampled", "test_alpha_0.1"), highest(rest))]


def u8(t):
    return [above(t.at("T2", m, smaller), t.at("T2", m, larger)) for smaller, larger in pairwise(ALPHAS) for m in ("Tent", *OWN)]


def u9(t):
    """Methods with one model have one cell for all test alphas."""
    one_model = [t.at("T2", m, "test") for m in ONE_MODEL]
    others = t.base("T2", *ONE_MODEL)
    return [above(t.best("T2", OWN, a), highest([*one_model, *(t.at("T2", m, a) for m in others)])) for a in ALPHAS]


def drops(t):
    """Points lost from all test data to a tenth of them, by each of the paper's methods."""
    return [t.point("F3", share=1.0, method=m) - t.point("F3", share=0.1, method=m) for m in OWN]


def u10(t):
    baselines = highest(t.point("F3", share=0.1, method=m) for m in ("Tent", "ODPFL-HN"))
    return [above(t.point("F3", share=0.1, method=m), baselines) for m in OWN] + [below(drop, 8) for drop in drops(t)]


def best_of_f4(t, column):
    return highest(t.points("F4", t.base("T1"), column=column))


def u11(t):
    return [above(t.point("F4", method=m, column="test"), best_of_f4(t, "test")) for m in ("FedTTA", "FedTTA++")]


def best_strength(t: Cells) -> float:
    """The lambda of HeteroFedTTA with the best last accuracy in F5."""
    rows = t.figure("F5", round=t.figure("F5")["round"].max(), method="HeteroFedTTA")
    return rows.set_index("strength")["mean"].idxmax()


def u12(t):
    """Against plain distillation, strength 0, the best of the others."""
    last, best = t.figure("F5")["round"].max(), best_strength(t)
    tried = t.figure("F5", round=last, method="HeteroFedTTA")["strength"]
    strong = [t.point("F5", round=last, method="HeteroFedTTA", strength=s) for s in tried if s]
    plain = t.point("F5", round=last, method="HeteroFedTTA", strength=0.0)
    tent = t.point("F5", round=last, method="Tent")
    return [above(highest(strong), plain), above(plain, tent), fact(f"best lambda {best:g}, expected 0.6 to 1", best >= 0.6)]


def u13(t):
    rest = ("FedAvg", "FedProx", "AFL", "GMA", "FedADG", "FedSR")
    return [most(above(t.at("T1", "SCAFFOLD", "test", dataset=d), t.best("T1", rest, "test", dataset=d)) for d in datasets(t))]


def u14(t):
    mean = t.figure("U14")["mean"].mean()
    return [fact(f"{mean:.1f} steps kept on average, expected 1 to 50", 1 < mean < 50)]


def f2(t):
    """On the mean over all new clients, not on the one that is shown."""
    mean = t.figure("F2").groupby(["column", "step"])["mean"].mean()
    entropy, accuracy = mean["entropy"], mean["accuracy"]
    best, least = int(accuracy.idxmax()), int(entropy.idxmin())
    return [
        fact(f"least entropy at step {least}, best accuracy at {best}", abs(least - best) <= 3),
        above(accuracy.max(), accuracy.iloc[-1]),
    ]


def f3(t):
    shares = sorted(t.figure("F3")["share"].unique())
    ahead = []
    for s in shares:
        ours, base = ([t.point("F3", share=s, method=m) for m in methods] for methods in (OWN, ("Tent", "ODPFL-HN")))
        ahead.append(above(lowest(ours), highest(base)))
    same = [abs(t.point("F3", share=1.0, method=m) - t.at("T1", m, "test", dataset="cifar10")) for m in OWN]
    one_run = [fact(f"{d} from Table 1, expected none", d.mean < 0.01, exact=True) for d in same]
    return ahead + [within(drop, 2, 8) for drop in drops(t)] + one_run


def f4(t):
    best = best_of_f4(t, "validation")
    comparable = [below(abs(t.point("F4", method=m, column="validation") - best), 1) for m in ("FedTTA", "FedTTA++")]
    sampled, ensemble = (t.point("F4", method=m, column="test") for m in PFL)
    worst = lowest(t.points("F4", t.methods("T1", *PFL), column="test"))
    return [*u11(t), *comparable, below(sampled, 15), above(worst, ensemble)]


def f5(t):
    curves = [t.curve("F5", method="Tent"), t.curve("F5", method="HeteroFedTTA", strength=best_strength(t))]
    tent, ours = (curve.tail(max(len(curve) // 10, 2)).std() for curve in curves)
    return [*u12(t), fact(f"spread over the last tenth of rounds {ours:.2f}, Tent {tent:.2f}", ours < tent)]


def af2(t):
    findings = []
    for d in t.figure("AF2")["dataset"].unique():
        curves = {m: t.curve("AF2", dataset=d, method=m, column="test") for m in ("SCAFFOLD", "FedAvg", "FedTTA", "FedTTA-Prox")}
        fast, slow = (curves[m].index[curves[m] >= 0.95 * curves[m].max()].min() for m in ("SCAFFOLD", "FedAvg"))
        apart = (curves["FedTTA"] - curves["FedTTA-Prox"]).abs().mean()
        findings.append(fact(f"{d}: SCAFFOLD at 95% of its best in round {fast}, FedAvg {slow}", fast < slow))
        findings.append(fact(f"{d}: FedTTA and FedTTA-Prox {apart:.2f} points apart", apart < 3))
    return findings


# How the names of the paper's own methods begin, and how many runs are behind a printed standard deviation.
OURS, SEEDS = ("FedTTA",), 3
# figure (or claim) -> its columns besides std and PROVENANCE.
FIGURE_COLUMNS: dict[str, tuple[str, ...]] = {
    "F2": ("client", "step", "column", "mean"),  # column accuracy, loss, entropy; step 0 is before adaptation
    "F3": ("share", "method", "mean"),
    "F4": ("method", "column", "mean"),  # column validation, test
    "F5": ("round", "method", "strength", "mean"),  # strength: lambda of HeteroFedTTA, 0 for Tent
    "AF2": ("dataset", "round", "method", "column", "mean"),
    "U6": ("alpha", "method", "mean"),  # methods with one model for all clients
    "U14": ("client", "mean"),  # steps that FedTTA++ keeps
}

CLAIMS = (
    Claim("U1", "FedTTA-Prox beats FedTTA on all five data sets", ("T1",), u1),
    Claim("U2", "FedTTA++ beats FedTTA-Prox by a wide margin (1 point) except on FEMNIST", ("T1",), u2),
    Claim("U3", "FedTTA++ beats every baseline on new clients, by about 9, 2, 10 and 1.5 points", ("T1",), u3),
    Claim("U4", "on training clients PFL leads on three data sets, SCAFFOLD on FEMNIST, the paper's own on CIFAR-10", ("T1",), u4),
    Claim("U5", "Tent comes next after the FedTTA family on CIFAR-10", ("T1",), u5),
    Claim("U6", "methods with one model for all clients do not depend on the test alpha", ("U6",), u6),
    Claim("U7", "PFL-Sampled is best where the test distribution is that of training", ("T2",), u7),
    Claim("U8", "a smaller test alpha favours Tent and the FedTTA family", ("T2",), u8),
    Claim("U9", "the best of the FedTTA family leads at every degree of shift", ("T2",), u9),
    Claim("U10", "with a tenth of the test data a slight drop, still ahead of the baselines", ("F3",), u10),
    Claim("U11", "under concept shift FedTTA and FedTTA++ beat the best baseline on new clients", ("F4",), u11),
    Claim("U12", "the proposed distillation beats the plain one, with lambda about 0.8 the best", ("F5",), u12),
    Claim("U13", "SCAFFOLD is generally the best of the methods with one global model", ("T1",), u13),
    Claim("U14", "stopping by entropy keeps some steps, not all 50", ("U14",), u14),
    Claim("F2", "least entropy marks the step of best accuracy; more steps hurt", ("F2",), f2),
    Claim("F3", "ahead at every share of test data; a drop of some points at a tenth", ("F3", "T1"), f3),
    Claim("F4", "concept shift: ahead on new clients, on par on training clients, the PFL pair fails", ("F4",), f4),
    Claim("F5", "HeteroFedTTA is better and steadier than Tent", ("F5",), f5),
    Claim("AF2", "SCAFFOLD converges faster than FedAvg; FedTTA and FedTTA-Prox run alike", ("AF2",), af2),
)
