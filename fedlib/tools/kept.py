"""What a process keeps so that it need not be made again, all of which can be forgotten at once."""

import functools
from collections.abc import Callable

_KEPT: list[Callable] = []


def kept(maxsize: int) -> Callable[[Callable], Callable]:
    """``functools.lru_cache`` of ``maxsize`` results, which ``forget`` clears.

    >>> @kept(1)
    ... def draw(made=[]):
    ...     made.append(0)
    ...     return len(made)
    >>> draw(), draw(), forget(), draw()
    (1, 1, None, 2)
    """

    def keep(function: Callable) -> Callable:
        _KEPT.append(cached := functools.lru_cache(maxsize)(function))
        return cached

    return keep


def forget() -> None:
    """Drop all that is kept: somebody may have written into it."""
    for function in _KEPT:
        function.cache_clear()
