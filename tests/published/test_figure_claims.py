"""Claims about figures: each holds on numbers drawn to support it, and none of them survives the same numbers spoilt."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from fedlib.papers.atp.claims import FEATURE, LABEL, TOY
from fedlib.papers.btfl.claims import STRONG
from fedlib.papers.fedthe.claims import BOTH, LONG
from fedlib.papers.upfl.claims import ONE_MODEL, OWN
from fedlib.published import PAPERS, claims_of
from fedlib.published.evidence import Cells, judge
from fedlib.published.ledger import PROVENANCE

GRID = np.linspace(0.025, 0.975, 20)


def long(paper, figure, rows):
    source = {"std": 0.0, "n_seeds": 3, "run_dataset": "digits", "run_model": "cnn", "status": "stand-in"}
    frame = pd.DataFrame(rows, columns=claims_of(paper).FIGURE_COLUMNS[figure]).assign(**source)
    return frame[[*claims_of(paper).FIGURE_COLUMNS[figure], "std", *PROVENANCE]]


def spread(rows, names):
    """(row, name, value) for each row's values, one for each name."""
    return [(row, name, value) for row, values in rows.items() for name, value in zip(names, values, strict=True)]


def bump(*centres):
    """Histogram with a narrow peak at each centre."""
    return sum(np.exp(-(((GRID - c) / 0.05) ** 2)) for c in centres)


def fedthe():
    rates = {m: 0.9 if m in BOTH else 0.5 for m in LONG}
    curves = [(r, m, "mixture", 70 * (1 - np.exp(-k * r / 10))) for r in range(1, 101) for m, k in rates.items()]
    curves = [(r, m, c, v + (1 if m == "FedTHE+" else 0)) for r, m, c, v in curves]
    heads = [("FedTHE", None, 69), ("FedTHE+", None, 72), ("oracle", None, 70)]
    heads += [("shared", weight, accuracy) for weight, accuracy in ((0.0, 55), (0.5, 65), (1.0, 60))]
    models = [("FedTHE", None, 69), ("oracle", None, 66), ("shared", 0.5, 60)]
    probes = spread({"LP": (90, 60), "FT": (91, 55), "LP-FT": (91, 65)}, ("original", "corrupted"))
    centres = {"original": 0.85, "corrupted": 0.6, "natural": 0.65, "ooc": 0.2}
    return {
        "F12": curves,
        "F13": curves,
        "F14": [("Dir(0.1)", *row) for row in heads],
        "F15": [("Dir(0.1)", *row) for row in models],
        "F16": [(a, b, "mixture", 60 + 10 * a + b) for a in (0.05, 0.1, 0.2) for b in (0.1, 0.3, 0.5)],
        "F6": probes,
        "F7": probes,
        "F17": spread({c: bump(centre) for c, centre in centres.items()}, GRID),
        "H26": [(f"T3A by {unit}", "original", v) for unit, v in (("sample", 70.0), ("batch", 70.4))],
    }


def upfl():
    test = {"FedTTA": 79.8, "FedTTA-Prox": 81.41, "FedTTA++": 83.31, "Tent": 74.46, "ODPFL-HN": 60.0}
    bars = dict.fromkeys(Cells("upfl").methods("T1"), (88, 85))
    bars |= {"FedTTA": (90, 88.4), "FedTTA++": (90, 88.6), "SCAFFOLD": (90.5, 87), "PFL-Sampled": (40, 9.92), "PFL-Ensemble": (67, 63.5)}
    steps = np.arange(51)
    client = {"entropy": abs(steps - 12) / 50, "accuracy": 80 - 0.2 * abs(steps - 11), "loss": 1 / (1 + steps)}
    wave = np.sin(np.arange(1, 101))
    hetero = {0.0: 62, 0.4: 64, 0.8: 66, 1.0: 65}
    rates = {"SCAFFOLD": 0.2, "FedAvg": 0.05, "FedTTA": 0.1, "FedTTA-Prox": 0.1}
    return {
        "F2": [(0, s, c, v) for c, s, v in spread(client, steps)],
        "F3": [(share, m, v - 5 * (1 - share) / 0.9) for share in (0.1, 0.5, 1.0) for m, v in test.items()],
        "F4": spread(bars, ("validation", "test")),
        "F5": [(r, "Tent", 0.0, 58 + w) for r, w in enumerate(wave, 1)]
        + [(r, "HeteroFedTTA", k, v + 0.1 * w) for k, v in hetero.items() for r, w in enumerate(wave, 1)],
        "AF2": [("mnist", r, m, "test", 90 * (1 - np.exp(-k * r))) for m, k in rates.items() for r in range(1, 101)],
        "U14": [(client, kept) for client, kept in enumerate((2, 14, 14))],
        "U6": [(a, m, 60 + a) for a in (0.01, 0.1, 0.5) for m in ONE_MODEL],
    }


