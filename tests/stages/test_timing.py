import time
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch

from fedlib.core import NoAdapt, Output, Recipe
from fedlib.models import state_of
from fedlib.personalize.fine_tune import FineTune
from fedlib.stages import timing
from fedlib.train.fedavg import FedAvg
from tests import tiny


@dataclass(frozen=True)
class Hoarder:
    """Holds one MiB, then two more beside it, then gives the first up for four."""

    version: int = 1

    def run(self, task, state, personal, stream):
        first = torch.zeros(2**18)
        second = torch.zeros(2**19)
        del first
        third = torch.zeros(2**20)
        del second, third
        return Output(torch.zeros(len(stream), 3))


@dataclass
class Slow:
    """Takes 2 ms per image and notes the lengths of its streams."""

    seen: list = field(default_factory=list)
    version: int = 1

    def run(self, task, state, personal, stream):
        self.seen.append(len(stream))
        time.sleep(0.002 * len(stream))
        return Output(torch.zeros(len(stream), 3))


def test_seconds_of_1000_samples():
    adapter, task = Slow(), tiny.task()
    seconds = timing.seconds_per_1000(adapter, task, {}, {}, tiny.samples(20).images, repeats=2, warm_up=5)
    assert adapter.seen == [5, 20, 20]
    assert len(seconds) == 2
    assert all(2 <= s < 200 for s in seconds)


def test_the_run_that_warms_up_is_not_counted(monkeypatch):
    """It may take many times as long, as where something is loaded or compiled at first use."""
    now = [0.0]

    class Compiling(Slow):
        def run(self, task, state, personal, stream):
            now[0] += (0.002 if self.seen else 0.9) * len(stream)
            self.seen.append(len(stream))

    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    seconds = timing.seconds_per_1000(Compiling(), tiny.task(), {}, {}, tiny.samples(20).images, repeats=3)
    assert seconds == pytest.approx([2, 2, 2])


def test_no_pass_is_shared_between_repeats():
    task = tiny.task()
    timing.seconds_per_1000(NoAdapt(), task, state_of(task.model), {}, tiny.samples(9).images, repeats=3)
    assert len(task._passes) == 4


def test_an_untrained_model_and_what_its_first_client_makes_of_it():
    task, clients = tiny.task(), [tiny.client(k) for k in range(2)]
    assert timing.untrained(Recipe(FedAvg()), task, clients, "FedAvg")[1] == {}
    model, personal = timing.untrained(Recipe(FedAvg(), FineTune()), task, clients, "FedAvg+FT")
    assert all(torch.equal(tensor, model[name]) for name, tensor in state_of(task.model).items())
    assert any((tensor != model[name.removeprefix("model.")]).any() for name, tensor in personal.items())


def test_nothing_to_time():
    with pytest.raises(ValueError, match="0 images"):
        timing.seconds_per_1000(Slow(), tiny.task(), {}, {}, tiny.samples(0).images)


def test_peak_memory_is_what_is_held_at_one_time():
    """Of 1, 2 and 4 MiB the last two together, not all three."""
    found = timing.peak_memory(Hoarder(), tiny.task(), {}, {}, tiny.samples(4).images)
    assert found / 2**20 == pytest.approx(6, abs=0.01)


def test_peak_memory_reads_bytes_alone(monkeypatch, recwarn):
    """What the profiler makes of every operation for people to read takes longer than the adaptation."""

    def made(*arguments, **options):
        raise AssertionError("events for people were made")

    monkeypatch.setattr(torch.autograd.profiler.profile, "_parse_kineto_results", made)
    assert timing.peak_memory(NoAdapt(), tiny.task(), state_of(tiny.task().model), {}, tiny.samples(4).images) > 0
    assert not recwarn.list
