"""A small experiment to run in processes of its own, which may be told to die, and what they left behind."""

import contextlib
import multiprocessing
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file, save
from torch.overrides import TorchFunctionMode

from fedlib import experiment, federation
from fedlib.adapt.fedthe import FedTHE
from fedlib.adapt.memo import MEMO
from fedlib.cache import store
from fedlib.core import Local, Recipe, Schedule
from fedlib.group import Group
from fedlib.personalize.ditto import Ditto
from fedlib.personalize.fine_tune import FineTune
from fedlib.personalize.head import PersonalHead
from fedlib.setting import Request, Setting
from fedlib.train.fedavg import FedAvg
from fedlib.train.scaffold import SCAFFOLD
from tests import tiny

LOCAL = Local(lr=0.05, batch_size=4, epochs=1)
SETTING = Setting("here", tiny.Protocol(), "mlp_small", Schedule(rounds=3, local=LOCAL, personal=LOCAL))
CE, BSM = FedAvg(), FedAvg(loss="balanced_softmax")
RECIPES = {
    "scaffold": Recipe(SCAFFOLD()),
    "ditto": Recipe(CE, Ditto()),
    "memo": Recipe(CE, FineTune(), MEMO(views=2, steps=1), costly=True),
    "fedthe": Recipe(BSM, PersonalHead(), FedTHE()),
}
# What a repetition may change.
LOG = ["seconds", "cached", "train_cached"]
STAGES = {"training": (federation, "run"), "personal part": (Group, "_fitted"), "adaptation": (Group, "_adapted")}
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.trust.job"])


def run(cache, recipes=RECIPES, settings=(SETTING,), seeds=(0,), **options) -> pd.DataFrame:
    options = {"request": Request(rounds=(0, -1), extras=("weight",))} | options
    return experiment.run(settings, recipes, seeds, cache=cache and str(cache), **options)


def start(target, *arguments) -> multiprocessing.Process:
    """``target(*arguments)`` in a fresh process, which begins as this one did (one thread, no hooks)."""
    process = PROCESSES.Process(target=target, args=arguments)
    process.start()
    return process


def finished(process) -> int:
    """Exit status of a process after its end; minus the signal that killed it. A process that hangs is killed."""
    process.join(300)
    process.kill()
    return process.exitcode


class Countdown(TorchFunctionMode):
    """Kills its process at the n-th of torch's calls; counts them where n is 0."""

    def __init__(self, n: int):
        super().__init__()
        self.n, self.count = n, 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.count += 1
        if self.count == self.n:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **(kwargs or {}))


def during(stage: str, n: int) -> Countdown:
    """Make this process die at the n-th of torch's calls in ``stage``, or half way through the n-th write of a cache file."""
    countdown = Countdown(n)
    if stage == "writing":
        whole = store.save_file

        def half(tensors, path, metadata):
            countdown.count += 1
            if countdown.count == n:
                content = save(tensors, metadata)
                Path(path).write_bytes(content[: len(content) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            whole(tensors, path, metadata)

        store.save_file = half
        return countdown
    module, name = STAGES[stage]
    original = getattr(module, name)

    def counted(*arguments, **options):
        with countdown:
            return original(*arguments, **options)

    setattr(module, name, counted)
    return countdown


def count(cache: Path, stage: str, answer: Path) -> None:
    """Write to ``answer`` how many calls or writes a whole run has in ``stage``."""
    countdown = during(stage, 0)
    run(cache)
    answer.write_text(str(countdown.count))


def die(cache: Path, stage: str, n: int) -> None:
    during(stage, n)
    run(cache)


def tensors(cache: Path) -> dict[str, np.ndarray]:
    """Every tensor of a cache by file and name, without the times."""
    files = sorted(path for path in Path(cache).rglob("*.safetensors") if not path.name.startswith("."))
    read = {f"{path.relative_to(cache)}:{name}": t for path in files for name, t in load_file(path).items()}
    return {name: tensor for name, tensor in read.items() if not name.endswith("seconds")}


def assert_same_cache(first: Path, second: Path) -> None:
    a, b = tensors(first), tensors(second)
    assert list(a) == list(b)
    for name, tensor in a.items():
        assert torch.equal(tensor, b[name]), name


def assert_same_rows(first: pd.DataFrame, second: pd.DataFrame) -> None:
    """Equal to the bit in everything but times and what came from the cache."""
    pd.testing.assert_frame_equal(first.drop(columns=LOG), second.drop(columns=LOG), check_exact=True)


@contextlib.contextmanager
def computing(root: Path, key: str):
    """Another thread computes the training ``key`` for as long as the block runs."""
    taken, over = threading.Event(), threading.Event()

    def compute():
        with store.Store(root).lock("train", key):
            taken.set()
            over.wait(30)

    thread = threading.Thread(target=compute)
    thread.start()
    taken.wait(30)
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def appended(path: Path, *places: tuple[object, str]):
    """Append the name of every function of ``places`` to ``path`` as it is called, in any process."""
    originals = [(owner, name, getattr(owner, name)) for owner, name in places]

    def noted(name, original):
        def call(*arguments, **options):
            with path.open("a") as log:
                log.write(f"{name}\n")
            return original(*arguments, **options)

        return call

    for owner, name, original in originals:
        setattr(owner, name, noted(name, original))
    try:
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)