def atp():
    gains = {"BN-Adapt": (4, -18), "SHOT": (2, -24), "Tent": (2, -22), "EM": (-4, 7), "BBSE": (-5, 6), "NoAdapt": (0, 0)}
    sets = [(s, "none", "none", 0, 70) for s in (FEATURE, LABEL)]
    sets += [(s, "type", "running mean", r, 70 + r * g) for s, g in ((FEATURE, 4), (LABEL, -3)) for r in (-1, 1)]
    sets += [(s, "block", b, 1, 71) for s in (FEATURE, LABEL) for b in ("stem", "head")]
    rates = [(s, "type", m, v) for s, v in ((FEATURE, 0.3), (LABEL, -0.2)) for m in ("running mean", "running variance")]
    rates += [(s, "type", "weight", -v) for s, v in ((FEATURE, 0.9), (LABEL, -0.9))]
    rates += [(s, "block", b, v) for s, b, v in spread({FEATURE: (0.4, 0.01), LABEL: (0.0, -0.2)}, ("stem", "head"))]
    # Weight and bias of the head move against each other: only their sizes count.
    rates += [(s, "module", m, v) for s, m, v in spread({FEATURE: (0.01, -0.01), LABEL: (0.2, -0.2)}, ("head.weight", "head.bias"))]
    adapted = {"NoAdapt": (60, 0), "ATP-batch": (69, 3), "ATP-online": (71, 1)}
    noise = np.random.default_rng(0).standard_normal(40)
    losses = [
        (c, r, k, 2 * np.exp(-r / 20) + offset + (noise[r] / c if k == "train" else 0))
        for c, r, (k, offset) in product((240, 120, 60, 30, 15), range(40), (("train", 0.3), ("test", 0.1)))
    ]
    return {
        "F2": [(m, s, 70 + g) for m, s, g in spread(gains, (FEATURE, LABEL))],
        "F3": sets,
        "F4": rates,
        "F5": [("cohort", n, m, v) for n in (15, 240) for m, (v, _) in adapted.items()]
        + [("batch", n, m, v + k * n / 200) for n in (5, 200) for m, (v, k) in adapted.items()],
        "F8": losses,
        "F9": [("test", a, y, 0.0, 0.4, accuracy) for a, accuracy in TOY.items() for y in (-1, 1)],
        "A16": [(50, 11_000_000, 122)],
        "A17": [(1.4,)],
    }


def fedicon():
    return {
        "F1b": [(s, c, v) for c in ("SVHN", "USPS") for s, v in (("single", 40), ("heterogeneous", 45))],
        "F3a": [(n, m, v - n / 10) for n in (5, 20, 80) for m, v in (("FedAvg", 55), ("FedICON", 62))],
        "F3b": [(e, m, v) for m, e, v in spread({"FedAvg": (57, 55, 52), "FedICON": (60, 63, 62)}, (1, 5, 9))],
    }


