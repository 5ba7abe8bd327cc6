"""The cache of a small run, listed and cleaned by the command."""

import contextlib
import os
import shutil
import time
from dataclasses import replace

import pytest

from fedlib.cache import contents as cache
from fedlib.cache import trim
from fedlib.cache.store import Store
from fedlib.protocols import PROTOCOLS
from tests.trust import job

RECIPES = {name: job.RECIPES[name] for name in ("memo", "fedthe")}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("cache")
    return root, job.run(root, RECIPES)


@pytest.fixture
def filled(made, tmp_path):
    """A cache with two trainings and what was computed from them, unused for ten and for two days."""
    os.system(f"cp -r {made[0]}/. {tmp_path}/")
    for days, entry in zip((10, 2), cache.entries(tmp_path), strict=True):
        age(entry, days)
    return tmp_path


def age(entry, days):
    then = time.time() - 86400 * days
    for folder in entry.folders:
        for path in (*folder.iterdir(), folder):
            os.utime(path, (then, then))


def files(root):
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file() and path.parent.name != ".runs")


def test_what_is_there_is_listed(filled, capsys):
    cache.main(["--cache", str(filled)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["paper", "images", "setting", "training", "seed", "rounds", "MB", "unused", "for", "days"]
    assert [line.split()[-1] for line in lines[1:3]] == ["10.0", "2.0"]
    assert all(line.split()[:6] == ["tiny", "noise", "here", "FedAvg", "0", "3"] for line in lines[1:3])
    assert lines[3].startswith("2 of 2 trainings")
    found = cache.entries(filled)
    assert {folder.parent.name for entry in found for folder in entry.folders} == {"train", "personalize", "adapt"}
    assert sum(entry.size for entry in found) == files(filled)


@pytest.mark.parametrize("choice", [["--unused", "5"], ["--down-to", "1B"], ["--paper", "tiny", "--unused", "5"]])
def test_what_is_removed_is_gone_with_all_that_came_from_it_and_computed_again(filled, made, choice, capsys):
    before = cache.entries(filled)
    cache.main(["--cache", str(filled), "--remove", *choice])
    left = cache.entries(filled)
    assert [entry.key for entry in left] == ([] if "--down-to" in choice else [before[1].key])
    assert not any(folder.exists() for folder in before[0].folders)
    assert "removed" in capsys.readouterr().out
    job.assert_same_rows(job.run(filled, RECIPES), made[1])
    job.assert_same_cache(filled, made[0])


def test_down_to_a_size_keeps_what_fits(filled):
    _, new = cache.entries(filled)
    cache.main(["--cache", str(filled), "--remove", "--down-to", f"{new.size}B"])
    assert [entry.key for entry in cache.entries(filled)] == [new.key]


def test_nothing_is_removed_unless_it_is_said_what(filled):
    with pytest.raises(SystemExit, match="say what to remove"):
        cache.main(["--cache", str(filled), "--remove"])
    assert len(cache.entries(filled)) == 2
    cache.main(["--cache", str(filled), "--remove", "--paper", "fedthe"])
    assert len(cache.entries(filled)) == 2
    with pytest.raises(SystemExit, match="--unused must be at least 0 days, got -1"):
        cache.main(["--cache", str(filled), "--remove", "--unused", "-1"])
    with pytest.raises(SystemExit, match="no cache folder"):
        cache.main(["--cache", str(filled / "gone")])
    with pytest.raises(SystemExit, match=r"no paper fedthee; known are atp, .*, tiny"):
        cache.main(["--cache", str(filled), "--paper", "fedthee"])


def test_what_a_run_in_progress_uses_stays(filled, capsys):
    """One training is read by a run in progress, the other one was not used since it began."""
    old, _ = cache.entries(filled)
    with Store(filled).in_use():
        Store(filled).note("train", old.key, {})
        cache.main(["--cache", str(filled), "--remove", "--down-to", "1B"])
        assert "1 trainings stay, since a run in progress uses them" in capsys.readouterr().out
        assert [entry.key for entry in cache.entries(filled)] == [old.key]
    age(old, 10)
    cache.main(["--cache", str(filled), "--remove", "--down-to", "1B"])
    assert cache.entries(filled) == []


def test_what_is_being_computed_stays(filled):
    old, _ = cache.entries(filled)
    with job.computing(filled, old.key):
        age(old, 10)
        cache.main(["--cache", str(filled), "--remove", "--unused", "5"])
        assert len(cache.entries(filled)) == 2


def test_the_mark_of_a_killed_run_protects_nothing(filled):
    (filled / ".runs").mkdir(exist_ok=True)
    (filled / ".runs" / "killed").touch()
    assert cache.busy_since(filled) == float("inf")
    assert not list((filled / ".runs").iterdir())


def test_a_run_marks_what_it_uses(filled):
    job.run(filled, RECIPES)
    assert all(time.time() - entry.used < 3600 for entry in cache.entries(filled))
    assert not list((filled / ".runs").iterdir())


def test_every_protocol_has_a_paper():
    modules = [protocol.__module__.rpartition(".")[2] for protocol in PROTOCOLS]
    assert {cache.PROTOCOLS.get(name, name) for name in modules} == {"fedthe", "upfl", "atp", "fedicon", "btfl"}


def test_leftovers_go(filled):
    folder = cache.entries(filled)[0].folders[0]
    for name in (".half-0123.safetensors", "round-00001.damaged", ".young-0123.safetensors"):
        (folder / name).write_bytes(b"x")
    (folder / ".about-0123.json").touch()
    for name in (".half-0123.safetensors", ".about-0123.json"):
        os.utime(folder / name, (1, 1))
    interrupted = folder.with_name(cache.aside("0123"))
    (interrupted / "below").mkdir(parents=True)
    assert cache.tidy(filled) == 3
    assert (folder / ".young-0123.safetensors").exists()
    assert not interrupted.exists()


@pytest.mark.parametrize("content", [b"", b"text", b"\xff" * 16, (2).to_bytes(8, "little") + b"[]", b"PK\x03\x04" * 4])
def test_damaged_files_are_listed_and_removed_as_others_are(filled, content, capsys):
    """Whatever stands in them; the note of a training too."""
    for path in (*filled.glob("train/*/*.safetensors"), *filled.glob("train/*/about.json")):
        path.write_bytes(content)
    assert trim.trim(filled, 0, 0) >= 0
    cache.main(["--cache", str(filled), "--remove", "--down-to", "1B"])
    assert "removed" in capsys.readouterr().out
    assert cache.entries(filled) == []


def test_an_interrupted_removal_does_not_stand_in_the_way_of_the_next(filled):
    folder = cache.entries(filled)[0].folders[0]
    left = folder.with_name(cache.aside(folder.name))
    left.mkdir()
    (left / "round-00001.safetensors").touch()
    cache.main(["--cache", str(filled), "--remove", "--down-to", "1B"])
    assert cache.entries(filled) == []
    assert not left.exists()


def test_a_run_that_begins_during_a_removal_keeps_what_it_uses(filled, monkeypatch):
    old, young = cache.entries(filled)
    remove = shutil.rmtree
    with contextlib.ExitStack() as running:

        def begin(folder, **how):
            if folder.name == cache.aside(old.key) and folder.exists():
                running.enter_context(Store(filled).in_use())
                Store(filled).note("train", young.key, {})
            remove(folder, **how)

        monkeypatch.setattr(cache.shutil, "rmtree", begin)
        assert cache.remove(filled, [old, young])[1] == 1
    assert [entry.key for entry in cache.entries(filled)] == [young.key]


def test_a_cache_from_before_there_were_notes_is_listed(filled, capsys):
    for path in filled.glob("train/*/about.json"):
        path.unlink()
    cache.main(["--cache", str(filled)])
    assert capsys.readouterr().out.splitlines()[1].split()[:5] == ["?", "?", "?", "FedAvg", "?"]


def test_longer_trainings_are_other_entries(filled):
    schedule = replace(job.SETTING.schedule, rounds=4)
    job.run(filled, RECIPES, settings=(replace(job.SETTING, schedule=schedule),))
    assert {entry.rounds for entry in cache.entries(filled)} == {4}
