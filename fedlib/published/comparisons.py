"""Comparisons of quantities, from which the verdict on a claim is made.

A comparison holds where the difference exceeds its threshold by more than the margin, fails where it falls short by more, and is undecided
in between, as it is where one of the numbers looks misprinted, or is a best of several and an absent one could turn it. The margin is the
standard error of the difference: of measured cells that of paired differences (same seed, same client, same images;
``fedlib.published.units``) and at least 0.3 points where one seed was run, of printed ones that of two independent means. A number whose
spread is not printed, like one that has none, is compared strictly; a measured one whose spread is not known - one seed, no clients -
leaves it undecided. A comparison that lacks a cell is not made.

One standard error says what was seen; it takes more to refute. Every comparison that fails knows the probability that noise alone makes it
fail so (``chance``: Student's t of its difference), by which those that fail beyond chance are told among many.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from scipy.stats import t as student

from fedlib.published.units import Units, together

HOLDS, FAILS, UNDECIDED = "holds", "fails", "undecided"
# Points by which accuracies of one seed must differ: its clients do not tell how far the next training may be from this one.
LEAST = 0.3
SURE = 0.05  # p-value from which a difference is set in bold, and a failure refutes
Origin = tuple | None


@dataclass(frozen=True)
class Quantity:
    """A number from cells: mean (NaN if a cell is absent), squared standard error (NaN if not known), method and place for print, paired
    units (None: not known), the run that it comes from (None: the print, or not told), and of a best or lowest all among which it was
    chosen.

    rises, falls: whether absent cells, or a misprint, could make it higher, or lower. For refuting: freedom, of the standard error (NaN:
    not known); tries: as how many numbers it counts, a best as all that it was chosen from."""

    mean: float
    variance: float = 0.0
    who: str = ""
    where: str = ""
    units: Units | None = None
    origin: Origin = None
    among: "Among | None" = None
    freedom: float = math.inf
    tries: int = 1
    rises: bool = False
    falls: bool = False

    def on_cut(self) -> "Quantity":
        """The quantity on the first images of every stream, which methods with per-sample gradients see too."""
        if self.among:
            return self.among.chosen(cut=True)
        if self.units is None or self.units.on_cut() is self.units:
            return self
        return replace(self, mean=self.units.on_cut().mean, units=self.units.on_cut())

    def __sub__(self, other: "Quantity") -> "Quantity":
        a, b = on_shared_images(self, other)
        where = " / ".join(dict.fromkeys(w for w in (a.where, b.where) if w))
        return _joined(a, b, a.mean - b.mean, lambda x, y: x - y, (1.0, 1.0), f"{a.who} - {b.who}", where, "-")

    def __truediv__(self, other: "Quantity") -> "Quantity":
        a, b = on_shared_images(self, other)
        ratio = a.mean / b.mean
        # To first order, so that the mean of the units is the ratio of the means.
        slopes = (1 / b.mean, ratio / b.mean)
        found = _joined(a, b, ratio, lambda x, y: ratio + (x - ratio * y) / b.mean, slopes, f"{a.who} / {b.who}", a.where, "/")
        return replace(found, units=found.units and replace(found.units, points=False))

    def __abs__(self) -> "Quantity":
        # Its sign is taken from the measurement, so that either end counts; what may pass zero may end on either side.
        size = self * math.copysign(1.0, self.mean)
        return replace(size, who=f"|{self.who}|", tries=2 * self.tries, rises=size.rises or size.falls)

    def __mul__(self, factor: float) -> "Quantity":
        units = self.units and self.units.map(lambda value: value * factor)
        origin = self.origin and ("*", factor, self.origin)
        mean, variance, who = self.mean * factor, self.variance * factor**2, f"{factor:g} {self.who}"
        rises, falls = (self.rises, self.falls) if factor >= 0 else (self.falls, self.rises)
        return Quantity(mean, variance, who, self.where, units, origin, None, self.freedom, self.tries, rises, falls)

    @property
    def margin(self) -> float:
        """Standard error; NaN where it is not known."""
        return self.units.error if self.units else math.sqrt(self.variance)

    @property
    def least(self) -> float:
        """By how much it must differ from zero whatever its standard error: ``LEAST`` for points of one seed, else nothing."""
        return LEAST if self.units and self.units.points and len(self.units.seeds) == 1 else 0.0

    @property
    def spreads(self) -> list[tuple[float, float]]:
        """Standard errors and their degrees of freedom: over clients and over seeds, where units are known."""
        return self.units.spreads if self.units else [(self.margin, self.freedom)]

    @property
    def strict(self) -> bool:
        """Whether the number stands without spread."""
        return self.units is None and self.variance == 0

    def __str__(self) -> str:
        return f"{self.who} {self.mean:.2f}" if self.who else f"{self.mean:.4g}"


def on_shared_images(a: Quantity, b: Quantity) -> tuple[Quantity, Quantity]:
    """Both quantities on images that both have seen."""
    if a.units and b.units and a.units.partial != b.units.partial:
        return a.on_cut(), b.on_cut()
    return a, b


def _joined(a: Quantity, b: Quantity, mean: float, function, slopes, who: str, where: str, sign: str) -> Quantity:
    """``function`` of two quantities: in pairs where their units are known, of units and a constant, or of independent means."""
    units = None
    if a.units and b.units:
        units = together(a.units, b.units, function)
    elif a.units and b.strict:
        units = a.units.map(lambda value: function(value, b.mean))
    elif b.units and a.strict:
        units = b.units.map(lambda value: function(a.mean, value))
    variance = (slopes[0] * a.margin) ** 2 + (slopes[1] * b.margin) ** 2
    if a.units and b.units and units is None:
        # Other images, or other clients: no margin says how far such numbers can be apart.
        variance = math.nan
    lost = a.origin is None or b.origin is None
    origin = None if lost else (sign, a.origin, b.origin)
    mean = units.mean if units else mean
    # The second is subtracted, or divides a positive number.
    rises, falls = a.rises or b.falls, a.falls or b.rises
    return Quantity(mean, variance, who, where, units, origin, None, _least((a, b)), a.tries * b.tries, rises, falls)


def _least(quantities: Iterable[Quantity]) -> float:
    """The fewest degrees of freedom; NaN where those of one are not known."""
    each = [freedom for q in quantities for _, freedom in q.spreads]
    return math.nan if any(map(math.isnan, each)) else min(each, default=math.nan)


@dataclass(frozen=True)
class Finding:
    """One comparison: state is "holds", "fails", "undecided", or None when it could not be made. bare: made without a margin of any
    kind; origin: what was compared, the same for two comparisons of one and the same run; chance: of one that fails, a bound on the
    probability that noise alone makes it fail so far, against any of those that a best was chosen from (one-sided; NaN: not known)."""

    text: str
    state: str | None
    bare: bool = False
    origin: Origin = None
    chance: float = math.nan


@dataclass(frozen=True)
class Among:
    """What a best or lowest was chosen from."""

    quantities: tuple[Quantity, ...]
    choose: Callable
    word: str

    def chosen(self, cut: bool = False) -> Quantity:
        present = [q for q in self.quantities if not math.isnan(q.mean)]
        if not present:
            return Quantity(math.nan, who=self.word)
        if cut or len({q.units.partial for q in present if q.units}) > 1:
            ranked = [(q.on_cut(), q) for q in present]
        else:
            ranked = [(q, q) for q in present]
        seen, found = self.choose(ranked, key=lambda pair: pair[0].mean)
        absent = len(present) < len(self.quantities)
        lost = f" ({self.word} of {len(present)} of {len(self.quantities)})" if absent else ""
        more = {"who": found.who + lost, "tries": sum(q.tries for q in present)}
        more |= {"rises": any(q.rises for q in present) or (absent and self.choose is max)}
        more |= {"falls": any(q.falls for q in present) or (absent and self.choose is min)}
        return replace(seen, **more) if cut else replace(found, **more, among=self)


def highest(quantities: Iterable[Quantity]) -> Quantity:
    """The largest of those present, on the same images; its print tells how many of them were."""
    return Among(tuple(quantities), max, "best").chosen()


def lowest(quantities: Iterable[Quantity]) -> Quantity:
    """The smallest of those present, on the same images."""
    return Among(tuple(quantities), min, "lowest").chosen()


def average(quantities: Sequence[Quantity]) -> Quantity:
    """Mean of quantities of one method: in pairs where all units are known, otherwise of independent ones."""
    if any(q.units is not None and q.units.partial for q in quantities):
        quantities = [q.on_cut() for q in quantities]
    n, total = len(quantities), quantities[0].units
    for q in quantities[1:]:
        total = together(total, q.units, lambda a, b: a + b) if total and q.units else None
    origins = tuple(q.origin for q in quantities)
    origin = None if None in origins else ("mean", *origins)
    mean, variance = sum(q.mean for q in quantities) / n, sum(q.margin**2 for q in quantities) / n**2
    units = total and total.map(lambda value: value / n)
    more = {"freedom": _least(quantities), "tries": math.prod(q.tries for q in quantities)}
    more |= {"rises": any(q.rises for q in quantities), "falls": any(q.falls for q in quantities)}
    return Quantity(mean, variance, quantities[0].who, "mean", units, origin, **more)


def _quantity(value: "Quantity | float") -> Quantity:
    return value if isinstance(value, Quantity) else Quantity(float(value), origin=("number", float(value)))


def _state(excess: float, difference: Quantity, or_equal: bool) -> str | None:
    """On which side of zero ``excess`` lies, by the margin of ``difference``; digits of printed differences are exact to 1e-9."""
    if math.isnan(excess):
        return None
    margin = difference.margin
    if difference.strict:
        return HOLDS if (excess >= -1e-9 if or_equal else excess > 1e-9) else FAILS
    if or_equal and margin == 0 and abs(excess) <= 1e-9:
        return HOLDS
    margin = max(margin, difference.least)
    return HOLDS if excess > margin + 1e-9 else FAILS if excess < -margin - 1e-9 else UNDECIDED


def chance_of(excess: float, difference: Quantity) -> float:
    """Probability of an ``excess`` this low or lower where the true one is zero, the larger of that over clients and that over seeds, which
    may both be at work (simulated: up to 0.07 in place of 0.05 with five seeds). NaN where a margin or its freedom is not known, and where
    measured units all fall short by as much, which says nothing of their spread."""

    def one(error: float, freedom: float) -> float:
        if error > 0 or math.isnan(error):
            return float(student.cdf(excess / error, freedom))
        return 1.0 if excess >= 0 else math.nan if difference.units else 0.0

    each = [one(*spread) for spread in difference.spreads]
    return math.nan if any(map(math.isnan, each)) else max(each, default=math.nan)


def _of_several(chance: float, tries: int) -> float:
    """Bonferroni's bound; NaN stays."""
    return chance if math.isnan(chance) else min(1.0, tries * chance)


