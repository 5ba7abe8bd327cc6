"""Labelled images, and which images they are."""

import functools
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Samples:
    """Labelled images of one client: images uint8 [n, C, H, W], labels int64 [n]. origin: of images that were made of others, such as
    corrupted ones, the ``identity`` [n] of these."""

    images: Tensor
    labels: Tensor
    origin: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.images)

    def to(self, device: torch.device | str) -> "Samples":
        return replace(self, images=self.images.to(device), labels=self.labels.to(device))

    def head(self, limit: int | None) -> "Samples":
        """The first ``limit`` samples (all of them for None)."""
        return self.at(slice(limit))

    def at(self, index: Tensor | np.ndarray | slice) -> "Samples":
        """The samples at ``index``, in that order."""
        return Samples(self.images[index], self.labels[index], None if self.origin is None else self.origin[_on_cpu(index)])

    @functools.cached_property
    def identity(self) -> np.ndarray:
        """A number [n], int64, for every image, the same for the same image and for what was made of it: results count images by it."""
        if self.origin is not None:
            return self.origin
        pixels = self.images.cpu().contiguous().numpy()
        digests = b"".join(blake2b(image.data, digest_size=8).digest() for image in pixels)
        return np.frombuffer(digests, dtype=np.int64)


def _on_cpu(index: Tensor | np.ndarray | slice) -> np.ndarray | slice:
    return index.cpu().numpy() if isinstance(index, Tensor) else index


def joined(*parts: Samples) -> Samples:
    """The samples of several parts, one behind the other."""
    made = any(part.origin is not None for part in parts)
    origin = np.concatenate([part.identity for part in parts]) if made else None
    return Samples(torch.cat([part.images for part in parts]), torch.cat([part.labels for part in parts]), origin)
