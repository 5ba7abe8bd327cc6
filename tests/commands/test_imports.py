"""What an import puts into the cache is what training would have put there, and what it cannot is left out by name."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

import fedlib
from fedlib import experiment
from fedlib.cache.store import key_of
from fedlib.commands import imports
from fedlib.core import Recipe, Schedule
from fedlib.start import MANIFEST, pretrained
from fedlib.train.fedavg import FedAvg
from fedlib.train.scaffold import SCAFFOLD
from tests.test_start import LOCAL, RECIPES, SETTING, finished
from tests.trust.job import assert_same_rows

LONGER = replace(SETTING, schedule=Schedule(rounds=5, local=LOCAL, personal=LOCAL))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    return finished(folder).folder, folder / "cache"


@pytest.fixture
def trained(monkeypatch):
    """The rounds that are trained from here on."""
    rounds, update = [], FedAvg.update

    def counted(self, task, server, cohort, round):
        rounds.append(round)
        return update(self, task, server, cohort, round)

    monkeypatch.setattr(FedAvg, "update", counted)
    return rounds


def put(folder, cache, capsys):
    imports.main([str(folder), "--cache", str(cache)])
    return capsys.readouterr().out.splitlines()


def test_the_same_run_trains_what_was_not_kept_and_a_longer_one_the_further_rounds(made, trained, tmp_path, capsys):
    folder, whole = made
    lines = put(folder, tmp_path, capsys)
    assert len(lines) == 2
    assert all(line.endswith("here, seed 0, 3 rounds: in the cache now") for line in lines)
    assert put(folder, tmp_path, capsys) == [line.replace("in the cache now", "left out, the cache has it") for line in lines]
    expected = experiment.run([SETTING], RECIPES, [0], cache=str(whole))
    assert_same_rows(expected, experiment.run([SETTING], RECIPES, [0], cache=str(tmp_path)))
    assert trained == [3, 3], "the state before the last round was evaluated and is there"
    ours = experiment.run([LONGER], RECIPES, [0], cache=str(tmp_path))
    assert sorted(trained) == [3, 3, 4, 4, 5, 5]
    assert_same_rows(experiment.run([LONGER], RECIPES, [0], cache=None), ours)


def test_a_training_that_is_not_there_is_made_beside_those_that_are(made, trained, tmp_path, capsys):
    put(made[0], tmp_path, capsys)
    rows = experiment.run([SETTING], {"plain": RECIPES["plain"], "mine": Recipe(FedAvg(lr=0.01))}, [0], cache=str(tmp_path))
    assert trained == [3, 1, 2, 3]
    assert set(rows["method"]) == {"plain", "mine"}


def test_an_earlier_round_trains_from_the_start_to_the_same_state(made, tmp_path, capsys):
    put(made[0], tmp_path, capsys)
    settings, request = [SETTING], experiment.Request(rounds=(2,))
    with pytest.warns(UserWarning, match="starts over"):
        ours = experiment.run(settings, {"plain": RECIPES["plain"]}, [0], request=request, cache=str(tmp_path))
    assert_same_rows(experiment.run(settings, {"plain": RECIPES["plain"]}, [0], request=request, cache=None), ours)


def test_what_cannot_be_continued_is_left_out(tmp_path, capsys):
    start = finished(tmp_path / "a", recipes={"scaffold": Recipe(SCAFFOLD()), "plain": RECIPES["plain"]})
    lines = {json.loads(line.split(", here")[0]).popitem()[0]: line for line in put(start.folder, tmp_path / "cache", capsys)}
    assert lines["SCAFFOLD"].endswith("left out, the export does not hold all that its server keeps from round to round")
    assert lines["FedAvg"].endswith("in the cache now")
    other = tmp_path / "other"
    shutil.copytree(start.folder, other)
    path = other / MANIFEST
    path.write_text(path.read_text().replace(f'"torch": "{torch.__version__}"', '"torch": "1.0"'))
    assert all(line.endswith(f"trained with torch 1.0, and here is {torch.__version__}") for line in put(other, tmp_path / "new", capsys))
    assert not list((tmp_path / "new").glob("**/*.safetensors"))


def test_a_name_that_is_none_is_refused(capsys):
    with pytest.raises(SystemExit, match="trained federation"):
        put("digits/fedthee", "cache", capsys)


def test_an_import_that_was_interrupted_is_taken_up_again(made, trained, tmp_path, capsys, monkeypatch):
    save = imports.Store.save

    def stopped(self, stage, *what):
        if stage == "train":
            raise KeyboardInterrupt
        save(self, stage, *what)

    with monkeypatch.context() as patched:
        patched.setattr(imports.Store, "save", stopped)
        with pytest.raises(KeyboardInterrupt):
            put(made[0], tmp_path, capsys)
    assert all(line.endswith("in the cache now") for line in put(made[0], tmp_path, capsys))
    experiment.run([SETTING], RECIPES, [0], cache=str(tmp_path))
    assert trained == [3, 3]


def test_what_an_earlier_version_made_counts_as_its_manifest_says(trained, tmp_path, capsys):
    start = pretrained("digits/fedthe")
    assert any(key_of(part["manifest"]) != part["key"] for part in start.manifest["parts"])
    put(start.folder, tmp_path, capsys)
    methods = fedlib.recipes_of("fedthe", "FedAvg", "FedTHE")
    ours = experiment.run(start.settings, methods, start.seeds, cache=str(tmp_path))
    assert trained == [30, 30], "the state before the last round is there, with the heads that lived until then"
    assert_same_rows(experiment.run(start.settings, methods, start.seeds, cache=None, start=start), ours)


def test_what_is_committed_says_what_can_be_continued():
    start = pretrained("cifar10-jpeg/comparison-upfl")
    kinds = {federation["training"]: next(iter(federation["manifest"]["train"])) for federation in start.federations}
    assert {(kinds[state["training"]], state["whole"]) for state in start.manifest["states"]} == {("FedAvg", True), ("FedICON", False)}
