from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fedlib import published
from fedlib.papers.atp import toy as atp_toy
from fedlib.published.comparisons import Finding
from fedlib.published.evidence import Cells, Verdict
from fedlib.published.ledger import _short, ledger
from fedlib.published.units import Units
from fedlib.results import CLAIM_COLUMNS, write_claims


@pytest.mark.parametrize("paper", published.PAPERS)
def test_nothing_run(paper, tmp_path):
    frame = ledger(paper, {})
    assert tuple(frame.columns) == CLAIM_COLUMNS
    assert set(frame["ours"]) == {"not run"}
    assert frame["verdict"].str.startswith("not run: lacks ").all()
    write_claims(frame, tmp_path)


@pytest.mark.parametrize("paper", published.PAPERS)
def test_the_printed_numbers_as_results_give_the_printed_verdicts(paper, as_measured):
    frame = ledger(paper, as_measured(paper, status="ok", data="cifar10"))
    judged = frame[frame["published"] != "no table"]
    # To find a print at odds with a claim takes one standard error, to refute the claim more.
    milder = (judged["published"] == "fails") & judged["verdict"].str.contains(" - not shown, but ")
    # What may be misprinted decides nothing in print, and as a measurement it does.
    sure = ~judged["evidence"].str.split(" | ours: ", regex=False).str[0].str.contains("suspect print")
    assert (judged["ours"] == judged["published"].where(~milder, "undecided"))[sure].all()
    assert sure.mean() > 0.5
    assert (frame["ours"] == "not run").sum() == len(frame) - len(judged)
    assert judged["verdict"].str.contains("on cifar10 (", regex=False).all()


def test_stand_in_data_never_refutes(as_measured):
    frame = ledger("fedthe", as_measured("fedthe")).set_index("claim")
    assert frame.loc["H3", "published"] == "fails"
    assert frame.loc["H3", "ours"] == "undecided"
    assert frame.loc["H3", "verdict"] == (
        "undecided on digits (stand-in, 3 seeds): 0 of 1 hold, 1 fails - not shown, but such a run cannot refute"
    )
    assert frame.loc["H11", "verdict"] == "holds on digits (stand-in, 3 seeds)"
    assert frame.loc["H1", "verdict"] == "undecided on digits (stand-in, 3 seeds), 9 of 10 comparisons run: 4 of 9 hold, 5 undecided"
    assert "fails" not in set(frame["ours"])


def test_a_users_images_never_refute(as_measured):
    frame = ledger("fedthe", as_measured("fedthe", status="ok", data="mine.npz"), changed=["rounds"]).set_index("claim")
    assert frame.loc["H11", "verdict"] == "holds on mine.npz (a user's images, changed: rounds; 3 seeds)"
    whole = ledger("fedthe", as_measured("fedthe", status="ok", data="mine.npz")).set_index("claim")
    assert whole.loc["H3", "verdict"].endswith("0 of 1 hold, 1 fails - not shown, but such a run cannot refute")
    assert "fails" not in set(whole["ours"])


def test_real_data_may_refute(as_measured):
    frames = as_measured("atp", status="ok", data="cifar10")
    worse = (frames["T1"]["method"] == "ATP-batch") & (frames["T1"]["setting"] == "hybrid shift")
    frames["T1"].loc[worse, "mean"] = 60.0
    row = ledger("atp", frames).set_index("claim").loc["A4"]
    assert (row["published"], row["ours"], row["verdict"]) == ("holds", "fails", "fails on cifar10 (5 seeds): 1 of 2 fails beyond chance")
    assert "paper: 2 of 2 hold" in row["evidence"]
    assert "ours: 1 of 2 hold, 1 fails: T1 hybrid shift test: ATP-batch 60.00 > EM 69.85 by 2 (-9.85" in row["evidence"]


