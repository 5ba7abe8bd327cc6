"""Where the time goes in what stays below its target: MEMO, FedTHE+, stacks of dense networks, FedTHE's Table 1 through the cache."""

import contextlib
import time
from collections.abc import Callable
from unittest import mock

import torch

from fedlib import federation
from fedlib.adapt import tune
from fedlib.adapt.fedthe_plus import FedTHEPlus
from fedlib.adapt.memo import MEMO
from fedlib.cache.store import Store
from fedlib.core import Stream
from fedlib.group import Group
from fedlib.models import state_of
from fedlib.papers.fedthe.recipes import RECIPES
from fedlib.stages.optim import Optimizer
from fedlib.train import local as engine
from tests.benchmarks import local, table, tuning

GRADIENTS = {"backward": (torch.autograd, "grad"), "update": (Optimizer, "step")}
TUNING = {"AugMix views": (tune, "augmix_views"), "forward": (tune, "_each")} | GRADIENTS
STACK = {"image path": (engine, "stacked_batch")} | GRADIENTS
STAGES = {
    "federated training": (federation, "run"),
    "personal parts": (Group, "_fitted"),
    "streams": (Group, "_adapted"),
    "cache": (Store, "save"),
}


def shares(work: Callable[[], object], places: dict[str, tuple[object, str]]) -> dict[str, float]:
    """Share of the CPU seconds of ``work`` in each part, a function and what it calls, without the parts within it; and in all else."""
    spent, inside = dict.fromkeys(places, 0.0), []

    def timed(part, function):
        def call(*arguments, **options):
            inside.append(0.0)
            start = time.process_time()
            result = function(*arguments, **options)
            whole = time.process_time() - start
            spent[part] += whole - inside.pop()
            if inside:
                inside[-1] += whole
            return result

        return call

    work()
    with contextlib.ExitStack() as patched:
        for part, (owner, name) in places.items():
            patched.enter_context(mock.patch.object(owner, name, timed(part, getattr(owner, name))))
        start = time.process_time()
        work()
        total = time.process_time() - start
    return {part: seconds / total for part, seconds in spent.items()} | {"all else": 1 - sum(spent.values()) / total}


def tuned(method, personal: dict) -> Callable[[], object]:
    task, pixels = tuning.task_of("cnn"), tuning.images(16)
    state = state_of(task.model)
    return lambda: method.run(task, state, personal, Stream(pixels, "original", 0))


def stack(case: str, chunk: int) -> Callable[[], object]:
    network, shape, n_clients, n, _ = local.CASES[case]
    task, samples = local.task_of(network, shape), local.noise(n_clients, n, shape)
    return lambda: local.engine(task, state_of(task.model), samples, chunk)


def rows() -> list[dict]:
    descriptor = torch.rand(64, generator=torch.Generator().manual_seed(0))
    heads = {"model.head.weight": torch.zeros(10, 64), "descriptor": descriptor, "shared.descriptor": 1 - descriptor}
    cases = {
        "MEMO, CNN, 32 views, 2 steps": shares(tuned(MEMO(base="global"), {}), TUNING),
        "FedTHE+, CNN, 16 views, 3 steps": shares(tuned(FedTHEPlus(), heads), TUNING),
        "MLP, 20 clients, chunk 20": shares(stack("MLP, 20 clients", 20), STACK),
        "MLP on 28 x 28, 20 clients, chunk 20": shares(stack("MLP on 28 x 28, 20 clients", 20), STACK),
        "FedTHE Table 1, 14 methods": shares(lambda: table.seconds(list(RECIPES)), STAGES),
    }
    return [{"case": case, "part": part, "share": share} for case, parts in cases.items() for part, share in parts.items()]
