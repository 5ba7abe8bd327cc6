"""Several processes on one cache, by hand, through joblib and on a Dask cluster: the numbers of one process, nothing computed twice."""

import os
from collections import Counter
from dataclasses import dataclass

import pytest
import torch
from joblib import parallel_config
from threadpoolctl import threadpool_info

from fedlib.core import Output, Recipe
from fedlib.group import Group
from fedlib.setting import Request
from fedlib.train.fedavg import FedAvg
from tests.trust import job

WORK = ((FedAvg, "update"), (Group, "_fitted"), (Group, "_adapted"))


def logged(cache, log):
    with job.appended(log, *WORK):
        job.run(cache)


def test_two_processes_on_one_cache_share_the_work(tmp_path):
    alone, log = tmp_path / "alone.log", tmp_path / "both.log"
    with job.appended(alone, *WORK):
        rows = job.run(tmp_path / "alone")
    both = [job.start(logged, tmp_path / "both", log) for _ in range(2)]
    assert [job.finished(process) for process in both] == [0, 0]
    job.assert_same_cache(tmp_path / "both", tmp_path / "alone")
    assert Counter(log.read_text().split()) == Counter(alone.read_text().split())
    job.assert_same_rows(job.run(tmp_path / "both"), rows)


@dataclass(frozen=True)
class Threads:
    """Tells the process it runs in, and the number of threads that torch and any other numerical library may use there."""

    version: int = 1

    def run(self, task, state, personal, stream):
        libraries = max([pool["num_threads"] for pool in threadpool_info() if pool["user_api"] != "openmp"], default=1)
        count = torch.full((len(stream), 2), float(max(libraries, torch.get_num_threads())))
        process = torch.full((len(stream),), float(os.getpid()), dtype=torch.float64)
        return Output(torch.zeros(len(stream), 3), {"threads": count, "process": process})


def in_processes(cache, n_jobs):
    recipes = {"fedthe": job.RECIPES["fedthe"], "memo": job.RECIPES["memo"], "threads": Recipe(FedAvg(), None, Threads())}
    return job.run(cache, recipes, n_jobs=n_jobs, request=Request(extras=("weight", "threads", "process")))


def assert_same_elsewhere(there, here, folder):
    """The rows and caches of one process and of others, which had a thread each."""
    assert {count for array in there["threads"].dropna() for count in array.flatten()} == {1.0}
    assert os.getpid() not in {process for array in there["process"].dropna() for process in array}
    job.assert_same_rows(*(rows.drop(columns=["threads", "process"]) for rows in (there, here)))
    a, b = (job.tensors(folder / name) for name in ("there", "here"))
    assert list(a) == list(b)
    assert all(torch.equal(tensor, b[name]) for name, tensor in a.items() if not name.endswith(("process", "threads")))


@pytest.mark.slow
def test_two_joblib_processes_give_the_bits_of_one_and_use_a_thread_each(tmp_path):
    assert_same_elsewhere(in_processes(tmp_path / "there", 2), in_processes(tmp_path / "here", 1), tmp_path)


def test_a_dask_cluster_gives_the_bits_of_one_process(tmp_path):
    distributed = pytest.importorskip("distributed", reason="pip install -r requirements-cluster.txt")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=str(tmp_path)) as cluster,
        distributed.Client(cluster),
        parallel_config(backend="dask"),
    ):
        there = in_processes(tmp_path / "there", 2)
    assert_same_elsewhere(there, in_processes(tmp_path / "here", 1), tmp_path)
