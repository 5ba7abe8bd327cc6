import math
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest

from fedlib import published
from fedlib.published import claims_of
from fedlib.published.comparisons import Quantity, above, fact
from fedlib.published.evidence import Absent, Cells, Claim, judge
from fedlib.published.units import Units


def test_tables_are_listed_in_the_order_of_the_print():
    t = Cells("fedthe")
    assert t.methods("T8") == ["MEMO-P", "FedTHE"]
    assert t.base("T12") == ["FedAvg+FT", "FedRoD", "MEMO-P"]
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
    frames = as_measured("atp", n_seeds=4)
    frames["T1"]["std"] = 0.2
    t = Cells("atp", frames)
    cell = t.at("T1", "Tent", "test", setting="feature shift")
    assert (cell.mean, cell.margin, cell.freedom) == (71.76, pytest.approx(0.1), 3)
    assert t.used == {("digits", 4, "stand-in")}
    single = Cells("atp", {"T1": frames["T1"].assign(n_seeds=1)}).at("T1", "Tent", "test", setting="feature shift")
    assert math.isnan(single.margin), "one seed tells no spread"
    units = Units(((0, 0), (0, 1)), np.array([70.0, 74.0]), np.ones(2), np.full(2, 9))
    paired = frames["T1"].assign(n_seeds=1, units=[units] * len(frames["T1"]))
    assert Cells("atp", {"T1": paired}).at("T1", "Tent", "test", setting="feature shift").margin == pytest.approx(2)
    assert math.isnan(Cells("atp", {}).at("T1", "Tent", "test", setting="feature shift").mean)


def test_the_deviation_of_a_time_is_its_margin(as_measured):
    """It is over repeats of one measurement, however many seeds were trained."""
    frames = as_measured("btfl", n_seeds=4)
    frames["T3"]["std"] = 0.2
    time = Cells("btfl", frames).at("T3", "TTT", "seconds_per_1000", model="cnn")
    assert (time.margin, math.isnan(time.freedom)) == (pytest.approx(0.2), True)


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
    assert list(t.curve("F8", method="a")) == [1, 2]
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
    assert judge(claim(lambda t: [above(2, 1), above(3, 1), above(lost, 1)]), t).state == "holds"
    assert judge(claim(lambda t: [above(2, 1), above(lost, 1)]), t).state == "undecided", "half of it is not the claim"
    assert judge(claim(lambda t: [above(2, 1)] * 3 + [above(lost, 1)] * 2), t).state == "holds", "one run fills most of what it asks for"
    assert judge(claim(lambda t: [above(2, 1), above(Quantity(2, 4.0), 1)]), t).state == "undecided"
    assert judge(claim(lambda t: [above(1, 2), above(Quantity(2, 4.0), 1)]), t).state == "fails"
    assert judge(claim(lambda t: [above(2, 1), above(1, 2)]), t).state == "fails"
    assert judge(claim(lambda t: [above(lost, 1)]), t).state == "not run"
    assert judge(claim(lambda t: t.figure("F5")), t).cells.lacking == ["F5"]


def test_printed_margins_are_those_of_the_papers_seeds():
    tent = published.cells("atp", "T1").query("method == 'Tent' and setting == 'feature shift'").iloc[0]
    assert Cells("atp").at("T1", "Tent", "test", setting="feature shift").margin == pytest.approx(tent["std_value"] / np.sqrt(5))
    assert Cells("fedthe").at("T3", "FedTHE", "average").strict, "its printed deviation is over tests"


def test_the_shape_of_a_curve_is_left_open_on_one_seed():
    frame = pd.DataFrame({"round": [1, 2], "mean": [1.0, 2.0], "n_seeds": 1, "run_dataset": "digits", "status": "ok"})
    claim = Claim("X", "text", ("F8",), lambda t: [fact("rises", t.curve("F8").is_monotonic_increasing)])
    exact = Claim("Y", "text", ("F8",), lambda t: [fact("rises", t.curve("F8").is_monotonic_increasing, exact=True)])
    assert judge(claim, Cells("fedthe", {}, {"F8": frame})).state == "undecided"
    assert judge(exact, Cells("fedthe", {}, {"F8": frame})).state == "holds"
    assert judge(claim, Cells("fedthe", {}, {"F8": frame.assign(n_seeds=3)})).state == "holds"
    beyond = Claim("Z", "text", ("F8",), lambda t: [above(t.curve("F8").get(3, math.nan), 1.0)])
    assert judge(beyond, Cells("fedthe", {}, {"F8": frame})).state == "not run", "a round that it did not reach"


def test_one_run_that_fills_several_printed_data_sets_counts_once(as_measured):
    """Without the data sets' own images one training serves them all; it is no five confirmations."""
    frames = as_measured("upfl", status="ok")
    one = frames["T1"]["setting"].eq("pathological")
    frames["T1"].loc[one, ["mean", "std"]] = 50.0, 0.1
    frames["T1"].loc[one & frames["T1"]["method"].eq("FedTTA-Prox"), "mean"] = 60.0
    claim = next(c for c in claims_of("upfl").CLAIMS if c.id == "U1")
    verdict = judge(claim, Cells("upfl", frames))
    assert (len(verdict.findings), verdict.repeated) == (6, 4)
    assert "4 repeat the same run" in verdict.evidence


def test_a_claim_of_many_data_sets_is_not_judged_on_one(as_measured):
    frames = as_measured("upfl", status="ok", keep=lambda frame: (frame["mean"] != "") & (frame["dataset"] == "cifar10"))
    verdict = judge(next(c for c in claims_of("upfl").CLAIMS if c.id == "U4"), Cells("upfl", frames))
    assert len(verdict.made) == 1
    assert verdict.findings[verdict.findings.index(verdict.made[0])].state == "holds"
    assert verdict.state == "undecided"


def test_long_evidence_is_cut_with_failures_first():
    claim = Claim("X", "text", (), lambda t: [above(k, 0) for k in range(1, 20)] + [above(0, 99)])
    evidence = judge(claim, Cells("atp")).evidence
    assert evidence.startswith("19 of 20 hold, 1 fails: 0 > 99 FAILS; 1 > 0; 2 > 0")
    assert evidence.endswith("11 > 0; 8 more")


@pytest.mark.parametrize("paper", published.PAPERS)
def test_claims_are_well_formed(paper, printed):
    ids = [claim.id for claim in claims_of(paper).CLAIMS]
    assert len(set(ids)) == len(ids)
    tables = set(published.cells(paper)["table"])
    for claim in claims_of(paper).CLAIMS:
        assert claim.text
        assert set(claim.reads) <= tables | set(claims_of(paper).FIGURE_COLUMNS)
        assert printed[paper][claim.id].cells.read <= set(claim.reads), claim.id


@pytest.mark.parametrize("paper", published.PAPERS)
def test_every_figure_with_numbers_has_columns(paper):
    drawn = pd.read_csv(files(f"fedlib.papers.{paper}") / "figures.csv").query("kind != 'images'")["figure"]
    claims = {claim.id for claim in claims_of(paper).CLAIMS}
    assert set(drawn) <= set(claims_of(paper).FIGURE_COLUMNS) <= set(drawn) | claims
