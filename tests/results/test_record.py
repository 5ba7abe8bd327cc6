import json
import subprocess

import pandas as pd
import pytest
import torch

from fedlib.results import record
from fedlib.results.record import ACCOUNTS, begin, remember, remembered_in, result, strangers, write_run
from fedlib.tools.parameters import PROJECT

FACTS = {"profile": "smoke", "seeds": (0, 1), "device": "cpu", "duration_seconds": 12.34, "cache_hits": 3, "accounts": []}


def write(folder, name, text):
    with result(folder / name) as path:
        path.write_text(text)


def document(folder):
    return json.loads((folder / "run.json").read_text())


def test_files_of_what_was_asked_before_are_strangers(tmp_path):
    """A kernel runs one study after another into a folder."""
    begin(tmp_path, {"rounds": 2})
    write(tmp_path, "T8.csv", "8")
    begin(tmp_path, {"rounds": 2})
    write_run(tmp_path, **FACTS)
    assert list(document(tmp_path)["files"]) == ["T8.csv"]
    begin(tmp_path, {"rounds": 1})
    write(tmp_path, "T1.csv", "1")
    with pytest.warns(UserWarning, match="files of another run: T8.csv"):
        write_run(tmp_path, **FACTS)
    assert list(document(tmp_path)["files"]) == ["T1.csv"]


def test_run_facts(tmp_path):
    write_run(tmp_path, **FACTS, rounds=5)
    found = document(tmp_path)
    assert found["seeds"] == [0, 1]
    assert found["duration_seconds"] == 12.3
    assert found["rounds"] == 5
    assert found["cpu_threads"] == 1
    assert set(found["versions"]) == {"fedlib", "python", "torch", "numpy"}
    assert found["date"].endswith("+00:00")
    assert torch.backends.cpu.get_cpu_capability() in found["processor"]
    with pytest.raises(TypeError, match="profile"):
        write_run(tmp_path, seeds=[0], device="cpu", duration_seconds=1, cache_hits=0, accounts=[])


def test_the_identity_is_that_of_what_determines_the_numbers(tmp_path):
    identities = []
    for changes in ({}, {"duration_seconds": 1.0, "cache_hits": 9}, {"rounds": 6}, {"seeds": (0, 2)}):
        write_run(tmp_path, **{**FACTS, "rounds": 5, **changes})
        identities.append(document(tmp_path)["identity"])
    assert identities[0] == identities[1]
    assert len(set(identities)) == 3


def test_every_file_is_listed_and_those_of_another_run_are_named(tmp_path):
    (tmp_path / "T1.csv").write_text("from another run")
    write(tmp_path, "T2.csv", "ours")
    write(tmp_path, "F1.png", "ours too")
    with pytest.warns(UserWarning, match="files of another run: T1.csv"):
        write_run(tmp_path, **FACTS)
    assert set(document(tmp_path)["files"]) == {"T2.csv", "F1.png"}
    assert document(tmp_path)["strangers"] == strangers(tmp_path) == ["T1.csv"]
    (tmp_path / "T2.csv").write_text("changed by hand")
    assert strangers(tmp_path) == ["T1.csv", "T2.csv"]


def test_committed_results_are_not_written_over():
    for name in ("digits/fedthe-small", "cifar10-jpeg/btfl"):
        with pytest.raises(ValueError, match=f"figures/{name} holds committed results: name another folder"):
            begin(PROJECT / "figures" / name, {})
    begin(PROJECT / "figures" / "digits" / "mine", {})


def test_a_file_that_was_removed_is_not_listed(tmp_path):
    for name in ("T1.csv", "T1_cut.csv"):
        write(tmp_path, name, "numbers")
    (tmp_path / "T1_cut.csv").unlink()
    write_run(tmp_path, **FACTS)
    assert list(document(tmp_path)["files"]) == ["T1.csv"]


def test_a_file_written_again_takes_the_old_record_away(tmp_path):
    write(tmp_path, "T1.csv", "first")
    write_run(tmp_path, **FACTS)
    assert strangers(tmp_path) == []
    write(tmp_path, "T1.csv", "second")
    assert not (tmp_path / "run.json").exists()
    assert strangers(tmp_path) == ["T1.csv"]


def test_a_failed_write_leaves_the_old_record(tmp_path):
    write(tmp_path, "T1.csv", "first")
    write_run(tmp_path, **FACTS)
    with pytest.raises(FileNotFoundError), result(tmp_path / "T1.csv"):
        pass
    assert strangers(tmp_path) == []


def test_the_commit_is_the_checkouts_own(tmp_path, monkeypatch):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    git("init", "-q")
    (tmp_path / "fedlib").mkdir()
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "fedlib" / "a.py").write_text("1")
    git("add", ".")
    git("commit", "-qm", "first")
    monkeypatch.setattr(record, "PROJECT", tmp_path.resolve())
    clean = record._commit()
    (tmp_path / "fedlib" / "a.py").write_text("2")
    assert record._commit() == f"{clean}+changes"
    assert len(clean) == 12
    # A folder of another checkout, and none at all.
    monkeypatch.setattr(record, "PROJECT", (tmp_path / "fedlib").resolve())
    assert record._commit() is None


def test_what_is_committed_travels_light():
    """Evidence is numbers, LaTeX and pictures; with everything else it stays under 13 MB. Trained federations come to 17.5 MB at most."""
    if not (PROJECT / ".git").exists():
        pytest.skip("no checkout")
    names = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout.split("\0")[:-1]
    paths = [PROJECT / name for name in names if (PROJECT / name).is_file()]
    trained = [path for path in paths if path.is_relative_to(PROJECT / "figures") and path.parent.name == "pretrained"]
    assert sum(path.stat().st_size for path in trained) <= 17.5e6
    assert {path.suffix for path in trained} <= {".json", ".safetensors"}
    paths = [path for path in paths if path not in trained]
    assert sum(path.stat().st_size for path in paths) <= 13e6
    evidence = [path.relative_to(PROJECT) for path in paths if path.is_relative_to(PROJECT / "figures")]
    assert {path.suffix for path in evidence} <= {".csv", ".tex", ".png", ".json", ".md"}
    assert not [path for path in evidence if path.parts[1].split("-")[0] in ("smoke", "small", "paper")]


def test_a_table_of_outsiders_tools_is_a_plain_one(tmp_path):
    with result(tmp_path / "T1.csv") as path:
        pd.DataFrame({"mean": [1.5]}).to_csv(path, index=False)
    assert pd.read_csv(tmp_path / "T1.csv")["mean"].tolist() == [1.5]


def test_each_study_of_a_process_keeps_its_own_trainings(tmp_path):
    first, second = [], []
    for accounts, name in ((first, "a"), (second, "b"), (first, "c")):
        with remembered_in(accounts):
            remember([{"training": name}])
    remember([{"training": "of no study"}])
    write_run(tmp_path, **FACTS | {"accounts": second})
    assert json.loads((tmp_path / ACCOUNTS).read_text())["federations"] == [{"training": "b"}]
    assert [account["training"] for account in first] == ["a", "c"]
