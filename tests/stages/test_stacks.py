import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedlib.stages.stacks import each_row, in_stacks


@given(st.integers(0, 40).flatmap(lambda n: st.permutations(range(n))), st.integers(1, 50), st.integers(1, 50))
def test_every_member_is_done_once_in_order_in_stacks_that_fit(order, size, memory):
    done = []

    def run(part):
        if len(part) > memory:
            raise torch.OutOfMemoryError("full")
        done.append(part)
        return [10 * k for k in part]

    assert in_stacks(order, size, run) == [10 * k for k in range(len(order))]
    assert [k for part in done for k in part] == order
    assert all(len(part) <= min(size, memory) for part in done)


def test_one_member_that_does_not_fit_and_other_errors_are_raised():
    def fails(error):
        def run(part):
            raise error

        return run

    with pytest.raises(torch.OutOfMemoryError, match="full"):
        in_stacks(range(8), 4, fails(torch.OutOfMemoryError("full")))
    with pytest.raises(RuntimeError, match="shapes"):
        in_stacks(range(8), 4, fails(RuntimeError("shapes")))


def test_each_row_of_trees_of_stacks():
    w, x, b = torch.randn(3, 2), torch.randn(3, 2), torch.randn(3)
    for rows in (1, 3):
        found = each_row(lambda state, pair, _: state["w"] @ pair[0] + pair[1], {"w": w[:rows]}, (x[:rows], b[:rows]), {})
        torch.testing.assert_close(found, (w * x).sum(1)[:rows] + b[:rows])


def test_a_row_alone_is_not_mapped():
    function = lambda row: row * row.sum().item()  # noqa: E731
    assert each_row(function, torch.full((1, 2), 3.0)).tolist() == [[18, 18]]
    with pytest.raises(RuntimeError, match="vmap"):
        each_row(function, torch.ones(2, 2))
