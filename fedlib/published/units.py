"""The units behind a measured cell: one accuracy per seed and client, by which cells are compared in pairs.

Where costly methods see only the first images of a stream, the units of every method know their accuracy on these as well: cells that saw
different images are compared on the images that both saw.

Where clients are tested on images of others they share some, and a shared image errs for all of them at once: the error of their mean is
then larger than their spread tells, by a factor that follows from how often images occur (``Units.repeats``).
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Units:
    """keys: (seed, client); value: accuracy in percent, or what arithmetic made of it; weight: of a unit among those of its seed; n: test
    images; cut: the same on the first images of every stream (None: no stream was cut); partial: ``value`` itself is from cut streams;
    seen: which images these were, by unit (None: not known); points: whether values are percentage points; repeats: how many times larger
    the variance of a seed's mean is than if no two clients shared an image, every image erring on its own (1: none does; where it is not
    known, 1)."""

    keys: tuple[tuple[Hashable, Hashable], ...]
    value: Array
    weight: Array
    n: Array
    cut: "Units | None" = None
    partial: bool = False
    seen: tuple[tuple[Array, ...], ...] | None = None
    points: bool = True
    repeats: float = 1.0

    @property
    def shares(self) -> Array:
        """Weights that sum to one, the same for every seed."""
        seeds = np.array([seed for seed, _ in self.keys])
        each, index = np.unique(seeds, return_inverse=True)
        return self.weight / np.bincount(index, self.weight)[index] / len(each)

    @property
    def mean(self) -> float:
        """Mean over seeds of the weighted mean over clients."""
        return float(self.shares @ self.value)

    @property
    def seeds(self) -> Array:
        """The mean over clients of every seed, in the order of the seeds."""
        each, index = np.unique(np.array([seed for seed, _ in self.keys]), return_inverse=True)
        return np.bincount(index, self.shares * self.value) * len(each)

    @property
    def std(self) -> float:
        """n-1 standard deviation over seeds; NaN for one."""
        return float(np.std(self.seeds, ddof=1)) if len(self.seeds) > 1 else np.nan

    @property
    def images(self) -> int | None:
        """How many different test images there are; where these are not known, all of every seed and client."""
        if self.seen is not None:
            return _count(of_test for unit in self.seen for of_test in unit)
        return None if np.isnan(self.n).any() else int(self.n.sum())

    @property
    def error(self) -> float:
        """Standard error of the mean: the largest of those over all units, over clients and over seeds; with one seed that over its
        clients, and NaN where there is one client.

        Clients of one number are taken for the same: what persists in them is no news in the next seed. Where every seed draws clients of
        its own, this errs by some percent to the wide side."""
        return float(np.fmax.reduce([self._spread(range(len(self.keys)), self.repeats)[0], *(error for error, _ in self.spreads)]))

    @property
    def spreads(self) -> list[tuple[float, int]]:
        """Standard error of the mean and its degrees of freedom, over clients (whatever the seed) and over seeds; not over one, nor over
        clients that all have the same test."""
        over = [self._spread((client for _, client in self.keys), self.repeats), self._spread(seed for seed, _ in self.keys)]
        return [(error, freedom) for error, freedom in over if freedom]

    def _spread(self, labels: Iterable[Hashable], repeats: float = 1.0) -> tuple[float, int]:
        """Standard error of the mean over groups of units, and its degrees of freedom; NaN and 0 for one group, and for groups of which
        each has all images of the others."""
        _, group = np.unique(np.array(list(labels)), return_inverse=True)
        share = np.bincount(group, self.shares)
        count = len(share)
        if np.isnan(wider := widening(repeats, count)):
            return np.nan, 0
        # Who has no images counts for nothing, whatever the value.
        value = np.divide(np.bincount(group, self.shares * self.value), share, out=np.zeros(count), where=share > 0)
        apart = value - self.mean
        apart[np.abs(apart) < 1e-12 * np.abs(value)] = 0  # equal values, whose mean is rounded
        return float(wider * np.sqrt(count / (count - 1) * np.sum(share**2 * apart**2))), count - 1

    def on_cut(self) -> "Units":
        """The units on the first images of every stream; themselves where no stream was cut."""
        return self.cut or self

    def map(self, function: Callable[[Array], Array]) -> "Units":
        cut = self.cut and self.cut.map(function)
        return replace(self, value=function(self.value), cut=cut)


def has_units(frame: pd.DataFrame) -> pd.Series:
    """Which cells of a result table have ``units``."""
    return frame["units"].map(lambda u: isinstance(u, Units)).astype(bool) if "units" in frame else pd.Series(False, frame.index)


def widening(repeats: float, groups: int) -> float:
    """By how much the standard error of a mean over ``groups`` (clients) is larger than their spread tells, where shared images repeat (see
    ``Units``): what they have in common does not spread them. NaN for one, and for groups of which each has all images of the others."""
    apart = 1 - (repeats - 1) / (groups - 1) if groups > 1 else 0.0
    return float(np.sqrt(repeats / apart)) if apart > 1e-9 else np.nan


def together(a: Units, b: Units, function: Callable[[Array, Array], Array]) -> Units | None:
    """``function`` of both on the units that they share, on the images that both saw; None where there are none."""
    if a.partial != b.partial:
        a, b = a.on_cut(), b.on_cut()
    if a.partial != b.partial:
        return None
    place = {key: i for i, key in enumerate(b.keys)}
    keys = tuple(key for key in a.keys if key in place)
    if not keys:
        return None
    left = [i for i, key in enumerate(a.keys) if key in place]
    right = [place[key] for key in keys]
    if a.partial and (a.n[left] != b.n[right]).any():
        return None  # streams that were cut at several lengths, or not at all in one of two runs
    cut = together(a.cut, b.cut, function) if a.cut and b.cut else None
    seen = a.seen and tuple(a.seen[i] for i in left)
    value, both = function(a.value[left], b.value[right]), {"points": a.points and b.points, "repeats": max(a.repeats, b.repeats)}
    return Units(keys, value, a.weight[left], a.n[left], cut, a.partial, seen, **both)


def joined(a: Units, b: Units) -> Units:
    """Both as one, each with the seeds that it has; of a seed that both have, ``a``'s. On first images where both know theirs."""
    held = {seed for seed, _ in a.keys}
    new = [i for i, (seed, _) in enumerate(b.keys) if seed not in held]
    if not new:
        return a
    keys = (*a.keys, *(b.keys[i] for i in new))
    value, weight, n = (np.concatenate([getattr(a, name), getattr(b, name)[new]]) for name in ("value", "weight", "n"))
    seen = (*a.seen, *(b.seen[i] for i in new)) if a.seen and b.seen else None
    # A mean over seeds, as ``_repeats`` makes it.
    counts = len(held), len({b.keys[i][0] for i in new})
    repeats = float(np.average([a.repeats, b.repeats], weights=counts))
    cut = joined(a.cut, b.cut) if a.cut and b.cut else None
    return Units(keys, value, weight, n, cut, a.partial, seen, a.points and b.points, repeats)


