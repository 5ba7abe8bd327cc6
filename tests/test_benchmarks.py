import time

import numpy as np
import pandas as pd
import pytest
import torch

from tests.benchmarks import figure
from tests.benchmarks.local import operations, task_of
from tests.benchmarks.measure import compared, exponent, fastest, machine, peak_mib
from tests.benchmarks.shares import shares


def test_exponent_of_a_power_law_and_of_its_end():
    sizes = [10, 100, 1000, 10_000]
    assert exponent(sizes, [3 * n**1.5 for n in sizes]) == pytest.approx(1.5)
    assert exponent(sizes, [5 + 1e-9, 100, 1000, 10_000]) == pytest.approx(1)  # the constant at the start does not count
    assert np.isnan(exponent(sizes, [1, 1, 0, 1]))


def test_ratios_are_per_unit_of_work():
    rows = pd.DataFrame(compared("case", {"loop": 2.0, "ours": 1.0}, per="sample", works={"loop": 1, "ours": 100}))
    assert rows["seconds"].tolist() == [2.0, 0.01]
    assert rows["ratio"].tolist() == [1.0, 200.0]


def test_the_fastest_repeat_counts_and_waiting_does_not():
    calls = []
    seconds = fastest({"waits": lambda: time.sleep(0.02), "works": lambda: calls.append(sum(range(200_000)))}, repeats=3)
    assert len(calls) == 3
    assert seconds["works"] > seconds["waits"]


def test_peak_memory_of_a_known_block():
    assert 60 < peak_mib(lambda: torch.ones(16 * 2**20)) < 75


def test_operations_of_a_linear_head():
    """640 weights: a product forwards, and one for their gradient; the input needs none."""
    assert operations(task_of(None, (1, 8, 8)), (1, 8, 8)) == 2 * 2 * 640


def test_a_result_says_where_and_when():
    assert list(machine()) == ["date", "cpu", "cores", "load", "threads", "torch"]
    assert machine()["torch"] == torch.__version__


def test_figure_shows_the_best_own_variant(tmp_path):
    ratios = pd.DataFrame(compared("FedTHE", {"loop over samples": 1.0, "published style": 0.1, "whole stream": 0.01}, per="sample"))
    ratios.assign(**machine()).to_csv(tmp_path / "streams.csv", index=False)
    figure.write(tmp_path)
    assert not (tmp_path / "bench.png").exists()
    growth = pd.DataFrame({"case": "FedTHE", "against": "classes", "size": [1, 10], "seconds": [1.0, 2.0], "time_exponent": 0.3})
    growth.assign(**machine()).to_csv(tmp_path / "growth.csv", index=False)
    figure.write(tmp_path)
    assert (tmp_path / "bench.png").exists()
    shown = pd.read_csv(tmp_path / "bench.csv")
    assert shown[["case", "variant", "ratio"]].to_numpy().tolist() == [["FedTHE", "whole stream", 100.0]]


def test_parts_within_a_part_count_once():
    class Work:
        def outer(self):
            spin(0.02)
            self.inner()

        def inner(self):
            spin(0.02)

    def spin(seconds):
        start = time.process_time()
        while time.process_time() - start < seconds:
            pass

    def both():
        Work().outer()
        spin(0.04)

    parts = shares(both, {"outer": (Work, "outer"), "inner": (Work, "inner")})
    assert parts == pytest.approx({"outer": 0.25, "inner": 0.25, "all else": 0.5}, abs=0.08)
