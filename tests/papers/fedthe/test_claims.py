"""Verdicts on FedTHE's printed cells, with the numbers that the tables give by hand."""

import pytest

HOLDS = ["H3b", "H4", "H5", "H8", "H11", "H12", "H13", "H14", "H16"]
FAILS = ["H3", "H6", "H7", "H9", "H17", "H18", "H20"]
UNDECIDED = ["H1", "H10", "H15", "H19", "H21"]
NO_TABLE = ["H2", "H22", "H23", "H24", "H25", "H26"]


def test_verdicts(printed):
    states = {claim: verdict.state for claim, verdict in printed["fedthe"].items()}
    expected = {"holds": HOLDS, "fails": FAILS, "undecided": UNDECIDED, "not run": NO_TABLE}
    assert states == {claim: state for state, claims in expected.items() for claim in claims}
    assert set(states) == {f"H{i}" for i in range(1, 27)} | {"H3b"}


@pytest.mark.parametrize(
    ("claim", "counts"),
    [
        ("H1", (4, 9)),
        ("H9", (8, 12)),
        ("H15", (6, 8)),
        ("H17", (0, 8)),
        ("H18", (58, 79)),
        ("H20", (6, 10)),
        ("H21", (6, 10)),
    ],
)
def test_counts(printed, count, claim, counts):
    assert count(printed["fedthe"][claim]) == counts


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        ("H1", "T1 Dir(0.1) original: FedTHE+ 90.55 > kNN-Per (best of 11 of 12) 89.18 (+1.37"),
        ("H1", "T1 Dir(1.0) natural: FedTHE+ 68.45 > MEMO-P 68.79 (-0.34"),
        ("H1", "T1 Dir(0.1) ooc: FedTHE+ 58.29 > T3A 36.76 (+21.53"),
        ("H3", "most: 2 of 15"),
        ("H3", "T6 resnet20gn ooc: FedTHE+ 82.66 >= T3A (best of 4 of 5) 68.32 by 10 (+14.34"),
        ("H4", "T2 imagenet_a: T3A 8.26 < 10"),
        ("H6", "-0.3845 < 0"),
        ("H8", "TwoHead:+BSM+EM 59.78 (+9.88"),
        ("H9", "T3 average: TwoHead:+BSM+FA+EM 72.50 > TwoHead:+BSM+FA 74.38 (-1.88"),
        ("H10", "FedTHE+ - FedTHE 1.02 > MEMO-P:+LPFT - MEMO-P 0.37 (+0.65"),
        ("H11", "(+3.42"),
        ("H13", "(+0.34"),
        ("H16", "T4 mixture: FedTHE+ 70.71 > MEMO-G 69.98 (+0.73"),
        ("H17", "T7 cnn Dir(1.0): FedTHE 52.36 >= FedAvg+FT (best of 1 of 5) 46.43 by 8 (+5.93"),
        ("H18", "T8 Dir(0.1), severity 4 corrupted: FedTHE 84.58 > MEMO-P 84.62 (-0.04"),
        ("H19", "1.12 < 1.5"),
        ("H20", "T12 natural: FedTHE 77.86 > MEMO-P (best of 2 of 3) 78.62 (-0.76"),
        ("H21", "T15 natural: FedTHE+ 81.64 > MEMO-P 81.49 (+0.15"),
    ],
)
def test_numbers(printed, claim, text):
    assert any(text in finding.text for finding in printed["fedthe"][claim].findings)


def test_correlations(printed):
    """Without APFL at Dir(1.0), two of whose numbers look exchanged."""
    values = [float(f.text.split(" > ")[0]) for f in printed["fedthe"]["H5"].findings]
    assert values == pytest.approx([1.00, 0.99, 0.88, 0.92], abs=0.006)


def test_suspect_and_lost_cells_are_named(printed):
    assert "T7 resnet20gn Dir(1.0) FedTHE+" in printed["fedthe"]["H17"].evidence
    assert "1 not judged" in printed["fedthe"]["H1"].evidence
    assert "T1 Dir(1.0) ooc FedTHE+" in printed["fedthe"]["H1"].cells.lacking