def units_of(rows: pd.DataFrame, by: list[str], *, value: str = "accuracy", weighted: bool = False) -> pd.Series:
    """The units of each cell of ``by`` from the experiment's rows: a client's draws are averaged, its several tests too.

    weighted: a client counts by its images, as where accuracy is that over all images of all clients.
    """
    full = _each(rows, by, value, "n", weighted).assign(_seen=_seen(rows, by, "seen"))
    asked = value == "accuracy" and "cut_accuracy" in rows and rows["cut_accuracy"].notna().any()
    short = _each(rows, by, "cut_accuracy", "cut_n", weighted).assign(_seen=_seen(rows, by, "cut_seen")) if asked else None
    partial = rows.groupby([*by, "seed", "client"], sort=False)["cut"].any().to_numpy() if asked else np.zeros(len(full), dtype=bool)
    cells = full.groupby(by, sort=False)
    number, found = cells.ngroup().to_numpy(), []
    for cell in range(cells.ngroups):
        places = np.flatnonzero(number == cell)
        keys = tuple(zip(*(full.index[places].get_level_values(name) for name in ("seed", "client")), strict=True))
        whole, cut = (frame if frame is None else _units(keys, frame.iloc[places]) for frame in (full, short))
        if partial[places].any():
            found.append(replace(cut or whole, partial=True, points=value == "accuracy"))
        else:
            found.append(replace(whole, cut=cut and replace(cut, partial=True), points=value == "accuracy"))
    return pd.Series(found, index=cells.size().index, dtype=object, name="units")