def _margin(difference: Quantity, mean: str = "") -> str:
    """In brackets: the difference if it is not in the text already, and the margin."""
    margin = "" if difference.strict else "± ?" if math.isnan(difference.margin) else f"± {difference.margin:.2f}"
    both = " ".join(part for part in (mean, margin) if part)
    return f" ({both})" if both else ""


def above(a: Quantity | float, b: Quantity | float = 0.0, by: float = 0.0) -> Finding:
    """``a > b + by``."""
    return _compared(a, b, by, False, ">", 1)


def at_least(a: Quantity | float, b: Quantity | float = 0.0, by: float = 0.0) -> Finding:
    """``a >= b + by``."""
    return _compared(a, b, by, True, ">=", 1)


def below(a: Quantity | float, limit: Quantity | float) -> Finding:
    """``a < limit``."""
    return _compared(a, limit, 0.0, False, "<", -1)


def _compared(a, b, by: float, or_equal: bool, sign: str, direction: int) -> Finding:
    bare = not isinstance(a, Quantity) and not isinstance(b, Quantity)
    a, b = on_shared_images(_quantity(a), _quantity(b))
    difference = a - b
    lower, higher = (difference.falls, difference.rises) if direction > 0 else (difference.rises, difference.falls)
    cut = ", first images" if difference.units and difference.units.partial else ""
    text = f"{f'{a.where}: ' if a.where else ''}{a} {sign} {b}{f' at {b.where}' if b.where and b.where != a.where else ''}"
    text += f"{f' by {by:g}' if by else ''}{_margin(difference, f'{difference.mean:+.2f}' if b.who else '')}{cut}"
    origin = None if difference.origin is None else (sign, by, difference.origin)
    excess = direction * (difference.mean - by)
    if difference.margin < abs(excess) <= difference.least:
        text += f", one seed: under {LEAST:g}"
    told = not (bare or higher)
    chance = _of_several(chance_of(excess, difference), difference.tries) if told else math.nan
    return Finding(text, _unturned(_state(excess, difference, or_equal), lower, higher), bare, origin, chance)


