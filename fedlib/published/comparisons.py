"""Comparisons of quantities, from which the verdict on a claim is made.

Printed cells are compared strictly. Measured ones with a margin: ``a > b`` reads ``a > b - sqrt(sd_a**2 + sd_b**2)``, and the margin
is at least 0.3 points when only one seed was run. A comparison that lacks a cell is neither true nor false.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

ONE_SEED_MARGIN = 0.3


@dataclass(frozen=True)
class Quantity:
    """A number from cells: mean (NaN if a cell is absent), variance over seeds, least margin (``floor``), method and place for print."""

    mean: float
    variance: float = 0.0
    floor: float = 0.0
    who: str = ""
    where: str = ""

    def __sub__(self, other: "Quantity") -> "Quantity":
        where = " / ".join(dict.fromkeys(w for w in (self.where, other.where) if w))
        floor = max(self.floor, other.floor)
        return Quantity(self.mean - other.mean, self.variance + other.variance, floor, f"{self.who} - {other.who}", where)

    def __truediv__(self, other: "Quantity") -> "Quantity":
        mean = self.mean / other.mean
        variance = mean**2 * (self.variance / self.mean**2 + other.variance / other.mean**2)
        return Quantity(mean, variance, 0.0, f"{self.who} / {other.who}", self.where)

    def __abs__(self) -> "Quantity":
        return Quantity(abs(self.mean), self.variance, self.floor, f"|{self.who}|", self.where)

    def __mul__(self, factor: float) -> "Quantity":
        return Quantity(self.mean * factor, self.variance * factor**2, self.floor, f"{factor:g} {self.who}", self.where)

    @property
    def margin(self) -> float:
        return max(math.sqrt(self.variance), self.floor)

    def __str__(self) -> str:
        return f"{self.who} {self.mean:.2f}" if self.who else f"{self.mean:.4g}"


@dataclass(frozen=True)
class Finding:
    """One comparison: ``holds`` is None when it could not be made."""

    text: str
    holds: bool | None


def highest(quantities: Iterable[Quantity]) -> Quantity:
    """The largest of those present; its print tells how many of them were."""
    return _extreme(list(quantities), max, "best")


def lowest(quantities: Iterable[Quantity]) -> Quantity:
    """The smallest of those present."""
    return _extreme(list(quantities), min, "lowest")


def _extreme(quantities: list[Quantity], choose: Callable, word: str) -> Quantity:
    present = [q for q in quantities if not math.isnan(q.mean)]
    if not present:
        return Quantity(math.nan, who=word)
    found = choose(present, key=lambda q: q.mean)
    lost = f" ({word} of {len(present)} of {len(quantities)})" if len(present) < len(quantities) else ""
    return Quantity(found.mean, found.variance, found.floor, found.who + lost, found.where)


def average(quantities: Sequence[Quantity]) -> Quantity:
    """Mean of independent quantities of one method."""
    n = len(quantities)
    variance, floor = sum(q.variance for q in quantities) / n**2, max(q.floor for q in quantities)
    return Quantity(sum(q.mean for q in quantities) / n, variance, floor, quantities[0].who, "mean")


def _quantity(value: "Quantity | float") -> Quantity:
    return value if isinstance(value, Quantity) else Quantity(float(value))


def above(a: Quantity | float, b: Quantity | float = 0.0, by: float = 0.0, *, or_equal: bool = False) -> Finding:
    """``a > b + by`` less the margin; with ``or_equal`` also equality (to 1e-9, as differences of printed digits are not exact)."""
    a, b = _quantity(a), _quantity(b)
    difference = a - b
    excess = difference.mean - by + difference.margin
    sign = ">=" if or_equal else ">"
    text = f"{_at(a.where)}{a} {sign} {b}{_elsewhere(a, b)}{f' by {by:g}' if by else ''}"
    text += f" ({difference.mean:+.2f})" if b.who else ""
    return Finding(text, None if math.isnan(excess) else bool(excess >= -1e-9 if or_equal else excess > 1e-9))


def below(a: Quantity | float, limit: Quantity | float) -> Finding:
    """``a < limit`` plus the margin."""
    a, limit = _quantity(a), _quantity(limit)
    return Finding(f"{_at(a.where)}{a} < {limit}{_elsewhere(a, limit)}", above(limit, a).holds)


def _at(where: str) -> str:
    return f"{where}: " if where else ""


def _elsewhere(a: Quantity, b: Quantity) -> str:
    return f" at {b.where}" if b.where and b.where != a.where else ""


def at_least(a: Quantity | float, b: Quantity | float = 0.0, by: float = 0.0) -> Finding:
    """``a >= b + by`` less the margin."""
    return above(a, b, by, or_equal=True)


def within(a: Quantity, low: float, high: float) -> Finding:
    """``low <= a <= high``, widened by the margin on both sides."""
    holds = low - a.margin - 1e-9 <= a.mean <= high + a.margin + 1e-9
    return Finding(f"{_at(a.where)}{a} in [{low:g}, {high:g}]", None if math.isnan(a.mean) else holds)


def fact(text: str, holds: bool) -> Finding:
    """A condition that is no comparison of two quantities."""
    return Finding(text, bool(holds))


def most(findings: Iterable[Finding]) -> Finding:
    """Whether more than half of the comparisons that could be made hold."""
    findings = list(findings)
    made = [f for f in findings if f.holds is not None]
    held = sum(f.holds for f in made)
    lost = f", {len(findings) - len(made)} not judged" if len(made) < len(findings) else ""
    text = f"most: {held} of {len(made)}{lost} [{'; '.join(f.text + ('' if f.holds else ' FAILS') for f in made)}]"
    return Finding(text, held > len(made) / 2 if made else None)
