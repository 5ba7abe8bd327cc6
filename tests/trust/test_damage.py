"""Damaged, foreign and outdated cache files, a full disk, a folder that may not be written: recomputed or stopped, never a wrong number."""

import os
import pwd
import resource
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.trust import job

RECIPES = {"fedthe": job.RECIPES["fedthe"]}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    cache = tmp_path_factory.mktemp("whole")
    return cache, job.run(cache, RECIPES)


def metadata_of(path):
    with safe_open(path, framework="pt") as file:
        return file.metadata()


def rewrite(path, content):
    path.write_bytes(content)


def outdated(path):
    save_file(load_file(path), path, metadata_of(path) | {"format": "1"})


def of_no_place(path):
    save_file(load_file(path), path, {name: text for name, text in metadata_of(path).items() if name != "place"})


def of_another_key(path):
    """The same stage and file name, of the other training or column."""
    others = [p for p in path.parent.parent.glob(f"*/{path.name}") if p.parent != path.parent]
    shutil.copy(others[0], path)


def of_another_round(path):
    shutil.copy(next(p for p in path.parent.glob("round-*.safetensors") if p != path), path)


def flipped(path):
    content = bytearray(path.read_bytes())
    content[-5] ^= 16
    path.write_bytes(content)


DAMAGES = {
    "truncated": lambda path: rewrite(path, path.read_bytes()[:-7]),
    "empty": lambda path: rewrite(path, b""),
    "foreign": lambda path: rewrite(path, b"PK\x03\x04 something else altogether"),
    "other tensors": lambda path: save_file({"model/head.weight": torch.zeros(3, 5)}, path),
    "flipped": flipped,
    "outdated": outdated,
    "of another key": of_another_key,
    "of no place": of_no_place,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_score_file_is_computed_again(whole, tmp_path, damage):
    cache = tmp_path / "cache"
    shutil.copytree(whole[0], cache)
    victim = sorted(cache.glob("adapt/*/scores.safetensors"))[0]
    DAMAGES[damage](victim)
    with pytest.warns(UserWarning, match=r"damaged or foreign.*set aside as scores\.damaged and computed again"):
        job.assert_same_rows(job.run(cache, RECIPES), whole[1])
    job.assert_same_cache(cache, whole[0])


@pytest.mark.parametrize(("stage", "damage"), [("train", of_another_round), ("train", flipped), ("personalize", of_another_round)])
def test_a_damaged_state_is_computed_again(whole, tmp_path, stage, damage):
    cache = tmp_path / "cache"
    shutil.copytree(whole[0], cache)
    shutil.rmtree(cache / "adapt")
    damage(sorted(cache.glob(f"{stage}/*/round-*.safetensors"))[-1])
    with pytest.warns(UserWarning, match="set aside"):
        job.assert_same_rows(job.run(cache, RECIPES), whole[1])
    job.assert_same_cache(cache, whole[0])


@contextmanager
def files_up_to(size):
    """No process may write a file beyond ``size`` bytes: what a full disk or a quota is to the writer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_stops_with_a_remedy_and_keeps_what_was_done(whole, tmp_path):
    largest = max(path.stat().st_size for path in whole[0].rglob("*.safetensors"))
    with files_up_to(largest - 1), pytest.raises(OSError, match=r"cannot write the cache file .*free disk space"):
        job.run(tmp_path, RECIPES)
    assert not list(tmp_path.rglob(".*.safetensors"))
    job.assert_same_rows(job.run(tmp_path, RECIPES), whole[1])
    job.assert_same_cache(tmp_path, whole[0])


@pytest.fixture
def read_only(whole):
    """A cache in a folder that this process, root or not, may read but not write."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        cache = Path(folder) / "cache"
        shutil.copytree(whole[0], cache)
        paths = [cache, *cache.rglob("*")]
        for path in paths:
            path.chmod(0o555 if path.is_dir() else 0o444)
        user = os.geteuid()
        if user == 0:
            try:
                os.seteuid(pwd.getpwnam("nobody").pw_uid)
            except (KeyError, OSError) as error:
                pytest.skip(f"root may write anywhere, and cannot become nobody: {error}")
        yield cache
        os.seteuid(user)
        for path in paths:
            if path.is_dir():
                path.chmod(0o755)


def test_a_complete_read_only_cache_serves(whole, read_only):
    job.assert_same_rows(job.run(read_only, RECIPES), whole[1])


def test_a_read_only_cache_stops_new_work_at_once(read_only, monkeypatch):
    monkeypatch.setattr(job.FedAvg, "update", lambda *arguments: pytest.fail("training began"))
    with pytest.raises(OSError, match="make the folder writable, or set another cache folder"):
        job.run(read_only, RECIPES, seeds=(1,))
