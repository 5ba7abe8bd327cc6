import json

import numpy as np
import pandas as pd
import pytest

import fedlib
from fedlib.commands.claims import claims
from fedlib.commands.folders import tables
from fedlib.commands.join import join, main
from fedlib.published import KEY
from fedlib.tools.parameters import PROJECT


def test_seeds_that_were_run_apart_are_seeds_of_one_run(run, tmp_path, capsys):
    folders = [run(f"seed{seed}", {"FedTHE": 5 + seed, "FedTHE+": 9, "TSA": 0}, seed=seed, commit="ab"[seed % 2]) for seed in range(3)]
    main([*map(str, folders), "--out", str(tmp_path / "all")])
    assert capsys.readouterr().out == f"{tmp_path / 'all'}\n  T3: 3 seeds a cell\n"
    table = pd.read_csv(tmp_path / "all" / "T3.csv").set_index(["method", "column"])
    cell = table.loc["FedTHE", "ooc"]
    assert (cell["mean"], cell["std"], cell["n_seeds"], cell["n"]) == (56, 1, 3, 3 * 100)
    assert table.loc["MEMO-P", "ooc"]["status"].startswith("not run")
    clients = pd.read_csv(tmp_path / "all" / "T3_clients.csv")
    assert clients.groupby(["method", "column"]).size().unique() == 60
    record = json.loads((tmp_path / "all" / "run.json").read_text())
    assert (record["seeds"], record["duration_seconds"], record["commit"]) == ([0, 1, 2], 6, "a + b")
    assert [(part["folder"], part["seeds"]) for part in record["joined"]] == [(str(f), [seed]) for seed, f in enumerate(folders)]
    assert set(record["files"]) == {"T3.csv", "T3.tex", "T3_clients.csv", "claims.csv"}
    judged = pd.read_csv(tmp_path / "all" / "claims.csv").set_index("claim")
    assert judged.loc["H12", "verdict"].startswith("holds on cifar10 (3 seeds)"), "these are the paper's own seeds"
    assert claims(folders[0]).set_index("claim").loc["H12", "verdict"].startswith("holds on cifar10 (changed: seeds; 1 seed)")


def test_the_joined_run_says_what_its_parts_say_together(run, tmp_path):
    folders = [run(f"seed{seed}", {"FedTHE": 5 + seed, "TSA": 0}, seed=seed) for seed in range(3)]
    join(folders, tmp_path / "all")
    apart, together = (fedlib.pairs(*f, against="FedTHE") for f in (folders, [tmp_path / "all"]))
    pd.testing.assert_frame_equal(apart, together)
    assert apart["seeds"].eq(3).all()
    assert np.allclose(apart["difference"], -6)
    assert np.allclose(apart["margin"], 1 / np.sqrt(3)), "the spread over seeds is the larger one"


def test_of_a_seed_that_several_runs_have_the_first_counts(run):
    folders = [run("first", {"FedTHE": 5}), run("again", {"FedTHE": 40, "TSA": 3}), run("seed1", {"FedTHE": 7}, seed=1)]
    found = tables(folders)["T3"].dropna(subset="mean").query("column == 'ooc'").set_index("method")
    assert found["mean"].round(9).to_dict() == {"FedTHE": 56, "TSA": 53}
    assert found["n_seeds"].to_dict() == {"FedTHE": 2, "TSA": 1}


def test_what_is_joined_again_counts_the_images_of_new_seeds(run, tmp_path):
    folders = [run(f"seed{seed}", {"FedTHE": 5}, seed=seed) for seed in range(3)]
    join(folders[:2], tmp_path / "first")
    join(folders[1:], tmp_path / "second")
    found = tables([tmp_path / "first", tmp_path / "second"])["T3"].dropna(subset="mean")
    assert set(zip(found["n_seeds"], found["n"], strict=True)) == {(3, 300)}


def test_the_record_has_every_own_method_and_the_length_of_the_streams(run, tmp_path):
    folders = [
        run("published", {"FedTHE": 5}, costly_samples=0),
        run("own", {"TSA": 0}, methods=["TSA", "Mine"], extra={"Mine": "Mine(lr=10)"}, costly_samples=50),
    ]
    for name, order in (("one", folders), ("other", folders[::-1])):
        join(order, tmp_path / name)
        told = json.loads((tmp_path / name / "run.json").read_text())["parameters"]
        assert (told["extra"], told["costly_samples"]) == ({"Mine": "Mine(lr=10)"}, 50)