def btfl():
    bars = [("BTFL", 68), *((m, 66 if m == "FedTHE" else 58) for m in Cells("btfl").base("T2"))]
    centres = {"original_ind": (0.1,), "shifted_ind": (0.2, 0.6), "original_exd": (0.8,), "shifted_exd": (0.85,), "synthetical": (0.1, 0.9)}
    histograms = {c: bump(*peaks) for c, peaks in centres.items()} | {"average": np.ones(20)}
    return {
        "F1": [(n, c, v) for c, n, v in spread({"similarity": (0.8, 0.4), "alignment": (0.5, 2.0)}, (2, 10))],
        "F4": [(s, m, "avg", v) for s in ("Dir(0.1)", "Dir(1.0)") for m, v in bars],
        "F5": [(model, m, "avg", v) for model in ("resnet20gn", "cct4") for m, v in bars if m in (*STRONG, "BTFL")],
        "F6": spread(histograms, GRID),
        "B13": [("BTFL", k, "avg", 68 + k / 100) for k in (4, 16, 64)],
    }


DRAWN = {"fedthe": fedthe(), "upfl": upfl(), "atp": atp(), "fedicon": fedicon(), "btfl": btfl()}
FRAMES = {paper: {name: long(paper, name, rows) for name, rows in drawn.items()} for paper, drawn in DRAWN.items()}
CASES = [
    (paper, claim)
    for paper in PAPERS
    for claim in claims_of(paper).CLAIMS
    if any(name in claims_of(paper).FIGURE_COLUMNS for name in claim.reads)
]
CASES = [(paper, claim) for paper, claim in CASES if not set(claim.reads) <= {f"T{i}" for i in range(16)}]


def cells(paper, frames, as_measured):
    """Figures, and beside them the tables that one claim of UPFL compares them with."""
    tables = as_measured(paper) if paper == "upfl" else {}
    return Cells(paper, {name: table.assign(std=0.0) for name, table in tables.items()}, frames)


@pytest.mark.parametrize(("paper", "claim"), CASES, ids=lambda value: getattr(value, "id", value))
def test_holds_on_supporting_numbers(paper, claim, as_measured):
    verdict = judge(claim, cells(paper, FRAMES[paper], as_measured))
    assert verdict.state == "holds", verdict.evidence
    assert len(verdict.made) == len(verdict.findings)
    assert verdict.cells.read <= set(claim.reads)
    assert ("digits", 3, "stand-in") in verdict.cells.used


def spoil(frame):
    """The same figure with its numbers mirrored about the middle of their range and the range widened (a constant: raised)."""
    value = next(name for name in ("mean", "weight", "accuracy", "peak_gigabytes") if name in frame)
    middle = (frame[value].max() + frame[value].min()) / 2
    if value == "weight":
        return frame.assign(weight=1 - frame["weight"])
    return frame.assign(**{value: middle - 4 * (frame[value] - middle) + (2 if frame[value].nunique() == 1 else 0)})


@pytest.mark.parametrize(("paper", "claim"), [c for c in CASES if c[1].id != "A16"], ids=lambda value: getattr(value, "id", value))
def test_fails_on_spoilt_numbers(paper, claim, as_measured):
    frames = {name: spoil(frame) for name, frame in FRAMES[paper].items() if name != "A16"}
    assert judge(claim, cells(paper, frames, as_measured)).state == "fails"


def test_communication_of_a_model_that_is_all_rates(as_measured):
    claim = next(c for c in claims_of("atp").CLAIMS if c.id == "A16")
    frames = {"A16": long("atp", "A16", [(10, 100, 100)])}
    assert judge(claim, cells("atp", frames, as_measured)).state == "fails"


def test_every_figure_that_a_claim_reads_was_drawn():
    for paper, claim in CASES:
        assert {name for name in claim.reads if name in claims_of(paper).FIGURE_COLUMNS} <= set(DRAWN[paper])


def test_drops_carry_the_margin_of_the_seeds(as_measured):
    claim = next(c for c in claims_of("upfl").CLAIMS if c.id == "U10")
    frame = FRAMES["upfl"]["F3"].assign(std=0.3)
    assert all(m in OWN for m in frame["method"].unique()[:3])
    near = frame["method"].eq("Tent") & frame["share"].eq(0.1)
    # Margin: two standard deviations of 0.3 over three seeds, 0.245.
    for value, n_seeds, state in ((74.8 - 0.25, 3, "holds"), (74.8, 3, "undecided"), (74.8 + 0.25, 3, "fails"), (70.0, 1, "undecided")):
        frames = {"F3": frame.assign(mean=frame["mean"].where(~near, value), n_seeds=n_seeds)}
        assert judge(claim, cells("upfl", frames, as_measured)).state == state


