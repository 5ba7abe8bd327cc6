"""What a step is wrapped in for speed changes no number (graph, layout, compiled), or only as much as its type allows (bfloat16)."""

import contextlib
from dataclasses import replace

import pytest
import torch

from fedlib.core import Local
from fedlib.models import state_of
from fedlib.train import forms
from fedlib.train.fedavg import model_loss
from fedlib.train.forms import WARM, Replayed
from fedlib.train.local import train
from tests import tiny

LOCAL = Local(lr=0.05, batch_size=4, epochs=5)


def trained(options=(), local=LOCAL, dtype=torch.float64):
    task = replace(tiny.task("convolution", dtype=dtype), options=options)
    parts = [tiny.samples(n, n) for n in (13, 8)]
    generators = [task.generator("local", k) for k in range(2)]
    return train(task, model_loss(task, "cross_entropy"), state_of(task.model), parts, local=local, generators=generators)


def largest_gap(ours, theirs):
    return max((a[name] - b[name]).abs().max() for a, b in zip(ours, theirs, strict=True) for name in b)


@pytest.fixture
def graphs(monkeypatch):
    """A stand-in for CUDA graphs: replaying does what the test gives it as ``step``."""
    made = []

    class Graph:
        replays = 0
        step = staticmethod(lambda: None)

        def replay(self):
            self.replays += 1
            self.step()

    @contextlib.contextmanager
    def recording(graph):
        made.append(graph)
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", recording)
    return made


def test_a_step_is_recorded_once_and_replayed_with_every_batch(graphs):
    seen = []
    step = Replayed(lambda *batch: seen.append([tensor.clone() for tensor in batch]))
    for i in range(WARM + 3):
        step(torch.full((4,), float(i)), torch.full((4,), i))
        if i == WARM:
            # From here on a replay tells on what batch it works.
            graphs[0].step = lambda: seen.append([tensor.clone() for tensor in step.batch])
    step(torch.zeros(2), torch.zeros(2, dtype=torch.int64))
    assert len(graphs) == 1
    assert graphs[0].replays == 3
    assert [first[0].item() for first, _ in seen] == [*range(WARM + 3), 0]
    assert [labels[0].item() for _, labels in seen] == [*range(WARM + 3), 0]
    assert [len(first) for first, _ in seen] == [4] * (WARM + 3) + [2]


@pytest.mark.parametrize(
    ("local", "used"), [(LOCAL, True), (replace(LOCAL, optimizer="adam"), False), (replace(LOCAL, milestone=2), False)]
)
def test_only_sgd_of_one_rate_is_replayed(monkeypatch, local, used):
    made = []
    monkeypatch.setattr("fedlib.train.local.Replayed", lambda step: made.append(step) or step)
    assert largest_gap(trained(("graph",), local), trained((), local)) == 0
    assert len(made) == 2 * used


def test_bfloat16_is_close_and_not_equal():
    ours, theirs = trained(("bfloat16",), dtype=torch.float32), trained(dtype=torch.float32)
    assert 0 < largest_gap(ours, theirs) < 0.05
    assert {tensor.dtype for tensor in ours[0].values()} == {torch.float32}


def test_a_compiled_loss_is_what_trains(monkeypatch):
    calls = []
    monkeypatch.setattr(torch, "compile", lambda loss: lambda *arguments: calls.append(1) or loss(*arguments))
    assert largest_gap(trained(("compile",)), trained()) == 0
    assert len(calls) == 5 * (4 + 2)


def test_without_options_the_loss_is_the_method_s_own():
    loss = object()
    assert forms.formed(tiny.task(), loss) is loss
