"""From uint8 images to network inputs: augmentation and normalisation as batched tensor code.

FedTHE's code draws one flip and one crop offset for all images of a batch (``augment="batch"``, the default here because the published
numbers were made with it); ``"sample"`` draws them per image, ``"none"`` leaves the images alone.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedlib.augment.crop import normalise, pad_crop_flip
from fedlib.data import about
from fedlib.tools.names import check_name

AUGMENT = ("batch", "sample", "none")


@dataclass(frozen=True)
class Transform:
    """mean, std: per channel, in units of [0, 1]. augment: training images are cropped and flipped alike in a minibatch (``batch``), each
    by itself (``sample``) or not at all (``none``). pad: crop margin in pixels. flip: whether horizontal flips keep the class."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    augment: str = "batch"
    pad: int = 4
    flip: bool = True

    def __post_init__(self):
        check_name(self.augment, AUGMENT, "augmentation")
        if len(self.mean) != len(self.std) or any(s <= 0 for s in self.std):
            raise ValueError(f"mean {self.mean} and std {self.std} must have one positive entry per channel")

    def normalise(self, images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """uint8 [..., C, H, W] (or float in [0, 1]) -> zero-mean, unit-scale inputs of the same shape."""
        return normalise(images, self.mean, self.std, dtype)

    def draws(self, n: int, generator: torch.Generator) -> Tensor:
        """Crop offsets and flips for one batch of up to ``n`` images: int64 [1 or n, 3] = (top, left, flip)."""
        rows = {"batch": 1, "sample": n, "none": 0}[self.augment]
        offsets = torch.randint(0, 2 * self.pad + 1, (rows, 2), generator=generator)
        flips = torch.randint(0, 2, (rows, 1), generator=generator) * int(self.flip)
        return torch.cat([offsets, flips], dim=1)

    def augmented(self, images: Tensor, draws: Tensor) -> Tensor:
        """Zero-padded crop and flip of uint8 images [n, C, H, W] according to ``draws``; padding is black, before normalisation."""
        return pad_crop_flip(images, *draws[: len(images)].unbind(1), self.pad) if len(draws) else images


def transform_for(dataset: str, channels: int, augment: str = "batch", held_out: str | None = None) -> Transform:
    """The transform of a data set by name: statistics of FedTHE's code or measured (without the domain ``held_out``), else 0.5; flips and a
    margin of 4 pixels where flips keep the class, else (digits, letters) a margin of 1."""
    record = about(dataset)
    return Transform(*record.scaling("fedthe", channels, (0.5, 0.5), held_out), augment, record.margin, record.flips)