def test_a_copy_of_the_images_refutes_with_the_data_named(as_measured):
    frames = as_measured("atp", status="ok", data="CIFAR-10 (JPEG)")
    frames["T1"].loc[(frames["T1"]["method"] == "ATP-batch") & (frames["T1"]["setting"] == "hybrid shift"), "mean"] = 60.0
    row = ledger("atp", frames).set_index("claim").loc["A4"]
    assert (row["ours"], row["verdict"]) == ("fails", "fails on CIFAR-10 (JPEG) (5 seeds): 1 of 2 fails beyond chance")


def test_a_run_with_other_numbers_does_not_refute_and_names_them(as_measured):
    frames = as_measured("atp", status="ok", data="cifar10")
    frames["T1"].loc[(frames["T1"]["method"] == "ATP-batch") & (frames["T1"]["setting"] == "hybrid shift"), "mean"] = 60.0
    judged = ledger("atp", frames, changed=["rounds", "seeds"]).set_index("claim")
    assert judged.loc["A4", "verdict"].startswith(
        "undecided on cifar10 (changed: rounds, seeds; 5 seeds): 1 of 2 hold, 1 fails - not shown"
    )
    assert set(judged["ours"]) == {"holds", "undecided", "not run"}


def test_fewer_seeds_change_a_margin_not_what_is_measured(as_measured):
    frames = as_measured("atp", status="ok", data="cifar10")
    frames["T1"].loc[(frames["T1"]["method"] == "ATP-batch") & (frames["T1"]["setting"] == "hybrid shift"), "mean"] = 60.0
    row = ledger("atp", frames, changed=["seeds"]).set_index("claim").loc["A4"]
    assert row["verdict"] == "fails on cifar10 (changed: seeds; 5 seeds): 1 of 2 fails beyond chance"
    for other in ("batch_size", "rounds"):
        assert ledger("atp", frames, changed=["seeds", other]).set_index("claim").loc["A4", "ours"] == "undecided"


def test_numbers_that_do_not_tell_their_images_refute_nothing_where_streams_were_cut(as_measured):
    frames = as_measured("atp", status="ok", data="cifar10")
    frames["T1"].loc[(frames["T1"]["method"] == "ATP-batch") & (frames["T1"]["setting"] == "hybrid shift"), "mean"] = 60.0
    row = ledger("atp", frames, changed=["costly_samples"]).set_index("claim").loc["A4"]
    assert row["verdict"].endswith("1 of 2 hold, 1 fails - not shown, but such a run cannot refute")


def test_the_shape_of_a_curve_refutes_nothing(as_measured):
    """The weights of three seeds rise from original to out of client by next to nothing (H25)."""
    weights = {"original": 0.5, "corrupted": 0.5001, "natural": 0.5002, "ooc": 0.5003}
    frame = pd.DataFrame([{"column": c, "weight": w, "density": 1.0} for c, w in weights.items()])
    frame = frame.assign(n_seeds=3, run_dataset="cifar10", run_model="cnn", status="ok")
    row = ledger("fedthe", {}, {"F17": frame}).set_index("claim").loc["H25"]
    assert row["verdict"] == "undecided on cifar10 (3 seeds): 0 of 4 hold, 4 fail - not shown, but nothing tells what fails from chance"


def test_a_method_of_ones_own_is_none_of_a_papers():
    """Claims that go through all methods of a figure pass it over: here one that depends on the test alpha as none should (U6)."""
    rows = [(a, m, 60.0 + 50 * a * (m == "Mine")) for a in (0.01, 0.5) for m in ("FedAvg", "Mine")]
    frame = pd.DataFrame(rows, columns=["alpha", "method", "mean"])
    frame = frame.assign(std=0.1, n_seeds=3, run_dataset="cifar10", run_model="cnn", status="ok")
    without, passed, counted = (
        ledger("upfl", {}, {"U6": figure}, own=own)
        for figure, own in ((frame[frame["method"] != "Mine"], ()), (frame, ("Mine",)), (frame, ()))
    )
    pd.testing.assert_frame_equal(passed, without)
    assert [judged.set_index("claim").loc["U6", "ours"] for judged in (passed, counted)] == ["holds", "fails"]


