import pandas as pd

from fedlib.commands.claims import claims, main


def test_claims_are_judged_on_all_folders(run, capsys, tmp_path):
    first, second = run("first", {"FedTHE": 5, "FedTHE+": 7}), run("second", {"TSA": 0})
    apart = claims(first).set_index("claim")["ours"]
    assert apart["H12"] == "not run"
    main([str(first), str(second), "--out", str(tmp_path / "claims.csv")])
    written = pd.read_csv(tmp_path / "claims.csv").set_index("claim")
    assert written.loc["H12", "verdict"] == "holds on cifar10 (changed: seeds; 1 seed)"
    assert "H12: better than TSA on every test\n  in print: holds; here: holds on cifar10" in capsys.readouterr().out
    assert "H22" not in written.index, "a claim about figures is left to the run"
    assert "H1" not in written.index, "and one about a table that no run has is not asked"
    worse = run("worse", {"TSA": 20})
    assert claims(first, worse).set_index("claim").loc["H12", "ours"] == "fails"


def test_without_its_clients_a_cut_run_refutes_nothing(run):
    folder = run("first", {"FedTHE": 5, "FedTHE+": 7, "TSA": 20}, costly_samples=50)
    assert claims(folder).set_index("claim").loc["H12", "ours"] == "fails"
    (folder / "T3_clients.csv").unlink()
    frame = pd.read_csv(folder / "T3.csv").assign(std=0.01, n_seeds=3)
    frame.to_csv(folder / "T3.csv", index=False)
    assert claims(folder).set_index("claim").loc["H12", "ours"] == "undecided"
