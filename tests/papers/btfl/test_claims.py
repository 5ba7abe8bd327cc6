"""Verdicts on BTFL's printed cells, with the numbers that the tables give by hand."""

import numpy as np
import pandas as pd
import pytest

from fedlib.papers.btfl.claims import bimodality, moment
from fedlib.published import claims_of
from fedlib.published.evidence import Cells, judge

HOLDS = ["B1", "B2", "B3", "B4", "B6", "B7", "B8"]
UNDECIDED = ["B5", "B9"]
NO_TABLE = ["B10", "B11", "B12", "B13"]


def test_verdicts(printed):
    states = {claim: verdict.state for claim, verdict in printed["btfl"].items()}
    assert states == dict.fromkeys(HOLDS, "holds") | dict.fromkeys(UNDECIDED, "undecided") | dict.fromkeys(NO_TABLE, "not run")


@pytest.mark.parametrize(
    ("claim", "texts"),
    [
        ("B1", [f" {drop} > 0" for drop in ("0.22", "0.81", "15.11", "6.03")] + [f" {c} < 2" for c in ("1.66", "0.26", "0.20", "0.66")]),
        ("B2", ["FedTHE 1.88 >=", "FedTHE 2.71 >=", "kNN-Per 3.15 >="]),
        ("B3", [f" {r} >= 3" for r in ("3.12", "9.31", "4.49", "4.40", "11.84", "3.86", "6.57", "12.23", "4.57")]),
        ("B4", ["1.05 < 1.2"]),
        ("B5", ["1.88 in", "1.35 in"]),
        ("B9", ["kNN-Per 2.99 > 0", "FedTHE 0.22 > 0"]),
    ],
)
def test_numbers(printed, claim, texts):
    findings = [finding.text for finding in printed["btfl"][claim].findings]
    assert [text for text in texts if not any(text in finding for finding in findings)] == []


def test_being_less_far_behind_is_no_lead(as_measured):
    """-5.2 on one data set against -11.5 on the other holds no larger lead."""
    frames = as_measured("btfl", status="ok")
    for table, average in (("T2", 50.0), ("T4", 40.0), ("T5", 60.0)):
        frame = frames[table]
        frame.loc[(frame["method"] == "BTFL") & (frame["column"] == "avg"), "mean"] = average
    claim = next(c for c in claims_of("btfl").CLAIMS if c.id == "B7")
    assert judge(claim, Cells("btfl", frames)).state == "fails"


def test_times_have_the_spread_of_their_repeats(as_measured):
    frames = as_measured("btfl", status="ok", n_seeds=1)
    claim = next(c for c in claims_of("btfl").CLAIMS if c.id == "B3")
    assert judge(claim, Cells("btfl", frames)).state == "holds"
    noisy = {"T3": frames["T3"].assign(std=frames["T3"]["mean"])}
    assert judge(claim, Cells("btfl", noisy)).state == "undecided"


def test_histogram_moments():
    weight = np.linspace(0.005, 0.995, 100)
    even = pd.DataFrame({"weight": weight, "density": 1.0})
    peaks = pd.DataFrame({"weight": weight, "density": np.where(abs(weight - 0.5) > 0.48, 1.0, 0.0)})
    assert moment(even, 1) == pytest.approx(0.5)
    assert bimodality(even) == pytest.approx(5 / 9, abs=1e-3)
    assert bimodality(peaks) == pytest.approx(1, abs=1e-3)
