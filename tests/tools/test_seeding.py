import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlib.tools.seeding import default_draws, derive, generator, numpy_generator

PURPOSE = st.lists(st.integers(-(2**40), 2**40) | st.text(max_size=8), max_size=4)


def test_values_never_change():
    assert derive(0, "local", 3, 7) == 3812887388497922453
    assert derive(0) == 5621864261735219286


@given(st.integers(0, 2**62), PURPOSE, PURPOSE)
@settings(deadline=None, max_examples=25)
def test_equal_purposes_only_give_equal_seeds(seed, one, other):
    assert 0 <= derive(seed, *one) < 2**63
    assert (derive(seed, *one) == derive(seed, *other)) == (one == other)


@pytest.mark.parametrize("other", [(1, "a", 1), (0, "b", 1), (0, "a", 2), (0, "a", "1"), (0, "a1"), (0, 1, "a")])
def test_neighbours_differ(other):
    assert derive(0, "a", 1) != derive(*other)


def test_numpy_integers_count_as_integers():
    assert derive(np.int64(4), np.int32(2)) == derive(4, 2)


def test_generators_repeat_and_leave_the_global_state_alone():
    torch_state, numpy_state = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    draws = [torch.rand(3, generator=generator(0, "x")) for _ in range(2)]
    assert torch.equal(*draws)
    assert not torch.equal(draws[0], torch.rand(3, generator=generator(0, "y")))
    assert np.array_equal(numpy_generator(0, "x").random(3), numpy_generator(0, "x").random(3))
    assert torch.equal(torch_state, torch.random.get_rng_state())
    assert np.array_equal(numpy_state, np.random.get_state()[1])  # noqa: NPY002


def test_default_draws_follow_the_seed_and_leave_no_trace():
    before, queued = torch.random.get_rng_state(), len(torch.cuda._queued_calls)
    weights = []
    for seed in (5, 5, 6):
        with default_draws(seed):
            weights.append(torch.nn.Linear(3, 2).weight)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert torch.equal(torch.random.get_rng_state(), before)
    assert len(torch.cuda._queued_calls) == queued
    torch.manual_seed(5)
    assert torch.equal(torch.nn.Linear(3, 2).weight, weights[0])