def _unturned(state: str | None, lower: bool, higher: bool) -> str | None:
    """The state of a comparison whose excess absent cells could have made ``lower`` or ``higher``: undecided if that could turn it."""
    return UNDECIDED if (state == HOLDS and lower) or (state == FAILS and higher) else state


def within(a: Quantity, low: float, high: float) -> Finding:
    """``low <= a <= high``, each side with the margin."""
    excess = min(a.mean - low, high - a.mean)
    text = f"{f'{a.where}: ' if a.where else ''}{a} in [{low:g}, {high:g}]{_margin(a)}"
    higher = a.rises if a.mean < low else a.falls
    chance = math.nan if higher else _of_several(chance_of(excess, a), a.tries)
    state = _unturned(_state(excess, a, True), a.rises or a.falls, higher)
    return Finding(text, state, origin=a.origin and ("in", low, high, a.origin), chance=chance)


def fact(text: str, holds: bool, *, exact: bool = False, lacking: bool = False) -> Finding:
    """A condition that is no comparison of two quantities. exact: no other seed could give another answer; lacking: what was not run
    could."""
    state = UNDECIDED if lacking else HOLDS if holds else FAILS
    return Finding(text, state, bare=not exact, chance=0.0 if exact and state == FAILS else math.nan)


def distinct(findings: Iterable[Finding]) -> list[Finding]:
    """Findings without those that repeat another on one and the same run."""
    seen: set = set()
    return [f for f in findings if f.origin is None or not (f.origin in seen or seen.add(f.origin))]


