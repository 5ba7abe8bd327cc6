"""Normalisation, and the crop with a margin and a horizontal flip on which every other augmentation here is built.

FedTHE (BRFL), training: zero padding 4 and flip; the code draws one offset and one flip for a whole batch, the usual practice is one per
image (``fedlib.augment.transform`` draws either). Padding comes before normalisation, so padded pixels are black. ATP's MEMO mirrors the
border instead (``mode="symmetric"``). Draws are arguments, never hidden, so that a run can fix them by (client, round).
"""

import functools
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from fedlib.tools.names import check_name

MODES = ("zero", "symmetric")


def check_images(images: Tensor) -> None:
    """Raise ValueError unless ``images`` is uint8 [N, C, H, W] with one or three channels."""
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(f"images must be uint8 [N, 1 or 3, H, W] before normalisation, got {images.dtype} {list(images.shape)}")


def normalise(images: Tensor, mean: Sequence[float], std: Sequence[float], dtype: torch.dtype = torch.float32) -> Tensor:
    """(x - mean) / std per channel of images [..., C, H, W]; uint8 is divided by 255 first, floats are taken to lie in [0, 1].

    Floating images keep their dtype, uint8 becomes ``dtype``. Raises ValueError unless mean and std have one entry per channel and
    std > 0.
    """
    channels = images.shape[-3]
    if not len(mean) == len(std) == channels or min(std) <= 0:
        raise ValueError(
            f"images of {channels} channels need as many means and as many positive standard deviations, got {tuple(mean)} and {tuple(std)}"
        )
    scaled = images if images.is_floating_point() else images.to(dtype) / 255
    mean, std = (_per_channel(tuple(values), scaled.dtype, images.device) for values in (mean, std))
    return (scaled - mean).div_(std)


@functools.lru_cache(maxsize=64)
def _per_channel(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """``values`` as [C, 1, 1], made once: on a GPU every new one stops the host."""
    return torch.tensor(values, dtype=dtype, device=device)[:, None, None]


def pad_crop_flip(images: Tensor, tops: Tensor, lefts: Tensor, flips: Tensor, pad: int = 4, mode: str = "zero") -> Tensor:
    """Pad by ``pad`` pixels, cut the original size at (top, left), then mirror left-right where ``flips``; dtype and shape are kept.

    images: [B, C, H, W], of any dtype. tops, lefts: integers in 0..2*pad; flips: boolean or 0/1; each [B], or [1] for one decision
    about the whole batch. mode: ``zero`` (black) or ``symmetric`` (the border mirrored, edge pixels repeated). Raises ValueError
    for offsets outside the margin, another number of draws, or an unknown mode.
    """
    check_name(mode, MODES, "padding mode")
    if any(draw.shape not in ((len(images),), (1,)) for draw in (tops, lefts, flips)):
        raise ValueError(f"{len(images)} images need as many draws, or one: got {[list(d.shape) for d in (tops, lefts, flips)]}")
    offsets = [*tops.tolist(), *lefts.tolist()]
    if offsets and not 0 <= min(offsets) <= max(offsets) <= 2 * pad:
        raise ValueError(f"crop offsets must lie in 0..{2 * pad}, got {min(offsets)}..{max(offsets)}")
    height, width = images.shape[-2:]
    padded = functional.pad(images, [pad] * 4) if mode == "zero" else _symmetric(images, pad)
    if all(len(draw) == 1 for draw in (tops, lefts, flips)):
        top, left = offsets
        crops = padded[..., top : top + height, left : left + width]
        return crops.flip(-1) if flips.item() else crops
    tops, lefts = (draw.expand(len(images)).to(images.device, non_blocking=True) for draw in (tops, lefts))
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # [B, C, 2 pad + 1, 2 pad + 1, H, W], a view
    crops = windows[torch.arange(len(images), device=images.device), :, tops, lefts]
    mirrored = flips.expand(len(images)).nonzero()[:, 0].to(images.device, non_blocking=True)
    return crops.index_copy_(0, mirrored, crops.index_select(0, mirrored).flip(-1))


def _symmetric(images: Tensor, pad: int) -> Tensor:
    """Pad with the mirrored border, edge pixels included (``functional.pad`` only mirrors without them)."""
    for axis in (-2, -1):
        size = images.shape[axis]
        if pad > size:
            raise ValueError(f"symmetric padding {pad} exceeds the image size {size}")
        position = torch.arange(-pad, size + pad, device=images.device)
        mirrored = torch.where(position < 0, -1 - position, torch.where(position >= size, 2 * size - 1 - position, position))
        images = images.index_select(axis, mirrored)
    return images
