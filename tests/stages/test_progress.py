import os
import re
import sys
import time

import pytest
from joblib import Parallel, delayed

from fedlib.stages import progress
from fedlib.stages.progress import bar, joint_bar, reported, reports


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_PROGRESS", str(tmp_path / "progress.log"))
    return tmp_path / "progress.log"


def test_a_short_loop_writes_nothing(log):
    assert list(bar(range(1000), "short")) == list(range(1000))
    assert not log.exists()


def test_a_long_loop_writes_a_line_now_and_then(log, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS", 0.05)
    start = time.monotonic()
    for i in (shown := bar(range(2000), "FedAvg, 3 of 9 clients a round", unit="round")):
        shown.set_postfix_str(f"{i} %", refresh=False)
        time.sleep(0.0002)
    lines = log.read_text().splitlines()
    assert 2 <= len(lines) <= 2 + (time.monotonic() - start) / 0.05
    assert "\r" not in log.read_text()
    form = r"\d\d:\d\d:\d\d FedAvg, 3 of 9 clients a round: \d+ of 2000 rounds, \d\d:\d\d so far, \d\d:\d\d left, \d+ %"
    assert all(re.fullmatch(form, line) for line in lines)


def test_a_loop_within_a_loop_leaves_no_cursor_moves_in_the_log(log, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    for _ in bar(range(2), "methods"):
        list(bar(range(3), "streams"))
    assert all(re.match(r"\d\d:\d\d:\d\d ((methods|streams): )?\d of", line) for line in log.read_text().splitlines())


def test_hidden_bars_still_reach_the_log_but_nothing_else(log, monkeypatch, capsys):
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    list(bar(range(3), "hidden", shown=False))
    assert "hidden" in log.read_text()
    monkeypatch.delenv("FEDLIB_PROGRESS")
    list(bar(range(3), "hidden", shown=False))
    assert capsys.readouterr().err == ""


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_PROGRESS", str(tmp_path / "gone" / "progress.log"))
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    assert list(bar(range(3), "lost")) == [0, 1, 2]


def test_lines_go_to_standard_error_where_it_is_a_file(monkeypatch, capsys):
    monkeypatch.delenv("FEDLIB_PROGRESS", raising=False)
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    list(bar(range(3), "shown"))
    written = capsys.readouterr().err
    assert "\r" not in written
    assert written.splitlines()[-1].startswith("shown: ")
    assert not sys.stderr.isatty()


def slow_job(rounds, seconds):
    """Two loops, as training and methods, of which one has a loop inside."""
    for _ in bar(range(rounds), "FedAvg", shown=False, unit="round"):
        time.sleep(seconds)
    for _ in bar(range(2), "clients", shown=False, unit="method"):
        for _ in bar(range(rounds), "streams", shown=False):
            time.sleep(seconds / 2)
    return rounds


def test_rounds_in_worker_processes_move_the_bar(log, monkeypatch):
    """Two trainings of one length: the bar is not at 0 until they end."""
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    monkeypatch.setattr(progress, "REPORT_SECONDS", 0.1)
    with reports(2) as files:
        jobs = [delayed(reported)(file, os.getpid(), slow_job, 8, 0.4) for file in files]
        results = Parallel(n_jobs=2, return_as="generator_unordered")(jobs)
        assert dict(joint_bar(results, "trainings", files, total=2)) == dict.fromkeys(files, 8)
    seen = [float(count) for count in re.findall(r"trainings: ([0-9.]+) of 2 trainings", log.read_text())]
    assert seen == sorted(seen)
    assert seen[-1] <= 2
    # A busy machine may show few of the steps, but not none.
    assert {n for n in seen if 0 < n < 2} - {1}
    assert re.search(r"FedAvg \d/8", log.read_text())
    assert not files[0].parent.exists()


def test_a_joint_bar_ends_where_its_jobs_did(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(progress, "bar", lambda *args, **options: shown.append(bar(*args, **options)) or shown[-1])
    assert list(joint_bar(iter("ab"), "trainings", [tmp_path / "none"], total=3, initial=1)) == ["a", "b"]
    assert shown[0].n == 3

    def failing():
        yield "a"
        raise RuntimeError

    with pytest.raises(RuntimeError):
        list(joint_bar(failing(), "trainings", [tmp_path / "none"], total=2))
    assert shown[1].n == 1


def test_a_joint_bar_knows_how_long_slow_jobs_take(log, tmp_path, monkeypatch):
    """Most looks at a slow job see nothing new, and count as time all the same."""
    monkeypatch.setattr(progress, "SECONDS", 0.02)
    monkeypatch.setattr(progress, "REPORT_SECONDS", 0.01)

    def one_training():
        for percent in (1, 2, 3, 4):
            time.sleep(0.25)
            (tmp_path / "new").write_text(f"{percent / 100} round {percent}/100")
            (tmp_path / "new").replace(tmp_path / "job")
        for _ in range(600):
            if log.exists() and "0.04 of 1" in log.read_text():
                break
            time.sleep(0.05)
        yield "trained"

    assert list(joint_bar(one_training(), "trainings", [tmp_path / "job"], total=1)) == ["trained"]
    # A second or more for the first 4 %: the rest takes half a minute or more.
    left = re.findall(r"0\.04 of 1 trainings, .* so far, (\d\d):(\d\d) left", log.read_text())
    assert left
    assert all(60 * int(minutes) + int(seconds) >= 20 for minutes, seconds in left)


def test_how_much_of_a_job_is_done(tmp_path):
    job = progress._Job(tmp_path / "report")
    assert job.fraction() == 0
    job.loops.append([3, 4])
    assert job.fraction() == 3 / 8
    job.loops.append([1, 2])
    assert job.fraction() == 3.5 / 8
    job.loops, job.finished = [[1, 2]], 1
    assert job.fraction() == 0.75
    job.finished = 5
    assert job.fraction() == 1


def test_a_job_whose_report_cannot_be_written_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "REPORT_SECONDS", 0.0)
    assert reported(tmp_path / "gone" / "report", os.getpid(), slow_job, 2, 0.0) == (tmp_path / "gone" / "report", 2)
