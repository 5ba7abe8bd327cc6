"""Verdicts on ATP's printed cells, with the numbers that the tables give by hand."""

import pytest

HOLDS = ["A1", "A2", "A3", "A4", "A7", "A8", "A9", "A10", "A11", "A12"]
UNDECIDED = ["A5", "A6"]
NO_TABLE = ["A13", "A14", "A15", "A16", "A17", "F2", "F3", "F4", "F5", "F8", "F9"]


def test_verdicts(printed):
    states = {claim: verdict.state for claim, verdict in printed["atp"].items()}
    assert states == dict.fromkeys(HOLDS, "holds") | dict.fromkeys(UNDECIDED, "undecided") | dict.fromkeys(NO_TABLE, "not run")


@pytest.mark.parametrize(
    ("claim", "texts"),
    [
        ("A1", ["T3A - NoAdapt 0.11 > 0", "T3A - NoAdapt -1.28 < 0"]),
        ("A2", [f"{m} - NoAdapt {g} > 0" for m, gs in (("MEMO", (3.01, 4.32, 4.39)), ("Surgical", (0.43, 3.02, 3.26))) for g in gs]),
        ("A3", ["BN-Adapt 73.52 by -1 (+0.16", "EM 80.73 by -1 (-0.83", "(+0.54", "(+1.23"]),
        ("A4", ["EM 69.85 by 2 (+3.20"]),
        ("A5", ["ATP-online 97.81 >= ATP-batch 97.81", "ATP-online 79.46 >= ATP-batch 79.64 (-0.18"]),
        ("A6", [f"(+{lead} ±" for lead in ("0.46", "1.51", "1.22", "1.85", "4.11", "8.33", "0.55", "3.06", "1.38")]),
        ("A9", ["NoAdapt 72.98 > ATP-batch 65.05", "NoAdapt 69.42 > ATP-batch 67.99", "ATP-batch 72.69 >", "ATP-batch 78.92 >"]),
        ("A10", ["ATP-params - NoAdapt 5.31 > ATP-stats - NoAdapt 1.05", "NoAdapt 1.85 > ATP-params - NoAdapt -0.19"]),
        ("A11", ["ATP-batch - NoAdapt 9.05 > 0", "ATP-online - NoAdapt 11.27 > 0", "NoAdapt - NoAdapt 0.88 < 2"]),
        ("A12", [f"NoAdapt {gain} > 0" for gain in ("9.37", "9.18", "9.28", "11.69", "11.74", "11.92")]),
    ],
)
def test_numbers(printed, claim, texts):
    findings = [finding.text for finding in printed["atp"][claim].findings]
    assert [text for text in texts if not any(text in finding for finding in findings)] == []


def test_online_improves_on_batch_beyond_its_own_spread_in_most_cells(printed, count):
    assert count(printed["atp"]["A5"]) == (19, 26)
    evidence = printed["atp"]["A5"].evidence
    assert evidence.startswith("19 of 26 hold, 7 undecided: ")
    assert "T2 pacs Cartoon: ATP-online 79.46 >= ATP-batch 79.64 (-0.18 ± 0.48) UNDECIDED" in evidence
