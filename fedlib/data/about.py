"""What a data set says of itself: one record, written beside its loader and found by name.

Nothing else in the kit may depend on the name of a data set. What a paper chooses for a data set (which printed block it is, rates) stays
with the paper.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from fedlib.data.dataset import Dataset

# Mean and standard deviation per channel, in units of [0, 1].
Statistics = tuple[tuple[float, ...], tuple[float, ...]]
ROTATED = "_rotated"


@dataclass(frozen=True)
class About:
    """shown: its name wherever a result from it is shown. printed: data set of the papers whose own images these are, "" for a stand-in and
    for a user's images; part: whether they are fewer; stand_in: what they replace. statistics: for normalisation, by the public code they
    are from (``fedthe``, ``upfl``, ``atp``), or ``measured``, for all (``without <domain>``: of a user's other domains). flips: whether a
    mirrored image keeps its class; views: kind of contrastive views (``fedlib.augment.views``). natural: data set of its natural shift;
    domains: names, where it has any; held_out: the domain that is the shift, where one is. pooled: the official test images join the
    training pool, since another set is the shift; small: clients hold so few images that they train with smaller batches and larger steps;
    shuffled: files are in a random order already; own: a user's.
    """

    shown: str
    printed: str = ""
    part: bool = False
    stand_in: str = ""
    statistics: Mapping[str, Statistics] = field(default_factory=dict)
    flips: bool = True
    views: str = "objects"
    natural: str = ""
    domains: tuple[str, ...] = ()
    held_out: str = ""
    pooled: bool = False
    small: bool = False
    shuffled: bool = False
    own: bool = False

    @property
    def margin(self) -> int:
        """By how many pixels crops may move: by few where a mirrored image may be of another class (digits, letters)."""
        return 4 if self.flips else 1

    def scaling(self, code: str, channels: int, default: tuple[float, float], held_out: str | None = None) -> Statistics:
        """Mean and deviation per channel that ``code`` uses; where it has none, those measured, of a user's domains on all but the one
        ``held_out`` (None: the last); else ``default`` for every channel."""
        known = self.statistics.get(code) or self.statistics.get(f"without {held_out}") or self.statistics.get("measured")
        return known or tuple((value,) * channels for value in default)

    def lacks(self, what: str) -> str:
        """Why what needs ``what`` ("natural shift", "domains") does not run on these images, "" where they have it. Published data sets
        whose natural shift is absent have a stand-in for it."""
        has = {"natural shift": not self.own or self.held_out, "domains": self.domains}
        return "" if has[what] else f"{self.shown} has no {what}"


RECORDS: dict[str, About] = {}
Loader = Callable[..., Dataset]


def described(name: str, **fields) -> Callable[[Loader], Loader]:
    """Decorator: the loader's data set is called ``name`` and says ``fields`` (of `About`) of itself."""
    RECORDS[name] = About(**{"shown": name} | fields)

    def wrap(loader: Loader) -> Loader:
        @functools.wraps(loader)
        def load(*args, **options) -> Dataset:
            data = loader(*args, **options)
            return replace(data, stand_in=RECORDS[name].stand_in) if RECORDS[name].stand_in else data

        return load

    return wrap


def is_own(name: str) -> bool:
    """Whether the name of a data set, as results carry it, is that of a user's file or folder."""
    name = name.removesuffix(ROTATED).removesuffix(", rotated")
    return name.endswith((".npz", "/"))


def recorded(name: str) -> About:
    """The record by the name that results carry: also ``digits_rotated``, and ``pacs64``, which is `pacs` at 64 pixels."""
    base = name.removesuffix(ROTATED)
    whole = base.rstrip("0123456789")
    if base in RECORDS:
        found = RECORDS[base]
    elif whole in RECORDS and base != whole:
        found = replace(RECORDS[whole], shown=f"{whole.upper()} ({base.removeprefix(whole)} px)", printed="")
    else:
        found = About(base, own=is_own(base))
    if base == name:
        return found
    return replace(found, shown=name if found.shown == base and not found.own else f"{found.shown}, rotated")
