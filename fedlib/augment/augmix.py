"""AugMix views of test images, as MEMO, FedTHE+ and their code draw them (FedTHE, appendix; AugMix: Hendrycks et al., 2020).

A view of an image: crop with zero padding 4 and flip give x0. Three chains of one to three operations start from x0; with w ~
Dirichlet(1, 1, 1) and m ~ Beta(1, 1) the view is m norm(x0) + (1 - m) sum_i w_i norm(chain_i(x0)). Operations work on 8-bit images
and are drawn uniformly with replacement from ``OPS``, at strength 1 of 10 with level L ~ U(0.1, 1): rotation by +-int(3 L) degrees;
solarize from 256 - int(25.6 L); shear by +-0.03 L; translation by +-int(L size / 30) pixels; posterize to 4 - int(0.4 L) = 4 bits.
Pixels moved in from outside are 128 in the first channel and 0 in the others, PIL's reading of the integer fill colour that the
code passes.

``draw`` makes an explicit plan on the CPU, ``apply`` carries it out on the images' device, ``views`` does both in chunks. How the
draws relate to the samples is stated in ``fedlib.augment.draws``. No state is carried.

Paper and code: the paper names AugMix without its details; everything above is the code. Small images make some operations inert: a
16 x 16 image is never translated, and equalize needs at least 255 pixels outside the brightest grey level that occurs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from fedlib.augment import tone
from fedlib.augment.crop import check_images, normalise, pad_crop_flip
from fedlib.augment.draws import Generators, between, integers, uniforms
from fedlib.augment.geometry import resample, rotation

OPS = ("autocontrast", "equalize", "rotate", "solarize", "shear_x", "shear_y", "translate_x", "translate_y", "posterize")
AUTOCONTRAST, EQUALIZE, ROTATE, SOLARIZE, SHEAR_X, SHEAR_Y, TRANSLATE_X, TRANSLATE_Y, POSTERIZE = range(len(OPS))
CHAINS, DEPTH, PAD, FILL = 3, 3, 4, 128


@dataclass(frozen=True)
class Plan:
    """Everything random about V views, on the CPU.

    tops, lefts: int64 [V], 0..2 ``margin``, the padding in pixels; flips: bool [V]; mix: float64 [V], the weight m of the unchanged crop;
    weights: float64 [V, 3], w; ops: int64 [V, 3, 3], positions in ``OPS`` by chain and step, -1 after a chain's end; levels: float64
    [V, 3, 3], L; signs: the same, +-1.
    """

    tops: Tensor
    lefts: Tensor
    flips: Tensor
    mix: Tensor
    weights: Tensor
    ops: Tensor
    levels: Tensor
    signs: Tensor
    margin: int = PAD

    def __len__(self) -> int:
        return len(self.tops)

    def __getitem__(self, index: slice | Tensor) -> "Plan":
        """The plan of the views at ``index``."""
        return replace(self, **{field.name: getattr(self, field.name)[index] for field in fields(self) if field.name != "margin"})


def draw(generator: Generators, n_samples: int, n_views: int, *, pad: int = PAD, flip: bool = True) -> Plan:
    """Plan of ``n_views`` views of each of ``n_samples`` samples, sample by sample. One generator, or one for each sample.

    pad: crop margin; flip: whether views may be mirrored (not for digits).
    """
    cells, margin = CHAINS * DEPTH, max(PAD, pad)
    uniform = uniforms(generator, n_samples, n_views, 4 + 2 * CHAINS + 3 * cells)
    crop, weight, depth, *cell = uniform.split([4, CHAINS, CHAINS, cells, cells, cells], dim=1)
    kind, level, sign = (part.unflatten(1, (CHAINS, DEPTH)) for part in cell)
    exponential = -torch.log1p(-weight)  # normalised exponentials are Dirichlet(1, ..., 1)
    ended = torch.arange(DEPTH) > integers(depth, DEPTH)[..., None]
    return Plan(
        tops=margin - pad + integers(crop[:, 0], 2 * pad + 1),
        lefts=margin - pad + integers(crop[:, 1], 2 * pad + 1),
        flips=(crop[:, 2] < 0.5) & flip,
        mix=crop[:, 3],
        weights=exponential / exponential.sum(1, keepdim=True),
        ops=integers(kind, len(OPS)).masked_fill(ended, -1),
        levels=between(level, 0.1, 1.0),
        signs=torch.where(sign < 0.5, 1.0, -1.0).double(),
        margin=margin,
    )


def apply(images: Tensor, plan: Plan, *, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """One view of each image. images: uint8 [V, C, H, W], C = 1 or 3, one per entry of the plan -> float32 [V, C, H, W], normalised."""
    check_images(images)
    if len(images) != len(plan):
        raise ValueError(f"{len(images)} images for a plan of {len(plan)} views; repeat each image once per view")
    count, channels, height, width = images.shape
    cropped = pad_crop_flip(images, plan.tops, plan.lefts, plan.flips, plan.margin)
    chains = cropped.repeat_interleave(CHAINS, dim=0)
    for step in range(DEPTH):
        ops, levels, signs = (part[..., step].flatten() for part in (plan.ops, plan.levels, plan.signs))
        matrices = _matrices(ops, levels, signs, height, width)
        # An identity (rotation by 0 degrees, translation by 0 pixels) needs no resampling; nor does PIL touch the image then.
        moved = (matrices != torch.eye(2, 3, dtype=matrices.dtype)).flatten(1).any(1)
        _replace(chains, moved, _warp, matrices)
        _replace(chains, ops == AUTOCONTRAST, tone.autocontrast)
        _replace(chains, ops == EQUALIZE, tone.equalize)
        _replace(chains, ops == POSTERIZE, tone.posterize)
        _replace(chains, ops == SOLARIZE, tone.solarize, 256 - (levels * 256 / 10).long())
    parts = torch.cat([cropped[:, None], chains.unflatten(0, (count, CHAINS))], dim=1).flatten(2)
    shares = torch.cat([plan.mix[:, None], (1 - plan.mix[:, None]) * plan.weights], dim=1)
    blended = torch.bmm((shares / 255).float().to(images.device, non_blocking=True)[:, None], parts.float())
    # The shares add up to one and normalisation is affine, so one normalisation of the mixture serves all four parts.
    return normalise(blended.view(count, channels, height, width), mean, std)


def _matrices(ops: Tensor, levels: Tensor, signs: Tensor, height: int, width: int) -> Tensor:
    """Matrices [n, 2, 3] of the geometric operations, output to input; the identity for all others."""
    matrices = torch.eye(2, 3, dtype=torch.float64).repeat(len(ops), 1, 1)
    turned = ops == ROTATE
    matrices[turned] = rotation(signs[turned] * (levels[turned] * 30 / 10).trunc(), height, width)
    for op, row, column, amount in (
        (SHEAR_X, 0, 1, levels * 0.3 / 10),
        (SHEAR_Y, 1, 0, levels * 0.3 / 10),
        (TRANSLATE_X, 0, 2, (levels * (width / 3) / 10).trunc()),
        (TRANSLATE_Y, 1, 2, (levels * (height / 3) / 10).trunc()),
    ):
        chosen = ops == op
        matrices[chosen, row, column] = (signs * amount)[chosen]
    return matrices


def _warp(images: Tensor, matrices: Tensor) -> Tensor:
    """Resample uint8 images; PIL truncates the interpolated value, the small offset keeps rounding from losing a grey level."""
    fill = torch.zeros(images.shape[1])
    fill[0] = FILL
    return (resample(images.float(), matrices, fill) + 1e-3).int().to(torch.uint8)


def _replace(images: Tensor, chosen: Tensor, operation: Callable[..., Tensor], *arguments: Tensor) -> None:
    """Overwrite the images at ``chosen`` (bool, CPU) by ``operation(images, *arguments)`` of those entries."""
    index = chosen.nonzero()[:, 0]
    if len(index):
        rows = index.to(images.device, non_blocking=True)
        images[rows] = operation(images.index_select(0, rows), *(argument[index] for argument in arguments))


def views(
    images: Tensor,
    n_views: int,
    generator: Generators,
    *,
    mean: Sequence[float],
    std: Sequence[float],
    chunk: int = 256,
    pad: int = PAD,
    flip: bool = True,
) -> Tensor:
    """``n_views`` AugMix views of each image: uint8 [N, C, H, W] -> normalised float32 [N, n_views, C, H, W] on the images' device.

    chunk: views in work at once, by memory and cache (it changes no value). generator: one for all, or one for each sample. pad, flip:
    as in ``draw``.
    """
    check_images(images)
    plan = draw(generator, len(images), n_views, pad=pad, flip=flip)
    out = torch.empty(len(plan), *images.shape[1:], device=images.device)
    for start in range(0, len(plan), chunk):
        rows = slice(start, start + chunk)
        sample = torch.arange(len(plan))[rows] // n_views
        out[rows] = apply(images[sample.to(images.device, non_blocking=True)], plan[rows], mean=mean, std=std)
    return out.unflatten(0, (len(images), n_views))
