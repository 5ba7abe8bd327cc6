"""The one form in which images enter the kit."""

import hashlib
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Dataset:
    """A labelled image set, whole in memory.

    images: uint8 [N, C, H, W]; labels: int64 [N], 0..len(classes)-1; groups: int64 [N] (domain or writer) or None;
    group_names: names of the groups; stand_in: what these images replace ("" for the real data set); is_test: bool [N], the official
    test part, or None where the source has no official split.
    """

    name: str
    images: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...]
    groups: np.ndarray | None = None
    group_names: tuple[str, ...] = ()
    is_test: np.ndarray | None = None
    stand_in: str = ""

    def __post_init__(self):
        if self.images.dtype != np.uint8 or self.images.ndim != 4:
            raise ValueError(f"data set {self.name!r}: images must be uint8 [N, C, H, W], got {self.images.dtype} {self.images.shape}")
        if not all(self.images.shape[1:]):
            raise ValueError(f"data set {self.name!r}: images without pixels, {self.images.shape}")
        if self.labels.shape != (len(self.images),) or self.labels.dtype != np.int64:
            raise ValueError(
                f"data set {self.name!r}: labels must be int64 [{len(self.images)}], got {self.labels.dtype} {self.labels.shape}"
            )
        if len(self.labels) and not 0 <= self.labels.min() <= self.labels.max() < len(self.classes):
            raise ValueError(
                f"data set {self.name!r}: labels must lie in 0..{len(self.classes) - 1}, got {self.labels.min()}..{self.labels.max()}"
            )
        if len(set(self.classes)) < len(self.classes):
            twice = next(name for name in self.classes if self.classes.count(name) > 1)
            raise ValueError(f"data set {self.name!r}: class name {twice!r} occurs {self.classes.count(twice)} times")
        for field in ("groups", "is_test"):
            value = getattr(self, field)
            if value is not None and len(value) != len(self.images):
                raise ValueError(f"data set {self.name!r}: {field} has {len(value)} entries for {len(self.images)} images")

    def __repr__(self) -> str:
        sides, replaces = " x ".join(map(str, self.images.shape[1:])), f" (stand-in for {self.stand_in})" if self.stand_in else ""
        named = [f"{len(self.classes)} classes"] + [f"groups {', '.join(self.group_names)}"] * bool(self.group_names)
        return f"{self.name}{replaces}: {len(self):,} images of {sides}, {', '.join(named)}"

    def __len__(self) -> int:
        return len(self.images)

    def select(self, index: np.ndarray) -> "Dataset":
        """The samples at ``index`` (integers or a mask), in that order."""
        groups = None if self.groups is None else self.groups[index]
        is_test = None if self.is_test is None else self.is_test[index]
        return replace(self, images=self.images[index], labels=self.labels[index], groups=groups, is_test=is_test)

    def fingerprint(self) -> str:
        """Hash of the pixels and labels: equal for equal content, whatever the file it came from."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (self.images, self.labels):
            digest.update(str(array.shape).encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()