ALTERNATING = np.tile([-1.0, 1.0], 10)


def _h12(as_measured, difference, *, status="ok", cut=()):
    """The verdict on H12 (FedTHE and FedTHE+ over TSA in six columns of T3) of one seed and 20 clients: ahead by 5, except for FedTHE on
    corrupted images, where ``difference`` [20] is the clients'. cut: methods that saw the first images of their streams only."""

    def units(method, column):
        ahead = 0.0 * ALTERNATING if method == "TSA" else difference if (method, column) == ("FedTHE", "corrupted") else 5 + ALTERNATING
        first = Units(tuple((0, k) for k in range(20)), 50 + ahead, np.ones(20), np.full(20, 50), partial=True)
        return first if method in cut else replace(first, partial=False, cut=first)

    frame = as_measured("fedthe", status=status, data="CIFAR-10 (JPEG)", n_seeds=1)["T3"]
    frame["units"] = [units(method, column) for method, column in zip(frame["method"], frame["column"], strict=True)]
    frame["mean"] = [u.mean for u in frame["units"]]
    return ledger("fedthe", {"T3": frame}, changed=["seeds", "costly_samples"]).set_index("claim").loc["H12"]


def test_one_training_refutes_by_its_clients_what_is_beyond_chance_among_all_comparisons(as_measured):
    """With 19 degrees of freedom t = 2.0 is one in thirty for one comparison, and nothing among twelve, for which it takes 2.9."""
    error = ALTERNATING.std(ddof=1) / np.sqrt(20)
    weak = _h12(as_measured, -2.0 * error + ALTERNATING)
    assert weak["verdict"].endswith(": 11 of 12 hold, 1 fails - not shown, but within chance among 12 comparisons")
    strong = _h12(as_measured, -3.1 * error + ALTERNATING)
    assert (weak["ours"], strong["ours"]) == ("undecided", "fails")
    assert strong["verdict"] == "fails on CIFAR-10 (JPEG) (changed: seeds, costly_samples; 1 seed): 1 of 12 fails beyond chance"


def test_one_failure_that_tells_its_chance_is_enough_to_speak_of_it():
    open_, weak = Finding("shape", "fails"), Finding("difference", "fails", chance=0.1)
    said = [_short(Verdict("fails", findings, Cells("fedthe")), ()) for findings in ((open_, open_), (open_, weak))]
    assert said == [" - not shown, but nothing tells what fails from chance", " - not shown, but within chance among 2 comparisons"]


@pytest.mark.parametrize("other", [{"status": "stand-in"}, {"cut": ("FedTHE",)}])
def test_other_data_and_the_first_images_of_a_stream_do_not_refute(as_measured, other):
    row = _h12(as_measured, ALTERNATING - 10, **other)
    assert row["verdict"].endswith("1 fails - not shown, but such a run cannot refute")


def test_what_is_real_among_stand_ins_refutes(as_measured):
    frames = as_measured("atp", status="ok", data="cifar10")
    hybrid = (frames["T1"]["method"] == "ATP-batch") & (frames["T1"]["setting"] == "hybrid shift")
    frames["T1"].loc[hybrid, "mean"] = 60.0
    frames["T1"].loc[frames["T1"]["method"] == "ATP-online", ["run_dataset", "status"]] = ["digits", "stand-in"]
    row = ledger("atp", frames).set_index("claim").loc["A4"]
    assert row["verdict"] == "fails on cifar10 (5 seeds), 1 of 2 comparisons run: 1 of 1 fails beyond chance"


