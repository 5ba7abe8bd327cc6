"""Tone operations of AugMix on uint8 images [n, C, H, W], every channel of every image on its own, equal to PIL's to the grey level."""

import torch
from torch import Tensor


def autocontrast(images: Tensor) -> Tensor:
    """Stretch the occurring grey levels to 0..255; a channel of one level is left alone."""
    flat = images.flatten(2)
    low, high = flat.amin(2, keepdim=True).double(), flat.amax(2, keepdim=True).double()
    # Double precision, PIL's order of operations and a true division (torch turns ``255 / x`` into 255 * (1 / x)): the result is truncated,
    # so the last bit can be a grey level.
    scale = torch.full_like(low, 255) / (high - low)
    table = torch.arange(256, device=images.device) * scale - low * scale
    return _lookup(images, torch.where(high > low, table.clamp(0, 255), torch.arange(256, device=images.device)))


def equalize(images: Tensor) -> Tensor:
    """Equalise the histogram as PIL does: in steps of (pixels below the brightest level) // 255, and unchanged where that is zero."""
    flat = images.flatten(2).long()
    counts = torch.zeros(*flat.shape[:2], 256, dtype=torch.int64, device=images.device)
    counts.scatter_add_(2, flat, torch.ones((), dtype=torch.int64, device=images.device).expand_as(flat))
    brightest = counts.gather(2, flat.amax(2, keepdim=True))
    step = (flat.shape[2] - brightest) // 255
    table = (step // 2 + counts.cumsum(2) - counts) // step.clamp(min=1)
    return _lookup(images, torch.where(step > 0, table.clamp(max=255), torch.arange(256, device=images.device)))


def posterize(images: Tensor) -> Tensor:
    """Keep the four highest bits."""
    return images & 0b11110000


def solarize(images: Tensor, thresholds: Tensor) -> Tensor:
    """Invert pixels at or above the image's threshold, int [n] in 0..255."""
    bright = images >= thresholds.to(images.device, images.dtype, non_blocking=True)[:, None, None, None]
    return images ^ (bright.to(torch.uint8) * 255)


def _lookup(images: Tensor, table: Tensor) -> Tensor:
    """Pixels through a table [n, C, 256], truncated to uint8."""
    return table.to(torch.uint8).gather(2, images.flatten(2).long()).view_as(images)
