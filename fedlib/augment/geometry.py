"""Affine resampling of a batch, each image by its own matrix, in the conventions of PIL.

A matrix [2, 3] maps output to input coordinates. Coordinates are measured from the outer corner of the first pixel, so its centre
is (0.5, 0.5). A point outside the input gets the fill value; inside, it is interpolated bilinearly and the outermost half pixel
repeats the edge.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional


def resample(images: Tensor, matrices: Tensor, fill: Tensor | None = None) -> Tensor:
    """Bilinear resampling. images: float [n, C, H, W]; matrices: [n, 2, 3]; fill: [C], zero if None. Same shape and dtype."""
    height, width = images.shape[-2:]
    matrices = matrices.to(images.device, images.dtype, non_blocking=True)
    x = (torch.arange(width, device=images.device, dtype=images.dtype) + 0.5)[None, None, :]
    y = (torch.arange(height, device=images.device, dtype=images.dtype) + 0.5)[None, :, None]
    grid = torch.empty(len(images), height, width, 2, device=images.device, dtype=images.dtype)
    for axis, size in enumerate((width, height)):
        # grid_sample measures from -1 to 1
        a, b, c = (matrices[:, axis, k, None, None] * (2 / size) for k in range(3))
        torch.add(a * x, b * y + (c - 1), out=grid[..., axis])
    outside = ((grid[..., 0].abs() >= 1) | (grid[..., 1].abs() >= 1))[:, None]
    sampled = functional.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)
    if fill is None:
        return sampled.masked_fill_(outside, 0)
    return torch.where(outside, fill.to(images.device, images.dtype, non_blocking=True)[:, None, None], sampled)


def rotation(degrees: Tensor, height: int, width: int) -> Tensor:
    """Matrices [n, 2, 3] that turn an image counter-clockwise about its centre by ``degrees`` [n] (float64)."""
    angle = degrees * (math.pi / 180)
    cos, sin = angle.cos(), angle.sin()
    x, y = width / 2, height / 2
    rows = [torch.stack([cos, -sin, x - cos * x + sin * y], -1), torch.stack([sin, cos, y - sin * x - cos * y], -1)]
    return torch.stack(rows, -2)


def resized_crop(uniform: Tensor, height: int, width: int, scale: float) -> Tensor:
    """Matrices [n, 2, 3] of random crops, resized to the whole image, from uniforms [n, 4].

    The area is uniform on [scale, 1] of the image. The aspect ratio is log-uniform on [3/4, 4/3], cut to the ratios with which a
    crop of that area fits, where torchvision draws both again instead. The position is uniform.
    """
    area = scale + (1 - scale) * uniform[:, 0]
    widest = torch.minimum(-area.log(), torch.full_like(area, math.log(4 / 3)))
    ratio = torch.exp((2 * uniform[:, 1] - 1) * widest)
    across, down = (area * ratio).sqrt(), (area / ratio).sqrt()
    matrices = torch.zeros(len(uniform), 2, 3, dtype=uniform.dtype)
    matrices[:, 0, 0], matrices[:, 0, 2] = across, uniform[:, 2] * (1 - across) * width
    matrices[:, 1, 1], matrices[:, 1, 2] = down, uniform[:, 3] * (1 - down) * height
    return matrices