def test_one_number_of_classes_tells_nothing_about_more():
    figure = long("btfl", "F1", [(10, c, v) for c, v in (("similarity", 0.6), ("alignment", 0.9))])
    verdict = judge(next(c for c in claims_of("btfl").CLAIMS if c.id == "B11"), Cells("btfl", {}, {"F1": figure}))
    assert verdict.state == "not run"
    assert verdict.cells.lacking == ["F1 at two numbers of classes"]


@pytest.mark.parametrize(
    ("paper", "claim", "name"),
    [(paper, claim, name) for paper, claim in CASES for name in claim.reads if "method" in FRAMES[paper].get(name, ())],
    ids=lambda value: getattr(value, "id", value),
)
def test_a_run_of_some_methods_is_judged_as_far_as_it_goes(paper, claim, name, as_measured):
    """Any single method left out, or alone: no claim stops the notebook, and none that holds fails for it."""
    frame = FRAMES[paper][name]
    for method in frame["method"].unique():
        for part in (frame[frame["method"] == method], frame[frame["method"] != method]):
            verdict = judge(claim, cells(paper, FRAMES[paper] | {name: part}, as_measured))
            assert verdict.state in ("holds", "undecided", "not run")


@pytest.mark.parametrize(
    ("paper", "claim", "figure", "rival"),
    [("fedthe", "H2", "F12", "FedRoD"), ("btfl", "B10", "F5", "kNN-Per"), ("upfl", "U11", "F4", "AFL"), ("upfl", "F4", "F4", "FedSR")],
)
def test_a_lead_over_the_best_needs_all_rivals(paper, claim, figure, rival, as_measured):
    frame = FRAMES[paper][figure]
    one = next(c for c in claims_of(paper).CLAIMS if c.id == claim)
    assert judge(one, cells(paper, FRAMES[paper] | {figure: frame[frame["method"] != rival]}, as_measured)).state == "undecided"


def test_plain_distillation_that_leads_refutes_the_proposed_one(as_measured):
    frame = FRAMES["upfl"]["F5"]
    plain = (frame["method"] == "HeteroFedTTA") & (frame["strength"] == 0)
    led = frame.assign(mean=frame["mean"] + 30.0 * plain)
    one = next(c for c in claims_of("upfl").CLAIMS if c.id == "U12")
    assert judge(one, cells("upfl", FRAMES["upfl"] | {"F5": led}, as_measured)).state == "fails"


def test_a_curve_that_never_arrives_is_called_so(as_measured):
    frame = FRAMES["fedthe"]["F12"]
    low = frame.assign(mean=frame["mean"].where(frame["method"] != "FedTHE+", 0.0))
    one = next(c for c in claims_of("fedthe").CLAIMS if c.id == "H2")
    verdict = judge(one, cells("fedthe", FRAMES["fedthe"] | {"F12": low}, as_measured))
    assert verdict.state == "fails"
    assert "FedTHE+ never reaches" in str(verdict)


@pytest.mark.parametrize(
    ("paper", "claim", "figure", "ours", "lacking"),
    [
        ("fedthe", "H2", "F12", "FedTHE+", "F12 with FedTHE+ and a baseline"),
        ("btfl", "B10", "F4", "BTFL", "F4 at BTFL, avg, Dir(0.1)"),
    ],
)
def test_without_the_papers_own_method_there_is_nothing_to_judge(paper, claim, figure, ours, lacking):
    frame = FRAMES[paper][figure]
    found = next(c for c in claims_of(paper).CLAIMS if c.id == claim)
    verdict = judge(found, Cells(paper, {}, FRAMES[paper] | {figure: frame[frame["method"] != ours]}))
    assert (verdict.state, verdict.cells.lacking) == ("not run", [lacking])
