"""``make gpu`` at sizes at which nothing is measured, on a CPU: every part runs, checks itself and writes what it promises."""

import csv
import json
import os
import subprocess
import sys

import pytest
import torch

from fedlib.stages import engine
from fedlib.stages.engine import Engine
from tests.gpu import __main__ as command
from tests.gpu import local, streams, table1
from tests.gpu.measure import Bench, gap, write


def rows(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def test_the_command_ends_by_itself_and_says_how_it_went(tmp_path):
    options = ["--device", "cpu", "--tiny", "--seconds", "400", "--out", tmp_path / "out", "--cache", tmp_path / "cache"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu", *map(str, options), "--only", "local-mlp"], cwd=command.ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr + (tmp_path / "out" / "log.txt").read_text()
    about = json.loads((tmp_path / "out" / "run.json").read_text())
    assert [(part["part"], part["state"]) for part in about["parts"]] == [("local-mlp", "ok")]
    assert about["device"] == "CPU"
    assert about["torch"] == torch.__version__
    found = rows(tmp_path / "out" / "local.csv")
    ran = {row["variant"] for row in found if row["status"] == "ok"}
    assert ran == {"plain loop", "one by one", "stack of 8", "stack of 20", "plain loop on one core"}
    left_out = {row["variant"]: row["status"] for row in found if row["variant"] in ("CUDA graph", "torch.compile", "4 processes")}
    assert left_out == dict.fromkeys(("CUDA graph", "torch.compile", "4 processes"), "not run: it needs a CUDA device")
    assert [row["network"] for row in rows(tmp_path / "out" / "fastest_on_gpu.csv")] == ["mlp"]
    assert (tmp_path / "out" / "local.png").stat().st_size > 1000


NOTEBOOKS = ("IPython", "papermill", "nbformat", "nbconvert", "nbval", "jupyterlab", "ipywidgets", "yaml", "xdist")


def test_no_part_needs_what_notebooks_need(tmp_path):
    """A bare machine has torch and the usual scientific packages, and nothing can be installed there."""
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({NOTEBOOKS!r}))\n")
    modules = ["tests.gpu.__main__", "tests.gpu.local", "tests.gpu.streams", "tests.gpu.table1", "tests.test_cuda"]
    paths = os.pathsep.join((str(tmp_path), str(command.ROOT)))
    check = "import sys; assert sys.modules['yaml'] is None; import " + ", ".join(modules)
    done = subprocess.run(
        [sys.executable, "-c", check], cwd=tmp_path, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_part_that_takes_too_long_is_stopped(tmp_path):
    options = command.parser().parse_args(["--device", "cpu", "--out", str(tmp_path), "--cache", str(tmp_path)])
    assert command.run("streams", options, 1.0)["state"] == "stopped when its time was up"


@pytest.mark.parametrize("network", ["shallow_cnn", "mlp"])
def test_processes_train_what_the_plain_loop_trains(network):
    clients, phase = local.clients(network, "cpu", 3, 40), local.Local(epochs=1)
    ours = local.in_processes(network, "cpu", torch.float64, 3, 40, phase, 2)
    assert gap(ours, local.plain(network, "cpu", torch.float64, clients, phase)) < 1e-12


def test_streams_and_views_agree_with_loops_over_samples(tmp_path):
    streams.main("cpu", 1e6, tmp_path / "streams.csv", tiny=True)
    found = rows(tmp_path / "streams.csv")
    assert {row["status"] for row in found} == {"ok"}
    assert {row["network"] for row in found} == {"FedTHE", "BTFL", "T3A", "MEMO", "FedTHEPlus"}


@pytest.mark.filterwarnings("ignore")
def test_table_1_goes_on_from_its_cache(tmp_path):
    for name in ("first", "second"):
        table1.main("cpu", str(tmp_path / "cache"), str(tmp_path), tmp_path / f"{name}.csv", tiny=True)
        states = sorted((tmp_path / "cache").rglob("round-*.safetensors"))
        made = {path: path.stat().st_mtime_ns for path in states} if name == "first" else made  # noqa: F821
    assert made == {path: path.stat().st_mtime_ns for path in states}
    assert (tmp_path / "first.csv").read_text() == (tmp_path / "second.csv").read_text()
    assert {row["split"] for row in rows(tmp_path / "first.csv")} == {"fixed", "resplit"}


def test_a_wrong_or_failing_variant_is_left_out_and_the_others_go_on(tmp_path):
    bench = Bench("cpu", float("inf"), tmp_path / "rows.csv")
    case = {"part": "local", "network": "n", "size": 1}

    def fails():
        raise RuntimeError("no such kernel\nsecond line")

    bench.add(case | {"variant": "plain"}, lambda: None, lambda: 0.0, 0.0)
    bench.add(case | {"variant": "wrong"}, lambda: None, lambda: 1.0, 1e-9)
    bench.add(case | {"variant": "not a number"}, lambda: None, lambda: float("nan"), 1e-9)
    bench.add(case | {"variant": "failing"}, lambda: None, fails, 1e-9)
    bench.add(case | {"variant": "right"}, lambda: None, lambda: 0.0, 0.0)
    bench.deadline = 0.0
    bench.add(case | {"variant": "late"}, lambda: None, lambda: 0.0, 0.0)
    assert [row["status"] for row in rows(tmp_path / "rows.csv")] == [
        "ok",
        "not run: differs from the plain form",
        "not run: differs from the plain form",
        "not run: RuntimeError: no such kernel",
        "ok",
        "not run: out of time",
    ]


def test_the_engine_takes_the_fastest_form(tmp_path, monkeypatch):
    """Of those that may be a default, by the mean over cohorts; a chunk size that the user gives switches the table off."""
    measured = [
        {"network": "cnn", "variant": variant, "ratio": str(ratio), "status": "ok"}
        for variant, *ratios in (("stack of 20", 4, 1), ("CUDA graph", 3, 3), ("bfloat16, channels last", 9, 9), ("4 processes", 9, 9))
        for ratio in ratios
    ]
    measured.append({"network": "cnn", "variant": "stack of 8", "ratio": "", "status": "not run: out of time"})
    table = local.choose(measured)
    assert table == [{"network": "cnn", "chunk_size": 1, "options": "graph", "ratio_to_plain_loop": pytest.approx(3)}]
    write(tmp_path / "table.csv", table)
    monkeypatch.setattr(engine, "FASTEST", tmp_path / "table.csv")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    engine.fastest_on_gpu.cache_clear()
    try:
        on_gpu = Engine(device="cuda")
        assert on_gpu.form("cnn", True) == (1, ("graph",))
        assert on_gpu.form("resnet18", True) == (100, ())
        assert Engine(device="cuda", options=()).form("cnn", True) == (1, ())
        assert Engine(device="cuda", chunk_size=8).form("cnn", True) == (8, ())
        assert Engine().form("cnn", True) == (1, ())
        assert Engine().form("mlp", False) == (32, ())
    finally:
        engine.fastest_on_gpu.cache_clear()
