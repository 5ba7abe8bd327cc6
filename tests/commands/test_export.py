"""What an export holds of a run, and what it leaves out and says."""

from dataclasses import replace

import pytest
import torch

from fedlib import experiment
from fedlib.cache.store import Store, read
from fedlib.commands import export
from fedlib.core import FINAL, RECEIVED, Recipe, Schedule
from fedlib.federation import unflatten
from fedlib.models import Net
from fedlib.personalize.fine_tune import FineTune
from fedlib.setting import Request, Setting
from fedlib.start import MANIFEST
from fedlib.train.fedbn import FedBN
from fedlib.train.scaffold import SCAFFOLD
from tests import tiny
from tests.test_start import CE, LOCAL, RECIPES, SETTING, finished


class WithNorm(Net):
    """A network that FedBN has something to keep in."""

    def __init__(self, in_shape, n_classes):
        layers = [torch.nn.Conv2d(in_shape[0], 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Flatten(), torch.nn.Linear(32, 5)]
        super().__init__(torch.nn.Sequential(*layers), torch.nn.Linear(5, n_classes))


def exported(folder, **options):
    return export.export(folder / "run", folder / "cache", **options)


def test_the_states_that_were_evaluated_last_and_nothing_else(tmp_path):
    start = finished(tmp_path, request=Request(rounds=(1, 2, RECEIVED)))
    held = {(state["training"], state["round"]) for state in start.manifest["states"]}
    assert {round for _, round in held} == {3}
    assert len(held) == 2
    assert {file.name for file in start.folder.iterdir()} == {*start.manifest["files"], MANIFEST}
    part_of = {next(iter(part["manifest"]["personalize"])) for part in start.manifest["parts"]}
    assert part_of == {"PersonalHead", "FineTune", "Ditto"}
    assert start.manifest["left_out"] == []


def test_the_accuracy_is_that_of_the_run(tmp_path):
    start = finished(tmp_path, seeds=(0, 1))
    rows = experiment.run([SETTING], RECIPES, [0, 1], cache=str(tmp_path / "cache"))
    for _, cell in start.accuracy.iterrows():
        ours = rows[(rows["method"] == cell["method"]) & (rows["column"] == cell["column"]) & (rows["seed"] == cell["seed"])]
        assert cell["accuracy"] == pytest.approx(ours.groupby("client")["accuracy"].mean().mean())
        assert cell["n"] == ours.groupby("client")["n"].max().sum()
    assert len(start.accuracy) == len(RECIPES) * 2 * 2
    assert start.manifest["run"]["parameters"] == {"rounds": 3}


def test_another_cache_than_the_runs_own_is_named(tmp_path):
    """Once, however many trainings it lacks."""
    finished(tmp_path, seeds=(0, 1))
    with pytest.raises(FileNotFoundError, match=r"elsewhere: [^;]+does not hold the state before round 3 \(and 3 more\)\. --cache names"):
        export.export(tmp_path / "run", tmp_path / "elsewhere")


def test_large_personal_parts_are_left_out_and_said(tmp_path, monkeypatch):
    finished(tmp_path)
    monkeypatch.setattr(export, "SMALL", 100)
    start = exported(tmp_path)
    assert start.manifest["parts"] == []
    assert start.methods == ["plain", "tuned"]  # what is fitted again stays
    assert [line.split(":")[0] for line in start.manifest["left_out"]] == ["ditto", "fedthe"]
    assert "has 0.17 MB" in start.manifest["left_out"][0]
    start = exported(tmp_path, limit=2 * export.LIMIT)
    assert start.methods == ["plain", "tuned", "ditto", "fedthe"], "who asks for more gets them"
    assert start.manifest["left_out"] == []


def test_what_most_methods_start_from_comes_first_until_the_limit(tmp_path):
    whole = finished(tmp_path)
    states = [whole.manifest["files"][state["file"]]["bytes"] for state in whole.manifest["states"]]
    start = exported(tmp_path, limit=1.5 * max(states))
    assert start.methods == ["plain", "tuned"]
    persistent, balanced = start.manifest["left_out"]
    assert persistent.startswith("ditto: its personal part")
    assert balanced.startswith("fedthe (seed 0): the training's")
    assert sum(told["bytes"] for told in start.manifest["files"].values()) < 1.6 * max(states)
    with pytest.raises(FileNotFoundError, match="exceed the limit"):
        exported(tmp_path, limit=10)


def test_of_two_measurements_the_one_on_more_images_is_told(tmp_path):
    start = finished(tmp_path, recipes={"plain": Recipe(CE, costly=True)}, request=Request(costly_samples=2), more={"plain": Recipe(CE)})
    assert start.accuracy.groupby("column")["n"].max().to_dict() == {"original": 21, "corrupted": 18}
    assert len(start.accuracy) == 2


def test_clients_outside_the_last_cohort_get_the_state_that_they_hold(tmp_path):
    setting = replace(SETTING, schedule=replace(SETTING.schedule, participation=0.4))
    start = finished(tmp_path, setting=setting, recipes={"plain": Recipe(CE), "tuned": Recipe(CE, FineTune())})
    assert sorted(state["round"] for state in start.manifest["states"]) == [2, 3]
    assert start.rounds(start.federations[0]) == [3]
    rows = experiment.run([setting], {"plain": Recipe(CE)}, [0], start=start, cache=None)
    again = experiment.run([setting], {"plain": Recipe(CE)}, [0], cache=str(tmp_path / "cache"))
    assert rows["accuracy"].tolist() == again["accuracy"].tolist()


def test_what_stays_with_clients_is_there_and_what_only_training_reads_is_not(tmp_path):
    setting = Setting("bn", tiny.Protocol(), WithNorm, Schedule(rounds=3, local=LOCAL, personal=LOCAL))
    recipes = {"stays": Recipe(FedBN()), "corrected": Recipe(SCAFFOLD())}
    start = finished(tmp_path, setting=setting, recipes=recipes, request=Request(rounds=(FINAL,)))
    groups = {}
    for state in start.manifest["states"]:
        tensors = Store(tmp_path / "cache").load("train", state["training"], "round-00004")
        kept = unflatten(read(start.folder / state["file"], f"{state['training']}/round-00004"))
        groups[len(kept)] = set(kept)
        assert torch.equal(kept["model"]["head.weight"], tensors["model/head.weight"])
    assert groups == {1: {"model"}, 2: {"model", "client_model"}}
    rows = experiment.run([setting], recipes, [0], request=Request(rounds=(FINAL,)), start=start, cache=None)
    trained = experiment.run([setting], recipes, [0], request=Request(rounds=(FINAL,)), cache=None)
    assert rows["accuracy"].tolist() == trained["accuracy"].tolist()
    assert rows["loss"].tolist() == trained["loss"].tolist()


def test_what_cannot_be_exported_says_why_and_what_to_do(tmp_path, capsys):
    with pytest.raises(SystemExit, match=r"no folder .*/nothere, neither here nor in the project"):
        export.main([str(tmp_path / "nothere")])
    with pytest.raises(SystemExit, match=r"no run.json in .*execute the notebook again"):
        export.main([str(tmp_path)])
    finished(tmp_path)
    with pytest.raises(SystemExit, match="does not hold the state before round 3"):
        export.main([str(tmp_path / "run"), "--cache", str(tmp_path / "elsewhere")])
    capsys.readouterr()
    export.main([str(tmp_path / "run"), "--cache", str(tmp_path / "cache"), "--limit", "1MB"])
    out = capsys.readouterr().out
    assert "    plain, tuned, ditto\n" in out
    assert "    fedthe\n" in out
    record = tmp_path / "run" / "run.json"
    record.write_text(record.read_text().replace('"identity": "', '"identity": "0'))
    with pytest.raises(SystemExit, match="belong to different runs"):
        export.main([str(tmp_path / "run"), "--cache", str(tmp_path / "cache")])


def test_a_repeated_export_replaces_the_earlier_one(tmp_path):
    first = finished(tmp_path)
    (first.folder / "from-before.safetensors").write_text("old")
    again = exported(tmp_path)
    assert {file.name for file in again.folder.iterdir()} == {*first.manifest["files"], MANIFEST}
    same = ("run", "states", "parts", "federations", "left_out")
    assert [again.manifest[name] for name in same] == [first.manifest[name] for name in same]
