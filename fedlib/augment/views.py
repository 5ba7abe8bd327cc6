"""Random views other than AugMix: rotations (TTT), crop and flip (ATP's MEMO), MoCo (TSA), contrastive (FedICON).

Views are float32 [N, n_views, C, H, W] in [0, 1], to be normalised by ``fedlib.augment.crop.normalise``; images are uint8 [N, 1 or
3, H, W]. ``generator`` is one for all samples or one for each (``fedlib.augment.draws``). No state is carried. Crops are drawn
before flips.

Paper and code: FedTHE's code for TSA forgets the augmentation, so both views are the test image; ``moco_views`` is the intended
one, and a method that reproduces the code does not call it. FedICON leaves its views open: ``contrastive_views`` is the kit's
choice for each family of data sets.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fedlib.augment import colour
from fedlib.augment.crop import check_images, pad_crop_flip
from fedlib.augment.draws import Generators, between, integers, uniforms
from fedlib.augment.geometry import resample, resized_crop, rotation
from fedlib.tools.names import check_name

PAD = 4
MOCO_JITTER = (0.4, 0.4, 0.4, 0.1)
CONTRASTIVE_JITTER = (0.4, 0.4, 0.4, 0.0)
BLUR_RADIUS = 6  # three deviations at the largest sigma of ``moco_views``


def rotations(images: Tensor, labels: Tensor) -> Tensor:
    """Turn square images [n, C, S, S] counter-clockwise by 90 degrees ``labels`` [n] times (0..3). dtype kept. TTT's auxiliary task."""
    if images.shape[-1] != images.shape[-2]:
        raise ValueError(f"quarter turns need square images, got {images.shape[-2]} x {images.shape[-1]}")
    labels = labels.to(images.device, non_blocking=True)[:, None, None, None]
    turned = images
    for quarter in (1, 2, 3):
        turned = torch.where(labels == quarter, images.rot90(quarter, (-2, -1)), turned)
    return turned


def crop_flip_views(images: Tensor, n_views: int, generator: Generators, *, pad: int = PAD) -> Tensor:
    """ATP's MEMO: crop after mirrored padding ``pad``, then flip with probability 1/2, digits too."""
    return _views(images, n_views, generator, 3, lambda copies, u: _unit(_crop_flip(copies, u, pad, "symmetric")))


def moco_views(images: Tensor, generator: Generators) -> Tensor:
    """TSA, two of an image: zero-padded crop, jitter (0.4, 0.4, 0.4, 0.1) with probability 0.8, grey 0.2, Gaussian blur of sigma U(0.1, 2)
    0.5, flip 0.5."""

    def make(copies: Tensor, u: Tensor) -> Tensor:
        # Flipping commutes with every later step, so it is done with the crop.
        view = _unit(_crop_flip(copies, u[:, :3], PAD, "zero"))
        view = colour.jitter(view, u[:, 3:11], MOCO_JITTER, u[:, 11] < 0.8)
        view = _grey(view, u[:, 12] < 0.2)
        blurred = (u[:, 13] < 0.5).nonzero()[:, 0]
        rows = blurred.to(view.device, non_blocking=True)
        view[rows] = gaussian_blur(view[rows], between(u[blurred, 14], 0.1, 2.0))
        return view

    return _views(images, 2, generator, 15, make)


def contrastive_views(images: Tensor, generator: Generators, *, kind: str, n_views: int = 2) -> Tensor:
    """FedICON, by data family; jitter is 0.4 in brightness, contrast and saturation and none in hue.

    ``digits``: resized crop of 0.6 to 1 of the area, jitter, no flip. ``objects``: flip, rotation uniform on +-30 degrees (black
    outside), jitter. ``cifar``: zero-padded crop, flip, jitter, grey with probability 0.2. Raises ValueError for another kind.
    """
    check_name(kind, tuple(CONTRASTIVE), "kind of contrastive views")
    width, make = CONTRASTIVE[kind]
    return _views(images, n_views, generator, width, make)


def gaussian_blur(images: Tensor, sigmas: Tensor) -> Tensor:
    """Blur float images [n, C, H, W] by their own ``sigmas`` [n] > 0 in pixels: separable, cut at 6 pixels, border reflected."""
    height, width = images.shape[-2:]
    matrices = (_blur_matrices(sigmas, size, min(BLUR_RADIUS, size - 1)) for size in (height, width))
    down, across = (matrix.to(images.device, images.dtype, non_blocking=True)[:, None] for matrix in matrices)
    return down @ images @ across.mT


def _blur_matrices(sigmas: Tensor, size: int, radius: int) -> Tensor:
    """[n, size, size]: row i holds the weights of all pixels in output pixel i."""
    centre, source = torch.arange(size)[:, None], torch.arange(-radius, size + radius)
    distance = source - centre
    weights = torch.exp(-0.5 * (distance / sigmas[:, None, None]) ** 2) * (distance.abs() <= radius)
    weights = weights / weights.sum(-1, keepdim=True)
    reflected = torch.where(source < 0, -source, torch.where(source >= size, 2 * (size - 1) - source, source))
    return torch.zeros(len(sigmas), size, size, dtype=weights.dtype).index_add_(2, reflected, weights)


def _digits(copies: Tensor, u: Tensor) -> Tensor:
    height, width = copies.shape[-2:]
    return colour.jitter(resample(_unit(copies), resized_crop(u[:, :4], height, width, 0.6)), u[:, 4:12], CONTRASTIVE_JITTER)


def _objects(copies: Tensor, u: Tensor) -> Tensor:
    height, width = copies.shape[-2:]
    flipped = torch.where((u[:, 0] < 0.5).to(copies.device, non_blocking=True)[:, None, None, None], copies.flip(-1), copies)
    turned = resample(_unit(flipped), rotation(between(u[:, 1], -30, 30), height, width))
    return colour.jitter(turned, u[:, 2:10], CONTRASTIVE_JITTER)


def _cifar(copies: Tensor, u: Tensor) -> Tensor:
    view = colour.jitter(_unit(_crop_flip(copies, u[:, :3], PAD, "zero")), u[:, 3:11], CONTRASTIVE_JITTER)
    return _grey(view, u[:, 11] < 0.2)


# kind -> uniforms for each view, function of (copies, uniforms)
CONTRASTIVE = {"digits": (12, _digits), "objects": (10, _objects), "cifar": (12, _cifar)}


def _views(images: Tensor, n_views: int, generator: Generators, width: int, make: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """``make`` on all copies of all images at once; ``width`` uniforms for each copy."""
    check_images(images)
    uniform = uniforms(generator, len(images), n_views, width)
    return make(images.repeat_interleave(n_views, dim=0), uniform).unflatten(0, (len(images), n_views))


def _unit(images: Tensor) -> Tensor:
    return images.float() / 255


def _crop_flip(images: Tensor, u: Tensor, pad: int, mode: str) -> Tensor:
    return pad_crop_flip(images, integers(u[:, 0], 2 * pad + 1), integers(u[:, 1], 2 * pad + 1), u[:, 2] < 0.5, pad, mode)


def _grey(images: Tensor, chosen: Tensor) -> Tensor:
    rows = chosen.nonzero()[:, 0].to(images.device, non_blocking=True)
    images[rows] = colour.luma(images[rows]).expand(-1, images.shape[1], -1, -1)
    return images
