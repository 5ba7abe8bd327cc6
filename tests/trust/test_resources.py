"""Memory does not grow with the clients that a run has seen. (Threads: test_concurrency.)"""

import gc
import resource
from dataclasses import replace
from pathlib import Path

from fedlib import federation
from fedlib.cache.store import Store
from fedlib.core import Local, Recipe, Schedule
from fedlib.setting import Request, Setting
from fedlib.train.fedavg import FedAvg
from tests import tiny
from tests.trust import job

MEGABYTE = 2**20


def resident() -> int:
    """Bytes of memory that this process holds."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def train_many(answer: Path, cache: Path) -> None:
    """Two clients of 200 a round, networks of 0.7 megabytes; write how much memory rounds 21 to 90 add."""
    task = tiny.task(dtype=tiny.torch.float32, rounds=90, participation=0.01, save_every=90)
    local = Local(lr=0.01, batch_size=8, epochs=1)
    task = replace(task, model=job.experiment.build("mlp_big", tiny.SHAPE, tiny.CLASSES, 0), schedule=replace(task.schedule, local=local))
    clients, readings = [tiny.client(k, 8) for k in range(200)], {}

    class Watching(FedAvg):
        def aggregate(self, task, server, messages, cohort, round):
            if round in (20, 90):
                readings[round] = resident()
            return super().aggregate(task, server, messages, cohort, round)

    federation.run(task, Watching(), clients, Store(cache), "key", {}, progress=False)
    answer.write_text(str(readings[90] - readings[20]))


def adapt_many(answer: Path, cache: Path) -> None:
    """Personal parts and scores of 10, then of the same kind at eight more rounds; write how much memory the latter add."""
    schedule = Schedule(rounds=10, local=job.LOCAL, personal=job.LOCAL)
    setting, recipes = Setting("here", tiny.Protocol(), "mlp_big", schedule), {name: job.RECIPES[name] for name in ("ditto", "fedthe")}
    job.run(cache, recipes, (setting,), request=Request(rounds=(1, 2)))
    before = resident()
    job.run(cache, {"FedAvg": Recipe(FedAvg())} | recipes, (setting,), request=Request(rounds=tuple(range(3, 11))))
    answer.write_text(str(resident() - before))


def grown(work, folder) -> int:
    assert job.finished(job.start(work, folder / "answer", folder / "cache")) == 0
    return int((folder / "answer").read_text())


def test_training_does_not_grow_with_the_clients_seen(tmp_path):
    """140 visits of clients with 0.7 megabytes each would be 98 MB if anything kept them."""
    assert grown(train_many, tmp_path) < 20 * MEGABYTE


def test_a_run_gives_back_what_it_took(tmp_path):
    """Eight rounds of three personal networks would be 17 MB for each recipe."""
    assert grown(adapt_many, tmp_path) < 20 * MEGABYTE
