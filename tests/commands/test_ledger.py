import json

import pandas as pd
import pytest

from fedlib.commands.ledger import ledger, main
from fedlib.published import claims_of
from fedlib.published.ledger import ledger as judge


@pytest.fixture
def judged(run):
    """Writes a run with the claims as the run would have judged them; stale: with a verdict that no rule gives today."""

    def write(name, ahead, stale=False):
        folder = run(name, ahead)
        claims = judge("fedthe", {"T3": pd.read_csv(folder / "T3.csv")}, changed=["seeds"])
        if stale:
            claims[["ours", "verdict"]] = "stale"
        claims.to_csv(folder / "claims.csv", index=False)
        return folder

    return write


def test_the_first_run_that_judged_a_claim_counts(judged):
    other, first = judged("other", {"FedAvg": 0}), judged("first", {"FedTHE": 5, "FedTHE+": 7, "TSA": 0})
    second = judged("second", {"FedTHE": 5, "FedTHE+": 7, "TSA": 20})
    found = ledger([other, first, second]).set_index("claim")
    assert list(found.index) == [claim.id for claim in claims_of("fedthe").CLAIMS]
    assert found.loc["H12", ["paper", "ours", "folder"]].tolist() == ["FedTHE", "holds", str(first)]
    assert ledger([second, first]).set_index("claim").loc["H12", "ours"] == "fails"
    assert found.loc["H16", ["ours", "folder"]].tolist() == ["not run", ""]


def test_claims_on_tables_whose_clients_are_told_are_judged_anew(judged):
    folder = judged("first", {"FedTHE": 5, "FedTHE+": 7, "TSA": 0}, stale=True)
    found = ledger([folder]).set_index("claim")["ours"]
    assert (found["H12"], found["H22"]) == ("holds", "stale"), "a claim about figures stays the run's"
    (folder / "T3_clients.csv").unlink()
    assert (ledger([folder])["ours"] == "stale").all()


def test_without_the_clients_several_seeds_can_leave_a_claim_undecided(judged):
    folder = judged("first", {"FedTHE": 5, "FedTHE+": 7, "TSA": 6}, stale=True)
    (folder / "T3_clients.csv").unlink()
    frame = pd.read_csv(folder / "T3.csv")
    frame.assign(n_seeds=2, std=9.0).to_csv(folder / "T3.csv", index=False)
    run = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(run | {"seeds": [0, 1]}))
    found = ledger([folder]).set_index("claim")["ours"]
    assert (found["H12"], found["H22"]) == ("undecided", "stale")


def test_the_page_counts_the_claims_and_links_to_their_runs(judged, tmp_path):
    folder = judged("first", {"FedTHE": 5, "FedTHE+": 7, "TSA": 0})
    main([str(folder), "--out", str(tmp_path / "claims.md")])
    page = (tmp_path / "claims.md").read_text()
    assert "## FedTHE\n\n27 claims. In print: 9 hold, " in page
    assert (
        "| H12 | better than TSA on every test | holds | holds on cifar10 (changed: seeds; 1 seed) | [first](<first/claims.csv>) |" in page
    )
    assert (
        "| H16 | under weak heterogeneity most baselines do not beat FedAvg, FedTHE+ still gains | holds | not run (reads T4) |  |" in page
    )


def test_what_has_no_claims_is_left_out_and_what_is_unfinished_refused(judged, run, tmp_path):
    folder, other = judged("first", {"FedTHE": 5, "FedTHE+": 7, "TSA": 0}), run("other", {"FedTHE": 5})
    assert set(ledger([other, folder])["folder"]) == {str(folder), ""}
    with pytest.raises(SystemExit, match=r"none of .*other has a claims\.csv"):
        main([str(other)])
    with pytest.raises(SystemExit, match=r"no folder .*absent"):
        main([str(folder), str(tmp_path / "absent")])
    with pytest.raises(SystemExit, match="error: "):
        main([str(folder), "--out", str(tmp_path)])
    (folder / "run.json").unlink()
    with pytest.raises(SystemExit, match=r"first has no run\.json"):
        main([str(folder)])


def test_a_claim_that_the_run_did_not_know_is_judged(judged):
    folder = judged("first", {"FedTHE": 5, "FedTHE+": 7, "TSA": 0})
    claims = pd.read_csv(folder / "claims.csv")
    claims[claims["claim"] != "H12"].to_csv(folder / "claims.csv", index=False)
    assert ledger([folder]).set_index("claim").loc["H12", "ours"] == "holds"


def test_the_project_is_looked_in_from_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(ledger(["figures/mnist-5k/upfl"])) == len(claims_of("upfl").CLAIMS)
