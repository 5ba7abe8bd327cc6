import math

import pandas as pd
import pytest

from fedlib import published
from fedlib.published.claims import CLAIMS, FIGURE_COLUMNS
from fedlib.published.comparisons import above
from fedlib.published.evidence import Absent, Cells, Claim, judge


def test_tables_are_listed_in_the_order_of_the_print():
    t = Cells("fedthe")
    assert t.methods("T8") == ["MEMO-P", "FedTHE"]
    assert t.base("T12") == ["FedAvg+FT", "FedRoD", "MEMO-P"]
    assert t.own("T12") == ["FedTHE", "FedTHE+"]
    assert t.columns("T3", "average") == ["original", "corrupted", "ooc", "natural", "mixture"]
    assert [b["model"] for b in t.blocks("T7", setting="Dir(1.0)")] == ["cct4", "resnet20gn", "cnn"]
    assert Cells("atp").columns("T2", dataset="pacs") == ["Art", "Cartoon", "Photo", "Sketch"]


def test_a_cell_must_be_named_exactly():
    t = Cells("fedthe")
    assert t.at("T1", "FedTHE+", "ooc", setting="Dir(0.1)").mean == 58.29
    with pytest.raises(ValueError, match="2 cells"):
        t.at("T1", "FedTHE+", "ooc")
    with pytest.raises(ValueError, match="0 cells"):
        t.at("T1", "FedTHE+", "test", setting="Dir(0.1)")


def test_notes_of_one_claim_do_not_reach_the_next():
    t = Cells("fedthe")
    assert math.isnan(t.at("T1", "FedTHE+", "ooc", setting="Dir(1.0)").mean)
    assert (t.lacking, t.read) == (["T1 Dir(1.0) ooc FedTHE+"], {"T1"})
    assert (t.fresh().lacking, t.fresh().read) == ([], set())


def test_measured_cells_bring_spread_and_source(as_measured):
    frames = as_measured("atp", n_seeds=1)
    frames["T1"]["std"] = 0.2
    t = Cells("atp", frames)
    cell = t.at("T1", "Tent", "test", setting="feature shift")
    assert (cell.mean, cell.variance, cell.floor) == (71.76, pytest.approx(0.04), 0.3)
    assert t.used == {("digits", 1, "stand-in")}
    assert math.isnan(Cells("atp", {}).at("T1", "Tent", "test", setting="feature shift").mean)


def test_absent_cell_gives_its_reason(as_measured):
    frames = as_measured("atp", keep=lambda frame: frame["method"] != "MEMO")
    t = Cells("atp", frames)
    assert math.isnan(t.at("T1", "MEMO", "test", setting="label shift").mean)
    assert t.lacking == ["T1 label shift test MEMO (lost in the print)"]


def test_figure_points_and_curves():
    rows = [{"round": r, "method": m, "mean": r + k} for k, m in enumerate(("a", "b")) for r in (2, 1)]
    frame = pd.DataFrame(rows).assign(n_seeds=3, run_dataset="digits", status="ok")
    t = Cells("fedthe", {}, {"F8": frame})
    assert t.point("F8", round=2, method="b").mean == 3
    assert list(t.curve("F8", "round", method="a")) == [1, 2]
    assert t.used == {("digits", 3, "ok")}
    with pytest.raises(ValueError, match="2 rows"):
        t.point("F8", method="a")
    with pytest.raises(Absent, match="F8 at c"):
        t.point("F8", method="c")
    with pytest.raises(Absent, match="F9"):
        t.figure("F9")


def test_states():
    def claim(check):
        return Claim("X", "text", ("T1",), check)

    t = Cells("atp")
    lost = Cells("atp", {}).at("T1", "Tent", "test", setting="label shift")
    assert judge(claim(lambda t: [above(2, 1), above(lost, 1)]), t).state == "holds"
    assert judge(claim(lambda t: [above(2, 1), above(1, 2)]), t).state == "fails"
    assert judge(claim(lambda t: [above(lost, 1)]), t).state == "not run"
    assert judge(claim(lambda t: t.figure("F5")), t).cells.lacking == ["F5"]


def test_long_evidence_is_cut_with_failures_first():
    claim = Claim("X", "text", (), lambda t: [above(k, 0) for k in range(1, 20)] + [above(0, 99)])
    evidence = judge(claim, Cells("atp")).evidence
    assert evidence.startswith("19 of 20 hold: 0 > 99 FAILS; 1 > 0; 2 > 0")
    assert evidence.endswith("11 > 0; 8 more")


@pytest.mark.parametrize("paper", published.PAPERS)
def test_claims_are_well_formed(paper, printed):
    ids = [claim.id for claim in CLAIMS[paper]]
    assert len(set(ids)) == len(ids)
    tables = set(published.cells(paper)["table"])
    for claim in CLAIMS[paper]:
        assert claim.text
        assert set(claim.reads) <= tables | set(FIGURE_COLUMNS[paper])
        assert printed[paper][claim.id].cells.read <= set(claim.reads), claim.id


@pytest.mark.parametrize("paper", published.PAPERS)
def test_every_figure_with_numbers_has_columns(paper):
    drawn = published.figures(paper).query("kind != 'images'")["figure"]
    claims = {claim.id for claim in CLAIMS[paper]}
    assert set(drawn) <= set(FIGURE_COLUMNS[paper]) <= set(drawn) | claims
