"""The command line as people treat it: killed while a notebook runs, started twice at once, written to a log. Minutes, hence slow."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from fedlib.tools.parameters import PROJECT
from tests.trust import job

pytestmark = pytest.mark.slow
SMALL = {"tables": "[T1]", "methods": "[FedAvg, FedTHE]", "alphas": "[0.1]", "rounds": "3", "clients": "3", "jobs": "1"}


def reproduce(folder: Path) -> subprocess.Popen:
    """FedTHE's notebook with one small table, its cache and output under ``folder``, what it says in ``folder``/log."""
    parameters = SMALL | {"cache": str(folder / "cache"), "output": str(folder / "out")}
    given = [word for name, value in parameters.items() for word in ("-p", name, value)]
    folder.mkdir(exist_ok=True)
    with (folder / "log").open("a") as log:
        command = [sys.executable, "-m", "fedlib.reproduce", "--paper", "fedthe", *given]
        return subprocess.Popen(command, cwd=PROJECT, stdout=log, stderr=log, env=os.environ | {"PYTHONPATH": str(PROJECT)})


def results(folder: Path) -> dict[str, bytes]:
    """What a run writes, but for dates and durations."""
    return {path.name: path.read_bytes() for path in sorted((folder / "out").iterdir()) if path.suffix in (".csv", ".tex", ".svg", ".png")}


def assert_same_results(folder: Path, whole: Path):
    job.assert_same_cache(folder / "cache", whole / "cache")
    assert results(folder) == results(whole)
    assert "T1.csv" in results(folder)
    assert sorted(path.name for path in (folder / "out").iterdir()) == sorted(path.name for path in (whole / "out").iterdir())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    assert reproduce(folder).wait(timeout=300) == 0
    return folder


def test_a_log_is_short_and_readable(whole):
    lines = (whole / "log").read_text().splitlines()
    assert lines[-1].startswith("fedthe: done in ")
    assert lines[-1].endswith(f", see {whole / 'out' / 'notebook.html'}")
    assert len(lines) < 10
    assert not any("\r" in line or "%|" in line for line in lines)
    assert not (whole / "out" / "progress.log").exists()


@pytest.mark.parametrize("draw", range(2))
def test_killed_while_a_notebook_runs(whole, tmp_path, draw):
    """Killed after a random number of cache files; the notebook's kernel, bereft of its parent, goes too."""
    last = len(list((whole / "cache").rglob("*.safetensors")))
    after = random.Random(draw).randint(1, last - 1)
    process = reproduce(tmp_path)
    while len(list((tmp_path / "cache").rglob("[!.]*.safetensors"))) < after:
        assert process.poll() is None
        time.sleep(0.01)
    kernels = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    assert not (tmp_path / "out" / "run.json").exists()
    assert reproduce(tmp_path).wait(timeout=300) == 0
    _, alive = psutil.wait_procs(kernels, timeout=30)
    for orphan in alive:
        orphan.kill()
    assert not alive
    assert_same_results(tmp_path, whole)


def test_two_at_once_into_one_folder(whole, tmp_path):
    both = [reproduce(tmp_path) for _ in range(2)]
    assert [process.wait(timeout=300) for process in both] == [0, 0]
    assert_same_results(tmp_path, whole)
