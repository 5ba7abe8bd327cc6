import sys
import time

import pytest

from fedlib import progress
from fedlib.progress import bar


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_PROGRESS", str(tmp_path / "progress.log"))
    return tmp_path / "progress.log"


def test_a_short_loop_writes_nothing(log):
    assert list(bar(range(1000), "short")) == list(range(1000))
    assert not log.exists()


def test_a_long_loop_writes_a_line_now_and_then(log, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS", 0.05)
    for i in (shown := bar(range(2000), "FedAvg, 3 of 9 clients a round", unit="round")):
        shown.set_postfix_str(f"{i} %", refresh=False)
        time.sleep(0.0002)
    lines = log.read_text().splitlines()
    assert 2 <= len(lines) <= 25
    assert "\r" not in log.read_text()
    assert all(line.startswith("FedAvg, 3 of 9 clients a round: ") and "round" in line and "%" in line and "<" in line for line in lines)


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
