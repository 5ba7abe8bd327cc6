"""Many clients or samples in stacks as large as the device's memory allows."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

T = TypeVar("T")


def in_stacks(order: Sequence[int], size: int, run: Callable[[Sequence[int]], Iterable[T]]) -> list[T]:
    """What ``run(part)`` gives for every member, over consecutive parts of ``order``, a permutation of 0, 1, ..., n - 1, at most ``size``
    long; the results in the order 0, 1, ..., n - 1.

    A part that does not fit the memory of a GPU is halved, for itself and for what comes after it. Raises torch.OutOfMemoryError where
    not even one fits.
    """
    results: dict[int, T] = {}
    while len(results) < len(order):
        part = order[len(results) :][:size]
        if (found := _tried(run, part)) is not None:
            results.update(zip(part, found, strict=True))
        else:
            size = len(part) // 2
    return [results[k] for k in range(len(order))]


def each_row(function: Callable[..., Tensor], *stacks: Any) -> Tensor:
    """``function`` of every row of the ``stacks``, tensors or dictionaries and tuples of them, its results stacked. It is mapped, or, where
    there is only one row, called directly, with the bits of a plain loop."""
    if len(tree_leaves(stacks)[0]) > 1:
        return torch.func.vmap(function, randomness="different")(*stacks)
    return function(*tree_map(lambda tensor: tensor[0], stacks))[None]


def _tried(run: Callable[[Sequence[int]], Iterable[T]], part: Sequence[int]) -> Iterable[T] | None:
    try:
        return run(part)
    except torch.OutOfMemoryError:
        if len(part) == 1:
            raise
    # Outside of the handler, whose traceback would keep what the failed attempt holds.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return None
