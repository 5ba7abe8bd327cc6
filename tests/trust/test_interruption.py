"""SIGKILL at any moment: the next run goes on and ends with the bits of one that was never interrupted."""

import functools
import random
import signal

import pytest

from tests.trust import job

STAGES = (*job.STAGES, "writing")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Cache and rows of an uninterrupted run, and a function that says how many calls (or writes) a stage has."""
    cache = tmp_path_factory.mktemp("whole")
    rows = job.run(cache)

    @functools.cache
    def size(stage):
        folder = tmp_path_factory.mktemp("count")
        assert job.finished(job.start(job.count, folder / "cache", stage, folder / "n")) == 0
        return int((folder / "n").read_text())

    return cache, rows, size


def killed_and_resumed(whole, cache, stage, fraction):
    cache_of_whole, rows, size = whole
    n = 1 + int(fraction * (size(stage) - 1))
    assert job.finished(job.start(job.die, cache, stage, n)) == -signal.SIGKILL
    before = job.tensors(cache)
    assert len(before) < len(job.tensors(cache_of_whole))
    assert list(cache.rglob(".*-*.safetensors")) or stage != "writing"
    job.assert_same_rows(job.run(cache), rows)
    job.assert_same_cache(cache, cache_of_whole)


@pytest.mark.parametrize(("stage", "fraction"), [("training", 0.6), ("adaptation", 0.7), ("writing", 0.5)])
def test_killed_and_resumed_equals_uninterrupted(whole, tmp_path, stage, fraction):
    killed_and_resumed(whole, tmp_path, stage, fraction)


@pytest.mark.slow
@pytest.mark.parametrize("draw", range(6))
@pytest.mark.parametrize("stage", STAGES)
def test_random_kill_points(whole, tmp_path, stage, draw):
    killed_and_resumed(whole, tmp_path, stage, random.Random(f"{stage} {draw}").random())


@pytest.mark.slow
def test_killed_again_and_again(whole, tmp_path):
    """Five kills in a row on one cache, each as far into what is left of the stage."""
    draws = random.Random(0)
    for stage in ("training", "writing", "personal part", "adaptation", "writing"):
        assert job.finished(job.start(job.die, tmp_path, stage, draws.randint(2, 6))) == -signal.SIGKILL
    job.assert_same_rows(job.run(tmp_path), whole[1])
    job.assert_same_cache(tmp_path, whole[0])