def _each(rows: pd.DataFrame, by: list[str], value: str, n: str, weighted: bool) -> pd.DataFrame:
    """Per (cell, seed, client): value, weight, images (of the first draw, since all draws show the same)."""
    unit = [*by, "seed", "client"]
    images = (rows[n] if n in rows else pd.Series(np.nan, rows.index)).astype(float)
    counted = images * (rows["draw"].isna() | rows["draw"].eq(0)) if "draw" in rows else images
    weight = images if weighted else pd.Series(1.0, rows.index)
    # Names that no column of a cell has.
    frame = rows[unit].assign(_total=rows[value].astype(float) * weight, _weight=weight, _images=counted)
    sums = frame.groupby(unit, sort=False)[["_total", "_weight", "_images"]].sum(min_count=1)
    sums["_value"] = sums["_total"] / sums["_weight"]
    return sums if weighted else sums.assign(_weight=1.0)


def _seen(rows: pd.DataFrame, by: list[str], name: str) -> Array | None:
    """Per (cell, seed, client): which images its tests have, or the first of them (``cut_seen``); None where a row does not know."""
    if "seen" not in rows:
        return None
    arrays = first_seen(rows) if name == "cut_seen" else rows["seen"]
    # Rows of no cell, where a name is missing, have no number.
    unit = rows.groupby([*by, "seed", "client"], sort=False).ngroup().fillna(-1).to_numpy(dtype=int)
    found = np.empty(unit.max() + 1, dtype=object)
    found[:] = [()] * len(found)
    for i, array in zip(unit, arrays, strict=True):
        if i >= 0:
            known = found[i] is not None and isinstance(array, np.ndarray)
            found[i] = (*found[i], array) if known else None
    return found


def different(rows: pd.DataFrame, by: list[str]) -> pd.Series:
    """By ``by``: how many different images its rows have seen; where they do not say which, all of the first draws."""
    if "seen" in rows:
        return rows.groupby(by, sort=False)["seen"].agg(_count)
    return rows[rows["draw"] == 0].groupby(by, sort=False)["n"].sum()


def _count(tests: Iterable[Array]) -> int:
    return len(np.unique(np.concatenate(list(tests))))


def first_seen(rows: pd.DataFrame) -> pd.Series:
    """Which images of every row were the first, which costly methods see; of rows that are means of others as they say themselves."""
    limits = rows["cut_n"].fillna(rows["n"]) if "cut_n" in rows else rows["n"]
    first = [a[: int(n)] if isinstance(a, np.ndarray) else None for a, n in zip(rows["seen"], limits, strict=True)]
    first = pd.Series(first, rows.index, dtype=object)
    return rows["cut_seen"].where(rows["cut_seen"].notna(), first) if "cut_seen" in rows else first


def all_seen(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """By ``by``: which images its rows have seen (``seen``), and which of them are the first of a stream (``cut_seen``)."""
    parts = rows.assign(cut_seen=first_seen(rows)).groupby(by, sort=False)[["seen", "cut_seen"]]
    return parts.agg(list).map(np.concatenate)


def _units(keys: tuple, frame: pd.DataFrame) -> Units:
    value, weight, n = (frame[name].to_numpy(dtype=float) for name in ("_value", "_weight", "_images"))
    seen = tuple(frame["_seen"])
    units = Units(keys, value, weight, n, seen=None if any(of_unit is None for of_unit in seen) else seen)
    return replace(units, repeats=_repeats(units)) if units.seen else units


def _repeats(units: Units) -> float:
    """``Units.repeats`` from the images seen, the mean over seeds: of noise of variance one on every image, the variance of the weighted
    mean over clients, over what it were if no client had an image of another."""
    found = []
    for seed in dict.fromkeys(seed for seed, _ in units.keys):
        tests = {i: np.concatenate(units.seen[i]) for i, (its, _) in enumerate(units.keys) if its == seed and units.seen[i]}
        tests = {i: test for i, test in tests.items() if len(test)}
        if not tests:
            continue
        owner = np.repeat(range(len(tests)), [len(test) for test in tests.values()])
        images, image = np.unique(np.concatenate(list(tests.values())), return_inverse=True)
        weight = np.repeat([units.weight[i] / len(test) for i, test in tests.items()], [len(test) for test in tests.values()])
        _, of_client = np.unique(owner * len(images) + image, return_inverse=True)
        found.append(np.sum(np.bincount(image, weight) ** 2) / np.sum(np.bincount(of_client, weight) ** 2))
    return float(np.mean(found)) if found else 1.0
