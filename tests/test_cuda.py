"""Everything on a GPU: the same draws, no host stop in a training step, equal bits when repeated. Skipped where there is none."""

from dataclasses import replace

import pandas as pd
import pytest
import torch

from fedlib import experiment
from fedlib.core import Local, Samples, Schedule
from fedlib.models import state_of
from fedlib.papers.atp import recipes as atp
from fedlib.papers.btfl import recipes as btfl
from fedlib.papers.fedicon import recipes as fedicon
from fedlib.papers.fedthe import recipes as fedthe
from fedlib.papers.upfl import recipes as upfl
from fedlib.personalize.rates import Rates
from fedlib.protocols.brfl import BRFL
from fedlib.protocols.btgfl import BTGFL
from fedlib.protocols.fedicon import Domains
from fedlib.protocols.ttpfl import TTPFL
from fedlib.protocols.upfl import UPFL
from fedlib.setting import Request, Setting
from fedlib.stages.engine import Engine
from fedlib.train.fedavg import model_loss
from fedlib.train.local import train
from tests import tiny

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
DEVICE = "cuda"
REQUEST = Request(costly_samples=2)
LOCAL = Local(lr=0.05, batch_size=16, epochs=1)
SCHEDULE = Schedule(2, LOCAL, LOCAL)
SHORT = atp.Grids((1e-2,), (4,), (0.1,), (20,), (2,), ("head",), memo_limit=2)
PAPERS = {
    "fedthe": (BRFL("digits", 4, corruption_draws=1, natural_size=300), "cnn", fedthe.RECIPES | fedthe.ABLATIONS),
    "btfl": (BTGFL("digits", 4, natural_size=300), "cnn", btfl.recipes()),
    "atp": (TTPFL("digits", n_clients=10), "shallow_cnn", atp.recipes(rates=Rates(2, 2, batch_size=20), grids=SHORT)),
    "fedicon": (Domains(n_train=40, n_test=4), "fedicon_cnn_small", fedicon.recipes(classifier_rounds=1)),
    "upfl": (UPFL("digits"), "mlp", upfl.recipes("digits")),
}


def run(paper: str, **engine) -> pd.DataFrame:
    protocol, model, recipes = PAPERS[paper]
    setting = Setting("here", protocol, model, SCHEDULE)
    rows = experiment.run([setting], recipes, [0], request=REQUEST, cache=None, engine=Engine(**{"device": DEVICE} | engine))
    return rows.drop(columns=["seconds"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("paper", PAPERS)
def test_every_recipe_runs_and_repeats_to_the_bit(paper):
    first = run(paper)
    assert set(first["method"]) == set(PAPERS[paper][2])
    pd.testing.assert_frame_equal(first, run(paper), check_exact=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("paper", ["fedthe", "btfl"])
def test_a_gpu_agrees_with_a_cpu_whatever_the_chunk(paper):
    """In double precision, and only up to a hundredth of the loss: views are resampled in single precision on both."""
    expected = run(paper, device="cpu", dtype="float64", chunk_size=1)
    for chunk_size in (1, 3, 20):
        ours = run(paper, dtype="float64", chunk_size=chunk_size)
        pd.testing.assert_series_equal(ours["loss"], expected["loss"], rtol=1e-2)


def on_gpu(kind: str, chunk_size: int, augment: str):
    task = tiny.task(kind, chunk_size=chunk_size, augment=augment)
    return replace(task, model=task.model.to(DEVICE)), [tiny.samples(n, n).to(DEVICE) for n in (12, 9, 7)]


def trained(task, parts: list[Samples], local: Local = LOCAL) -> list[dict]:
    generators = [task.generator("local", k) for k in range(len(parts))]
    return train(task, model_loss(task, "cross_entropy"), state_of(task.model), parts, local=local, generators=generators)


@pytest.mark.parametrize("augment", ["none", "batch", "sample"])
@pytest.mark.parametrize(("kind", "chunk_size"), [("convolution", 1), ("convolution", 3), ("plain", 2), ("batchnorm", 1), ("dropout", 3)])
def test_no_training_step_waits_for_the_device(kind, chunk_size, augment):
    task, parts = on_gpu(kind, chunk_size, augment)
    trained(task, parts)  # the first call makes constants and handles
    torch.cuda.set_sync_debug_mode("error")
    try:
        trained(task, parts)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("local", [LOCAL, replace(LOCAL, momentum=0.9, clip=0.5), replace(LOCAL, optimizer="adam")])
@pytest.mark.parametrize("chunk_size", [1, 2, 3])
def test_training_equals_the_cpu(chunk_size, local):
    task, parts = on_gpu("convolution", chunk_size, "sample")
    ours = trained(task, parts, local)
    theirs = trained(tiny.task("convolution", chunk_size=1, augment="sample"), [part.to("cpu") for part in parts], local)
    for a, b in zip(ours, theirs, strict=True):
        for name in b:
            torch.testing.assert_close(a[name].cpu(), b[name], rtol=0, atol=1e-10)
