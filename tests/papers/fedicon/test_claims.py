"""Verdicts on FedICON's printed cells, with the numbers that the tables give by hand."""

import pytest

from fedlib.published import claims_of
from fedlib.published.evidence import Cells, judge

HOLDS = ["I3", "I8", "I9"]
UNDECIDED = ["I1", "I2", "I4", "I5", "I7"]
NO_TABLE = ["I6", "I10", "F3a", "F3b"]


def test_verdicts(printed):
    states = {claim: verdict.state for claim, verdict in printed["fedicon"].items()}
    assert states == dict.fromkeys(HOLDS, "holds") | dict.fromkeys(UNDECIDED, "undecided") | dict.fromkeys(NO_TABLE, "not run")


@pytest.mark.parametrize(
    ("claim", "texts"),
    [
        ("I1", ["(+3.22", "(+1.00", "(+4.62", "(+3.73", "(+0.25"]),
        ("I2", ["(+5.55", "(+4.64", "Webcam: FedICON 48.21 > FedAvg 48.21 (+0.00"]),
        ("I3", ["most: 8 of 9", "most: 6 of 9"]),
        ("I4", ["(+0.56", "(+0.91"]),
        ("I5", ["|FedICON| 3.77", "|FedICON| 7.02"]),
        ("I7", ["Tent 59.14"]),
        ("I8", ["Local 5.92 in", "LIE 1.07 in", "FedAvg 4.50 in", "GIS 2.84 in"]),
        ("I9", ["LIE 10.79 > FedICON:TTA - Local 5.92"]),
    ],
)
def test_numbers(printed, claim, texts):
    findings = [finding.text for finding in printed["fedicon"][claim].findings]
    assert [text for text in texts if not any(text in finding for finding in findings)] == []


def test_sharing_that_costs_does_not_matter_more(as_measured):
    """Losses of 1 from sharing are more than losses of 2 from adaptation, and no gain."""
    frames = as_measured("fedicon", status="ok")
    values = dict.fromkeys(("Local", "FedICON:LIE"), 60.0) | dict.fromkeys(("FedAvg", "FedICON:LIE+GIS"), 59.0)
    values |= dict.fromkeys(("FedICON:TTA", "FedICON:LIE+TTA"), 58.0) | dict.fromkeys(("FedICON:GIS+TTA", "FedICON"), 57.0)
    frames["T5"] = frames["T5"].assign(mean=frames["T5"]["method"].map(values), std=0.0)
    claim = next(c for c in claims_of("fedicon").CLAIMS if c.id == "I9")
    assert judge(claim, Cells("fedicon", frames)).state == "fails"


def test_only_webcam_ties(printed, count):
    assert count(printed["fedicon"]["I2"]) == (3, 4)
