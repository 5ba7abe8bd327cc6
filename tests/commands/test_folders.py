import json

import pandas as pd
import pytest

from fedlib.commands.claims import claims
from fedlib.commands.claims import main as claims_main
from fedlib.commands.folders import changed, tables
from fedlib.commands.pairs import main as pairs_main
from fedlib.papers.fedthe import PAPER
from fedlib.papers.upfl import PAPER as UPFL


def test_runs_that_do_not_belong_together_are_refused(run, tmp_path):
    first, second = run("first", {"FedTHE": 5}), run("second", {"TSA": 0}, split="resplit")
    with pytest.raises(ValueError, match=r"first and .*second do not go together: their parameter split is 'fixed' and 'resplit'"):
        tables([first, second])
    for other in ({"partition_seed": 1}, {"lr": 0.1}):
        with pytest.raises(ValueError, match=f"their parameter {next(iter(other))} is "):
            tables([first, run(f"other-{next(iter(other))}", {"TSA": 0}, **other)])
    cut = run("cut", {"TSA": 0}, costly_samples=50)
    assert list(tables([first, cut])) == ["T3"], "the first's whole streams hold the other's first images"
    (cut / "T3_cut.csv").write_bytes((cut / "T3.csv").read_bytes())
    assert list(tables([first, cut])) == ["T3"], "without the table on the first images, which has the same cells"
    with pytest.raises(ValueError, match="their parameter costly_samples is 50 and 20"):
        tables([cut, run("shorter", {"TSA": 0}, costly_samples=20)])
    with pytest.raises(ValueError, match="their parameter costly_samples is 50 and 20"):
        tables([first, cut, tmp_path / "shorter"])
    with pytest.raises(SystemExit, match="no folder nowhere, neither here nor in the project"):
        claims_main(["nowhere"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit, match="empty holds no result table"):
        claims_main([str(tmp_path / "empty")])
    with pytest.raises(SystemExit, match="unknown table 'T9'"):
        pairs_main([str(first), "--against", "FedTHE", "--table", "T9"])
    with pytest.raises(SystemExit, match=r"unknown method 'FedThe'\. Did you mean 'FedTHE'"):
        pairs_main([str(first), "--against", "FedThe"])
    (second / "run.json").unlink()
    with pytest.raises(SystemExit, match=r"second has no run.json: its run did not finish"):
        claims_main([str(second)])
    frame = pd.read_csv(second / "T3.csv").assign(paper="BTFL")
    frame.to_csv(second / "T3.csv", index=False)
    with pytest.raises(ValueError, match="the folders are of several papers: BTFL, FedTHE"):
        tables([first, second])


def test_runs_with_own_methods_and_images_and_those_of_old_are_read(run):
    folder = run("first", {"FedTHE": 5, "TSA": 0}, methods=["FedTHE", "TSA", "Mine"], dataset="mine.npz", extra={"Mine": "a recipe"})
    assert len(claims(folder))
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(record | record.pop("parameters")))
    assert changed(folder, PAPER, [0]) == ["seeds"]


def test_own_methods_of_one_name_are_one_method(run):
    first, again, changed_since = (run(f"seed{s}", {"TSA": 0}, seed=s, extra={"Mine": f"Mine(lr={lr})"}) for s, lr in enumerate((1, 1, 10)))
    assert tables([first, again])["T3"]["n_seeds"].max() == 2
    with pytest.raises(ValueError, match=r"seed0 and .*seed2 do not go together: their method 'Mine' is not the same"):
        tables([first, again, changed_since])


def test_runs_that_started_from_different_federations_are_read_together(run):
    """The parameter tells where trainings are from, not what was trained."""
    folders = [run(method, {method: 5}, start=f"{method}'s") for method in ("FedTHE", "TSA")]
    assert set(tables(folders)["T3"].dropna(subset="mean")["method"]) == {"FedTHE", "TSA"}


def test_what_a_run_changed_is_read_from_its_record(run):
    assert changed(run("first", {"FedTHE": 5}, rounds=30), PAPER, [0]) == ["rounds", "seeds"]


def test_a_part_of_the_printed_images_is_a_change_of_their_number(run):
    folder = run("first", {"FedTHE": 5})
    for dataset, expected in (("mnist_5k", ["images"]), ("mine.npz", [])):
        parameters = UPFL.profiles["paper"] | {"dataset": dataset}
        (folder / "run.json").write_text(json.dumps({"profile": "paper", "seeds": [0, 1, 2], "parameters": parameters}))
        assert changed(folder, UPFL, [0, 1, 2]) == expected
