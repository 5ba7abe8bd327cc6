import json

import numpy as np
import pandas as pd
import pytest

import fedlib
from fedlib.commands.pairs import main
from fedlib.papers.comparison.grid import accuracies
from fedlib.papers.comparison.significance import cells
from tests.papers.comparison_cases import parameters, rows


def test_methods_that_were_run_apart_are_paired(run, tmp_path, capsys):
    first, second = run("first", {"FedTHE": 5, "FedTHE+": 7}), run("second", {"TSA": 0, "FedTHE": 40})
    found = fedlib.pairs(first, second, against="FedTHE").query("column == 'ooc'").set_index("method")
    assert found["difference"].round(9).to_dict() == {"FedTHE+": 2, "TSA": -5}, "FedTHE is the first folder's"
    assert np.isnan(found.loc["FedTHE+", "p"]), "every client gains as much, which tells no spread"
    main([str(first), str(second), "--against", "FedTHE", "--table", "T3", "--out", str(tmp_path / "out.csv")])
    said = capsys.readouterr().out
    assert "T3 cifar10 cnn Dir(0.1) ooc: cifar10\n" in said
    assert "  TSA - FedTHE: -5.00 +- 0.23, p 6.6e-15 over 20 clients\n" in said
    written = pd.read_csv(tmp_path / "out.csv")
    assert len(written) == 12
    assert all(float(f"{p:.3g}") == p for p in written["p"].dropna()), "three significant digits"


def test_a_table_without_clients_is_left_out(run):
    first = run("first", {"FedTHE": 5, "TSA": 0}, more=("T9",))
    assert set(fedlib.pairs(first, against="FedTHE")["table"]) == {"T3"}


@pytest.fixture
def comparison(tmp_path):
    """Writes a run of the comparison in which the methods of ``values`` were run alone."""

    def write(name, values, seeds=(0, 1, 2), **given):
        folder = tmp_path / name
        folder.mkdir()
        frame = rows({"FedAvg": 50} | values, clients=40, seeds=3, noise=3.0)
        frame = frame[frame["seed"].isin(seeds)]
        cells(frame).to_csv(folder / "tests.csv", index=False)
        accuracies(frame).to_csv(folder / "accuracies.csv", index=False)
        facts = json.loads(json.dumps(parameters(profile="smoke", methods=["FedAvg", *values], **given).facts(), default=list))
        (folder / "run.json").write_text(json.dumps({"profile": "smoke", "seeds": list(seeds), "parameters": facts}))
        return folder

    return write


def test_an_own_method_of_the_comparison_is_paired_with_those_of_another_run(comparison, tmp_path, capsys):
    theirs, mine = comparison("theirs", {"EM": 55, "T3A": 56}), comparison("mine", {"BTFL": 58}, protocols=["BRFL"])
    found = fedlib.pairs(mine, theirs, against="EM").set_index(["column", "method"])
    assert set(found.index.get_level_values("method")) == {"BTFL", "T3A"}
    assert found.loc["original", "difference"].to_dict() == pytest.approx({"BTFL": 3, "T3A": 1}, abs=1)
    main([str(mine), str(theirs), "--against", "EM", "--table", "BRFL", "--out", str(tmp_path / "out.csv")])
    said = capsys.readouterr().out
    assert "BRFL original: digits\n  BTFL - EM: +" in said
    assert "over 40 clients and 3 seeds, stand-in\n" in said
    assert len(pd.read_csv(tmp_path / "out.csv")) == 6
    with pytest.raises(ValueError, match="unknown protocol 'BTGFL'"):
        fedlib.pairs(mine, theirs, against="EM", table="BTGFL")


def test_seeds_of_the_comparison_that_were_run_apart_are_one_run(comparison, capsys):
    values = {"EM": 55, "T3A": 56}
    apart = [comparison(f"seed {seed}", values, seeds=[seed]) for seed in range(3)]
    pd.testing.assert_frame_equal(fedlib.pairs(*apart, against="EM"), fedlib.pairs(comparison("whole", values), against="EM"))
    main([str(apart[0]), "--against", "EM"])
    assert ", p not known over 40 clients, stand-in\n" in capsys.readouterr().out


def test_runs_of_the_comparison_that_were_trained_otherwise_are_not_paired(comparison):
    with pytest.raises(ValueError, match="do not go together: their parameter rounds is"):
        fedlib.pairs(comparison("long", {"EM": 55}, rounds=9), comparison("short", {"T3A": 55}, rounds=8), against="EM")


def test_what_is_no_run_of_the_comparison_is_not_paired_with_one(comparison, run):
    whole, lacking = comparison("whole", {"EM": 55, "T3A": 56}), comparison("lacking", {"EM": 55, "T3A": 56})
    with pytest.raises(ValueError, match=r"whole is of the comparison, and .*first has no tests.csv and accuracies.csv"):
        fedlib.pairs(whole, run("first", {"FedTHE": 5}), against="EM")
    (lacking / "accuracies.csv").unlink()
    with pytest.raises(FileNotFoundError, match=r"fedlib pairs needs its accuracies.csv"):
        fedlib.pairs(lacking, against="EM")
    with pytest.raises(FileNotFoundError, match="no folder nowhere"):
        fedlib.pairs(whole, "nowhere", against="EM")
