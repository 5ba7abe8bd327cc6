"""What is equal to the bit, and what to a tolerance (the table in CONTRIBUTING.md)."""

from dataclasses import replace

import pytest
import torch

from fedlib import federation
from fedlib.cache.store import Store
from fedlib.core import Recipe
from fedlib.setting import Request
from fedlib.stages.engine import Engine
from tests import tiny
from tests.trust import job

METHOD = job.BSM


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return job.run(None)


def test_the_same_seed_twice_is_equal_to_the_bit(rows):
    job.assert_same_rows(job.run(None), rows)


def test_another_seed_is_another_run(rows):
    assert not job.run(None, seeds=(1,))["loss"].equals(rows["loss"])


def test_the_order_of_methods_and_rounds_and_what_else_runs_change_no_bit(rows):
    """Recipes backwards, rounds backwards, and one recipe alone."""
    names = list(job.RECIPES)
    request = Request(rounds=(-1, 0), extras=("weight",))
    backwards = job.run(None, {name: job.RECIPES[name] for name in reversed(names)}, request=request)
    backwards["rank"] = backwards["method"].map(names.index)
    backwards = backwards.sort_values(["rank", "round"], kind="stable", ignore_index=True).drop(columns="rank")
    job.assert_same_rows(backwards, rows)
    alone = job.run(None, {"fedthe": job.RECIPES["fedthe"]})
    job.assert_same_rows(alone, rows[rows["method"] == "fedthe"].reset_index(drop=True))


def test_the_cache_changes_no_bit(rows, tmp_path):
    job.assert_same_rows(job.run(tmp_path), rows)
    job.assert_same_rows(job.run(tmp_path), rows)


def trained(chunk_size, dtype, kind="convolution"):
    task = tiny.task(kind, dtype=dtype, chunk_size=chunk_size)
    return federation.run(task, METHOD, tiny.clients(), Store(None), "key", {}, progress=False).state(3)["model"]


@pytest.mark.parametrize("kind", ["plain", "convolution"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-4)])
def test_stacks_of_clients_agree_to_rounding(kind, dtype, tolerance):
    one, *others = (trained(size, dtype, kind) for size in (1, 2, 3))
    for other in others:
        assert all(torch.allclose(other[name], tensor, rtol=0, atol=tolerance) for name, tensor in one.items())


def test_chunk_sizes_threads_and_types_have_caches_of_their_own(tmp_path):
    """So that a number never comes from a run whose rounding was another."""
    recipes = {"FedAvg": Recipe(METHOD)}
    for engine in (Engine(), Engine(chunk_size=2), Engine(threads=2), Engine(dtype="float64")):
        assert not job.run(tmp_path, recipes, engine=engine)["train_cached"].any()
        assert job.run(tmp_path, recipes, engine=engine)["train_cached"].all()


@pytest.mark.slow
def test_threads_agree_to_rounding():
    """Slow where another program keeps the second core."""
    one, two = (job.run(None, engine=Engine(threads=n, dtype="float64")) for n in (1, 2))
    assert (one["loss"] - two["loss"]).abs().max() < 1e-9
    assert one["accuracy"].equals(two["accuracy"])


def test_a_longer_training_begins_with_the_bits_of_a_shorter_one(tmp_path):
    longer = replace(job.SETTING, schedule=replace(job.SETTING.schedule, rounds=5))
    request = Request(rounds=(1, 2, 3), extras=("weight",))
    job.assert_same_rows(job.run(None, settings=(longer,), request=request), job.run(None, request=request))
