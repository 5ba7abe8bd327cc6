"""What determines a federated training: the content of its cache key."""

from dataclasses import replace

import torch

from fedlib.augment.transform import Transform
from fedlib.cache.store import digest
from fedlib.core import Benchmark, TrainMethod
from fedlib.setting import Setting
from fedlib.stages.engine import Engine


def trained_with(transform: Transform) -> Transform:
    """What training knows of ``transform``: without augmentation, margin and mirror are for views at test time."""
    bare = isinstance(transform, Transform) and transform.augment == "none"
    return replace(transform, pad=Transform.pad, flip=Transform.flip) if bare else transform


def training_manifest(setting: Setting, seed: int, method: TrainMethod, benchmark: Benchmark, engine: Engine) -> dict:
    """Everything that determines a federated training, and nothing else: no label, no test data, no personal or test-time field.

    The number of rounds is left out, so that a longer run continues a shorter one, unless the method says that it matters (``whole_run``).
    """
    data = {}
    for client in benchmark.clients:
        samples = client.train if client.pool is None else client.pool
        if client.source:
            data |= {f"{client.id}.images": samples.images, f"{client.id}.labels": samples.labels}
            data |= {f"{client.id}.val.images": client.val.images, f"{client.id}.val.labels": client.val.labels}
    if benchmark.public is not None:
        data["public"] = benchmark.public
    sources = [client.id for client in benchmark.clients if client.source]
    sizes = [len(client.train) for client in benchmark.clients if client.source]
    manifest = {
        "train": method,
        "model": setting.model,
        "classes": benchmark.n_classes,
        "rounds": setting.schedule.rounds if getattr(method, "whole_run", False) else "any",
        "local": setting.schedule.local,
        "participation": setting.schedule.participation,
        "transform": trained_with(benchmark.transform),
        "data": digest(data),
        "sizes": sizes,
        "resplit": any(client.pool is not None for client in benchmark.clients),
        "seed": seed,
        "engine": engine,
        "torch": torch.__version__,
    }
    # Cohorts and states go by position; the data are in the order of the ids.
    manifest |= {} if sources == sorted(sources) else {"order": sources}
    return manifest if setting.schedule.save_every == 1 else manifest | {"save_every": setting.schedule.save_every}
