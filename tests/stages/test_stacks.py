import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedlib.stages.stacks import in_stacks


@given(st.integers(0, 40), st.integers(1, 50), st.integers(1, 50))
def test_every_member_is_done_once_in_order_in_stacks_that_fit(n, size, memory):
    done = []

    def run(start, stop):
        if stop - start > memory:
            raise torch.OutOfMemoryError("full")
        done.append((start, stop))

    in_stacks(n, size, run)
    assert [i for start, stop in done for i in range(start, stop)] == list(range(n))
    assert all(stop - start <= min(size, memory) for start, stop in done)


def test_one_member_that_does_not_fit_and_other_errors_are_raised():
    def fails(error):
        def run(start, stop):
            raise error

        return run

    with pytest.raises(torch.OutOfMemoryError, match="full"):
        in_stacks(8, 4, fails(torch.OutOfMemoryError("full")))
    with pytest.raises(RuntimeError, match="shapes"):
        in_stacks(8, 4, fails(RuntimeError("shapes")))
