"""Calls in worker processes; ``tests/train/test_methods.py`` has whole trainings, ``tests/trust/test_ends.py`` their end."""

import multiprocessing
import os
from types import SimpleNamespace

import torch

from fedlib.stages.workers import end_workers, in_workers


def _seen(i: int) -> tuple[int, int, int]:
    return i, os.getpid(), torch.get_num_threads()


def test_results_come_in_order_from_processes_with_as_many_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        numbers, processes, counts = zip(*in_workers(_seen, [(i,) for i in range(6)], 2), strict=True)
    finally:
        torch.set_num_threads(threads)
    assert numbers == tuple(range(6))
    assert os.getpid() not in processes
    assert len(set(processes)) <= 2
    assert set(counts) == {3}


def test_a_process_that_may_start_none_does_everything_itself(monkeypatch):
    monkeypatch.setattr(multiprocessing, "current_process", lambda: SimpleNamespace(daemon=True))
    assert in_workers(_seen, [(5,), (7,)], 2) == [(i, os.getpid(), torch.get_num_threads()) for i in (5, 7)]


def test_ended_workers_are_replaced_by_new_ones():
    before, after = [], []
    for seen in (before, after):
        seen += [process for _, process, _ in in_workers(_seen, [(i,) for i in range(4)], 2)]
        end_workers()
        end_workers()
    assert not {*before} & {*after}