def test_the_evidence_is_what_the_verdict_rests_on(as_measured):
    """FedRep leads on whole streams; on the first images, which alone MEMO-P saw, FedTHE+ leads them all."""

    def units(method):
        keys, few = tuple((0, k) for k in range(20)), np.full(20, 50)
        first = Units(keys, (90.0 if method == "FedTHE+" else 40.0) + ALTERNATING, np.ones(20), few, partial=True)
        whole = {"FedTHE+": 60 + ALTERNATING, "FedRep": np.full(20, 80.0)}.get(method, np.full(20, 50.0))
        return first if method == "MEMO-P" else Units(keys, whole, np.ones(20), 10 * few, cut=first)

    frame = as_measured("fedthe", status="ok", data="cifar10", n_seeds=1)["T1"]
    frame = frame[frame["mean"].notna()]
    frame["units"] = [units(method) for method in frame["method"]]
    frame["mean"] = [u.mean for u in frame["units"]]
    row = ledger("fedthe", {"T1": frame}, changed=["costly_samples"]).set_index("claim").loc["H1"]
    assert row["ours"] == "fails"
    assert "FedTHE+ 60.00 > FedRep (best of " in row["evidence"]
    assert "first images" not in row["evidence"]


def test_no_parameter_acts_on_the_toy_problem(as_measured):
    toy = atp_toy.histograms()
    judged = ledger("atp", as_measured("atp"), {"F9": toy}, changed=["rounds"]).set_index("claim")
    assert judged.loc["F9", "verdict"] == "holds on toy problem (1 seed)"


def test_partial_runs_say_how_much_was_judged(as_measured):
    frames = as_measured("upfl", keep=lambda frame: (frame["mean"] != "") & (frame["dataset"] != "cifar100"))
    row = ledger("upfl", frames).set_index("claim").loc["U1"]
    assert row["verdict"].startswith("undecided on digits (stand-in, 3 seeds), 8 of 10 comparisons run: ")


def test_reason_of_a_cell_reaches_the_verdict(as_measured):
    frames = as_measured("atp", keep=lambda frame: frame["method"] != "ATP-params")
    frames["T4"]["status"] = frames["T4"]["status"].replace("not run: lost in the print", "not run: takes a GPU for hours")
    verdict = ledger("atp", {"T7": frames["T7"]}).set_index("claim")["verdict"]["A10"]
    assert verdict == "not run: lacks T4"
    frames["T4"].loc[:, ["mean", "status"]] = [float("nan"), "not run: takes a GPU for hours"]
    verdict = ledger("atp", frames).set_index("claim")["verdict"]["A10"]
    assert "(takes a GPU for hours)" in verdict


def test_frames_read_back_from_files(as_measured, tmp_path):
    frames = as_measured("btfl")
    for table, frame in frames.items():
        frame.to_csv(tmp_path / f"{table}.csv", index=False)
    again = {table: pd.read_csv(tmp_path / f"{table}.csv") for table in frames}
    pd.testing.assert_frame_equal(ledger("btfl", again), ledger("btfl", frames))


def test_bad_frames_are_named(as_measured):
    with pytest.raises(ValueError, match="atp T1: expected the columns"):
        ledger("atp", {"T1": as_measured("atp")["T1"].drop(columns="status")})
    with pytest.raises(ValueError, match="figure of atp 'F99'"):
        ledger("atp", {}, {"F99": pd.DataFrame()})
    with pytest.raises(ValueError, match="F8 lacks the columns cohort, round, column, mean, n_seeds"):
        ledger("atp", {}, {"F8": pd.DataFrame()})
    with pytest.raises(ValueError, match="unknown paper"):
        ledger("fedavg", {})


@pytest.mark.parametrize("paper", published.PAPERS)
def test_noise_proves_nothing_and_refutes_nothing(paper, as_measured):
    """The printed numbers with a spread that drowns them: what is judged by cells stays open, be the signs as they may."""
    frames = {table: frame.assign(std=400.0) for table, frame in as_measured(paper, status="ok", data="cifar10").items()}
    states = ledger(paper, frames).set_index("claim")["ours"].drop(["H5", "H6"], errors="ignore")
    assert set(states) == {"undecided", "not run"}