def most(findings: Iterable[Finding]) -> Finding:
    """Whether more than half of the comparisons, each run counted once, hold; it fails where at least half of them fail, and is undecided
    where those that are undecided or could not be made would tip it."""
    findings = list(findings)
    made = distinct(f for f in findings if f.state is not None)
    held, failed = (sum(f.state == state for f in made) for state in (HOLDS, FAILS))
    missing = sum(f.state is None for f in findings)
    lost = f", {missing} not judged" if missing else ""
    text = f"most: {held} of {len(made)}{lost} [{'; '.join(f.text + mark(f) for f in made)}]"
    if not made:
        return Finding(text, None)
    total = len(made) + missing
    state = HOLDS if held > total / 2 else FAILS if failed >= total / 2 else UNDECIDED
    chance = _chance_of_half([f.chance for f in made if f.state == FAILS], total)
    return Finding(text, state, bare=all(f.bare for f in made), chance=chance)


def _chance_of_half(chances: Sequence[float], total: int) -> float:
    """Probability bound that noise alone makes half of ``total`` comparisons fail as these do (Bonferroni's of a partial conjunction,
    Benjamini and Heller, Biometrics 64, 2008); NaN where fewer are known to."""
    half, known = math.ceil(total / 2), sorted(chance for chance in chances if not math.isnan(chance))
    return min(1.0, (total - half + 1) * known[half - 1]) if len(known) >= half else math.nan


def mark(finding: Finding) -> str:
    """What is put behind a comparison that does not hold."""
    return "" if finding.state == HOLDS else f" {str(finding.state).upper()}"
