"""Colour operations on float images [n, C, H, W] in [0, 1], each image by its own amount; definitions of torchvision.

On one-channel images brightness and contrast act, saturation, hue and grey do nothing.
"""

import torch
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)


def luma(images: Tensor) -> Tensor:
    """Perceived brightness [n, 1, H, W]; the image itself where there is one channel."""
    if images.shape[1] == 1:
        return images
    return (images * torch.tensor(LUMA, dtype=images.dtype, device=images.device)[:, None, None]).sum(1, keepdim=True)


def brightness(images: Tensor, factors: Tensor) -> Tensor:
    """Multiply by ``factors`` [n] >= 0, clip to [0, 1]."""
    return (images * factors[:, None, None, None]).clamp(0, 1)


def contrast(images: Tensor, factors: Tensor) -> Tensor:
    """Scale the distance to the mean brightness of the image by ``factors`` [n] >= 0, clip to [0, 1]."""
    return torch.lerp(luma(images).mean((1, 2, 3), keepdim=True), images, factors[:, None, None, None]).clamp(0, 1)


def saturation(images: Tensor, factors: Tensor) -> Tensor:
    """Scale the distance to the grey image by ``factors`` [n] >= 0 (0: grey, 1: unchanged), clip to [0, 1]."""
    return torch.lerp(luma(images).expand_as(images), images, factors[:, None, None, None]).clamp(0, 1)


def hue(images: Tensor, turns: Tensor) -> Tensor:
    """Turn the hue by ``turns`` [n], in full circles; saturation and value of HSV stay."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.unbind(1)
    value, chroma = images.amax(1), images.amax(1) - images.amin(1)
    divisor = torch.where(chroma > 0, chroma, 1)
    sextant = torch.where(
        value == red, (green - blue) / divisor, torch.where(value == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor)
    )
    sextant = sextant + 6 * turns[:, None, None]
    # Each channel is the value less its share of the chroma, a trapezoid of the hue that is shifted by a third of the circle.
    offsets = torch.tensor([5.0, 3.0, 1.0], dtype=images.dtype, device=images.device)[:, None, None]
    phase = (sextant[:, None] + offsets) % 6
    return value[:, None] - chroma[:, None] * torch.minimum(phase, 4 - phase).clamp(0, 1)


ADJUSTMENTS = (brightness, contrast, saturation, hue)


def jitter(images: Tensor, uniform: Tensor, strengths: tuple[float, float, float, float], chosen: Tensor | None = None) -> Tensor:
    """Random brightness, contrast, saturation and hue, in a random order for each image.

    uniform: [n, 8] on the CPU, four amounts and four sort keys of the order. strengths: factors are uniform on [1 - s, 1 + s], at
    least 0, the hue turn on [-s, s]; 0 leaves the adjustment out. chosen: bool [n] on the CPU, images to change (all if None).
    """
    images = images.clone()
    low = torch.tensor([max(0.0, 1 - s) for s in strengths[:3]] + [-strengths[3]], dtype=torch.float64)
    high = torch.tensor([1 + s for s in strengths[:3]] + [strengths[3]], dtype=torch.float64)
    amounts = low + (high - low) * uniform[:, :4]
    order = uniform[:, 4:].argsort(1)
    for position in range(4):
        for kind, adjust in enumerate(ADJUSTMENTS):
            rows = order[:, position] == kind if chosen is None else (order[:, position] == kind) & chosen
            index = rows.nonzero()[:, 0]
            if strengths[kind] and len(index):
                on_device = index.to(images.device, non_blocking=True)
                images[on_device] = adjust(images[on_device], amounts[index, kind].to(images.device, images.dtype, non_blocking=True))
    return images
