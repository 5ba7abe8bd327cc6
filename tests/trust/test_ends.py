"""Whatever ends the command that runs notebooks, their kernels and worker processes end with it, within seconds."""

import os
import signal
import subprocess
import sys
import time

import nbformat
import psutil
import pytest

from fedlib.tools.parameters import PROJECT

PARAMETERS = """# Parameters
profile = "smoke"  # profile
jobs = 2  # processes
output = None  # folder
cache = "cache"  # folder"""
ENDLESS = """from dataclasses import replace
from fedlib import Engine
from tests.trust import job
long = replace(job.SETTING, schedule=replace(job.SETTING.schedule, rounds=1_000_000))
job.run(cache, {"fedthe": job.RECIPES["fedthe"]}, [long], seeds=SEEDS, engine=Engine(chunk_size=1), n_jobs=jobs)"""
# Workers train one federation each, or share the clients of a single one.
WORKERS = {"trainings": "SEEDS = 0, 1", "clients": "from fedlib.stages import workers\nSEEDS, workers.WORTH = (0,), 0"}
COMMAND = """import sys
from pathlib import Path
from fedlib import __main__, reproduce
reproduce.NOTEBOOKS, reproduce.ORDER = Path(sys.argv[1]), ()
__main__.main(["run", "--processes", "2", "-p", "jobs", "2", "-p", "output", sys.argv[2], "-p", "cache", sys.argv[3]])"""


@pytest.fixture
def started(tmp_path, request):
    """The command in a session of its own, when its workers are in the middle of a training, and all processes that belong to it."""
    kind = getattr(request, "param", "trainings")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in (PARAMETERS, f"{WORKERS[kind]}\n{ENDLESS}")])
    notebook.cells[0].metadata["tags"] = ["parameters"]
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    (tmp_path / "notebooks").mkdir()
    nbformat.write(notebook, tmp_path / "notebooks" / "endless.ipynb")
    paths = [str(tmp_path / name) for name in ("notebooks", "out", "cache")]
    environment = os.environ | {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
    with (tmp_path / "screen").open("w") as screen:
        command = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *paths],
            stdout=screen,
            stderr=screen,
            env=environment,
            start_new_session=True,
            cwd=tmp_path,
            # Tests that run in a shell's background ignore Ctrl-C, under nohup a closed terminal, and what they start would too.
            preexec_fn=lambda: [signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGHUP)],
        )
    deadline = time.monotonic() + 200
    while len(list((tmp_path / "cache").glob("train/*/round-00003.safetensors"))) < (2 if kind == "trainings" else 1):
        assert command.poll() is None, (tmp_path / "screen").read_text()
        assert time.monotonic() < deadline, (tmp_path / "screen").read_text()
        time.sleep(0.2)
    family = psutil.Process(command.pid).children(recursive=True)
    assert sum("loky" in " ".join(process.cmdline()) for process in family) >= 2
    yield command, family, tmp_path / "screen"
    command.kill()
    command.wait()
    for process in family:
        if process.is_running():
            process.kill()


def seconds_to_end(family) -> float:
    start = time.monotonic()
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive, [process.cmdline() for process in alive]
    return time.monotonic() - start


def end(how, command) -> None:
    signals = {"Ctrl-C": signal.SIGINT, "terminated group": signal.SIGTERM, "closed terminal": signal.SIGHUP}
    if how in signals:
        os.killpg(command.pid, signals[how])
    else:
        command.send_signal({"terminated": signal.SIGTERM, "out of memory": signal.SIGKILL}[how])


@pytest.mark.parametrize("how", ["out of memory", "Ctrl-C", "terminated", "terminated group", "closed terminal"])
def test_nothing_is_left_behind(started, how):
    command, family, _ = started
    end(how, command)
    assert command.wait(20) != 0
    assert seconds_to_end(family) < 10


@pytest.mark.parametrize("started", WORKERS, indirect=True)
def test_a_killed_kernel_takes_its_workers_along_and_is_reported(started):
    command, family, screen = started
    (kernel,) = (process for process in family if "ipykernel_launcher" in " ".join(process.cmdline()))
    kernel.kill()
    assert seconds_to_end(family) < 10
    assert command.wait(60) == 1
    assert "endless: stopped after" in screen.read_text()
    assert "its kernel was killed; if the machine ran out of memory" in screen.read_text()