def test_stand_ins_and_first_images_are_no_further_seeds(run):
    first, other = run("first", {"FedTHE": 5}), run("seed1", {"FedTHE": 7}, seed=1)
    for file in ("T3.csv", "T3_clients.csv"):
        pd.read_csv(other / file).assign(status="stand-in").to_csv(other / file, index=False)
    assert tables([first, other])["T3"]["n_seeds"].dropna().eq(1).all()
    cut = run("seed2", {"FedTHE": 7}, seed=2)
    clients = pd.read_csv(cut / "T3_clients.csv")
    clients.assign(cut_accuracy=clients["accuracy"], cut_weight=1.0, cut_n=clients["n"]).to_csv(cut / "T3_clients.csv", index=False)
    assert tables([first, cut])["T3"]["n_seeds"].dropna().eq(1).all(), "first images apart in one of the runs alone"


def test_committed_seeds_come_apart_and_together_again(tmp_path):
    """Of a real run with cut streams and shared images: what is written of each seed makes the run again."""
    whole = PROJECT / "figures" / "cifar10-jpeg" / "fedthe-seeds"
    clients, record = pd.read_csv(whole / "T1_clients.csv"), json.loads((whole / "run.json").read_text())
    parts = []
    for seed, rows in clients.groupby("seed"):
        folder = tmp_path / f"seed{seed}"
        folder.mkdir()
        means = rows.groupby(list(KEY))[["accuracy", "weight"]].apply(lambda r: np.average(r["accuracy"], weights=r["weight"]))
        frame = pd.read_csv(whole / "T1.csv").drop(columns="mean").merge(means.rename("mean").reset_index(), how="left")
        frame.loc[frame["mean"].notna(), ["std", "n_seeds"]] = np.nan, 1
        frame[pd.read_csv(whole / "T1.csv").columns].to_csv(folder / "T1.csv", index=False)
        rows.to_csv(folder / "T1_clients.csv", index=False)
        (folder / "run.json").write_text(json.dumps(record | {"seeds": [seed], "identity": str(seed)}))
        parts.append(folder)
    join(parts, tmp_path / "all")
    exact = {"check_dtype": False, "atol": 2e-4}
    for name in ("T1", "T1_cut"):
        found, known = (pd.read_csv(folder / f"{name}.csv").drop(columns="n") for folder in (tmp_path / "all", whole))
        pd.testing.assert_frame_equal(found, known, **exact)
    kept = ["method", "difference", "margin", "p_holm"]
    apart, known = (fedlib.pairs(folder, against="FedTHE")[kept] for folder in (tmp_path / "all", whole))
    pd.testing.assert_frame_equal(apart, known, atol=1e-3)


def test_runs_that_cannot_be_one_are_refused(run, tmp_path):
    first, other = run("first", {"FedTHE": 5}), run("seed1", {"FedTHE": 7}, seed=1)
    clients = pd.read_csv(other / "T3_clients.csv")
    clients.assign(cut_accuracy=clients["accuracy"], cut_weight=1.0, cut_n=50).to_csv(other / "T3_clients.csv", index=False)
    out, kept = tmp_path / "all", json.loads((other / "run.json").read_text())
    for changes, message in (
        ({"device": "cuda"}, "do not go together: their device is cpu and cuda"),
        ({"versions": {"fedlib": "0.4.0"}}, r"their version is 0\.3\.0 and 0\.4\.0"),
        ({"parameters": kept["parameters"] | {"costly_samples": 50}}, "the streams of T3 were cut at 0 and 50"),
    ):
        (other / "run.json").write_text(json.dumps(kept | changes))
        with pytest.raises(SystemExit, match=message):
            main([str(first), str(other), "--out", str(out)])
    with pytest.raises(ValueError, match="two of the folders hold the same run"):
        join([first, first], out)
    old = json.loads((first / "run.json").read_text())
    (first / "run.json").write_text(json.dumps({name: value for name, value in old.items() if name != "identity"}))
    with pytest.raises(ValueError, match=r"first is of an older version, whose run\.json has no identity: run it again"):
        join([first, other], out)
    with pytest.raises(FileNotFoundError, match="no folder nowhere"):
        join(["nowhere", other], out)
    assert not out.exists()
    with pytest.raises(ValueError, match="seed1 holds files: name a new folder"):
        join([other], other)
    assert (other / "run.json").exists()
