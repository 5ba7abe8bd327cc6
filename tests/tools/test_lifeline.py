"""A worker ends with the process it works for; ``tests/trust/test_ends.py`` ends whole commands."""

import os

import pytest
from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.process_executor import TerminatedWorkerError

from fedlib.tools.lifeline import follow


def _followed(parent: int) -> int:
    follow(parent)
    return os.getppid()


def test_a_worker_goes_on_with_its_parent_and_ends_without_it():
    here = os.getpid()
    with ProcessPoolExecutor(1) as workers:
        assert workers.submit(_followed, here).result() == here
    with ProcessPoolExecutor(1) as workers, pytest.raises(TerminatedWorkerError):
        workers.submit(_followed, here + 1_000_000).result()


def test_no_other_process_is_ended():
    follow(os.getpid() + 1_000_000)
