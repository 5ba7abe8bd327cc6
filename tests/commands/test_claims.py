"""``fedlib pairs`` and ``fedlib claims`` on folders of results."""

import json

import numpy as np
import pandas as pd
import pytest

import fedlib
from fedlib.commands.claims import claims
from fedlib.commands.claims import main as claims_main
from fedlib.commands.folders import changed, tables
from fedlib.commands.pairs import main as pairs_main
from fedlib.papers.fedthe import PAPER
from fedlib.published.units import Units
from fedlib.results import write_table

# As run.json has them: resolved, and without where files are.
PARAMETERS = PAPER.parameters(profile="paper", seeds=[0]).resolved(PAPER.profiles).facts()


@pytest.fixture
def run(as_measured, tmp_path):
    """Writes a folder with FedTHE's Table 3 as if only ``methods`` had been run, with one seed and 20 clients; ``ahead``: of 50 percent."""

    def write(name, ahead, more=(), **parameters):
        frame = as_measured("fedthe", status="ok", data="cifar10", n_seeds=1, keep=lambda f: f["method"].isin(ahead))["T3"]
        noise = np.tile([-1.0, 1.0], 10)

        def units(row):
            keys = tuple((0, client) for client in range(20))
            return Units(keys, 50 + ahead[row["method"]] + noise * (row["method"] != "TSA"), np.ones(20), np.full(20, 500))

        ran = frame["mean"].notna()
        frame["units"] = [units(row) if row["method"] in ahead else None for row in frame.to_dict("records")]
        frame.loc[ran, "mean"] = [u.mean for u in frame.loc[ran, "units"]]
        frame.loc[ran, "std"] = np.nan
        folder = tmp_path / name
        folder.mkdir()
        write_table(frame, folder, "T3")
        for table in more:
            write_table(frame.assign(units=None), folder, table)
        (folder / "run.json").write_text(json.dumps({"profile": "paper", "seeds": [0], "parameters": PARAMETERS | parameters}))
        return folder

    return write


def test_methods_that_were_run_apart_are_paired(run, tmp_path, capsys):
    first, second = run("first", {"FedTHE": 5, "FedTHE+": 7}), run("second", {"TSA": 0, "FedTHE": 40})
    found = fedlib.pairs(first, second, against="FedTHE").query("column == 'ooc'").set_index("method")
    assert found["difference"].round(9).to_dict() == {"FedTHE+": 2, "TSA": -5}, "FedTHE is the first folder's"
    assert found.loc["FedTHE+", "p"] < 1e-9, "every client gains as much"
    pairs_main([str(first), str(second), "--against", "FedTHE", "--table", "T3", "--out", str(tmp_path / "out.csv")])
    said = capsys.readouterr().out
    assert "T3 cifar10 cnn Dir(0.1) ooc: cifar10\n" in said
    assert "  TSA - FedTHE: -5.00 +- 0.23, p 6.6e-15 over 20 clients\n" in said
    assert len(pd.read_csv(tmp_path / "out.csv")) == 12


def test_claims_are_judged_on_all_folders(run, capsys, tmp_path):
    first, second = run("first", {"FedTHE": 5, "FedTHE+": 7}), run("second", {"TSA": 0})
    apart = claims(first).set_index("claim")["ours"]
    assert apart["H12"] == "not run"
    claims_main([str(first), str(second), "--out", str(tmp_path / "claims.csv")])
    written = pd.read_csv(tmp_path / "claims.csv").set_index("claim")
    assert written.loc["H12", "verdict"] == "holds on cifar10 (changed: seeds; 1 seed)"
    assert "H12: better than TSA on every test\n  in print: holds; here: holds on cifar10" in capsys.readouterr().out
    assert "H22" not in written.index, "a claim about figures is left to the run"
    worse = run("worse", {"TSA": 20})
    assert claims(first, worse).set_index("claim").loc["H12", "ours"] == "fails"


def test_runs_that_do_not_belong_together_are_refused(run, tmp_path):
    first, second = run("first", {"FedTHE": 5}), run("second", {"TSA": 0}, split="resplit")
    with pytest.raises(ValueError, match=r"first and .*second do not go together: their parameter split is 'fixed' and 'resplit'"):
        tables([first, second])
    for other in ({"partition_seed": 1}, {"lr": 0.1}):
        with pytest.raises(ValueError, match=f"their parameter {next(iter(other))} is "):
            tables([first, run(f"other-{next(iter(other))}", {"TSA": 0}, **other)])
    cut = run("cut", {"TSA": 0}, costly_samples=50)
    assert list(tables([first, cut])) == ["T3"], "the first's whole streams hold the other's first images"
    with pytest.raises(ValueError, match="their parameter costly_samples is 50 and 20"):
        tables([cut, run("shorter", {"TSA": 0}, costly_samples=20)])
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit, match="empty holds no result table"):
        claims_main([str(tmp_path / "empty")])
    with pytest.raises(SystemExit, match="unknown table 'T9'"):
        pairs_main([str(first), "--against", "FedTHE", "--table", "T9"])
    with pytest.raises(SystemExit, match=r"no table of .* has clients of 'FedThe'"):
        pairs_main([str(first), "--against", "FedThe"])
    (second / "run.json").unlink()
    with pytest.raises(SystemExit, match=r"second has no run.json: its run did not finish"):
        claims_main([str(second)])
    frame = pd.read_csv(second / "T3.csv").assign(paper="BTFL")
    frame.to_csv(second / "T3.csv", index=False)
    with pytest.raises(ValueError, match="the folders are of several papers: BTFL, FedTHE"):
        tables([first, second])


def test_a_table_without_clients_is_left_out(run):
    first = run("first", {"FedTHE": 5, "TSA": 0}, more=("T9",))
    assert set(fedlib.pairs(first, against="FedTHE")["table"]) == {"T3"}


def test_without_its_clients_a_cut_run_refutes_nothing(run):
    folder = run("first", {"FedTHE": 5, "FedTHE+": 7, "TSA": 20}, costly_samples=50)
    assert claims(folder).set_index("claim").loc["H12", "ours"] == "fails"
    (folder / "T3_clients.csv").unlink()
    frame = pd.read_csv(folder / "T3.csv").assign(std=0.01, n_seeds=3)
    frame.to_csv(folder / "T3.csv", index=False)
    assert claims(folder).set_index("claim").loc["H12", "ours"] == "undecided"


def test_runs_with_own_methods_and_images_and_those_of_old_are_read(run):
    folder = run("first", {"FedTHE": 5, "TSA": 0}, methods=["FedTHE", "TSA", "Mine"], dataset="mine.npz", extra={"Mine": "a recipe"})
    assert len(claims(folder))
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(record | record.pop("parameters")))
    assert changed(folder, PAPER) == ["seeds"]


def test_what_a_run_changed_is_read_from_its_record(run):
    assert changed(run("first", {"FedTHE": 5}, rounds=30), PAPER) == ["rounds", "seeds"]
