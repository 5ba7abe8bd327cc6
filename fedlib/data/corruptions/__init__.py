"""The 19 corruptions of CIFAR-10-C and their five severities, for images of any size (FedTHE, appendix D; ATP, appendix C.1).

`corrupt` applies one kind to a batch, `corrupt_each` a kind of its own to every image. Each image has its own seed: its pixels depend on
that seed alone, not on the batch, the order or the other images. Results are truncated to uint8, not rounded, as published.

Sizes: constants are those of the 32 x 32 benchmark. Lengths in pixels (blur radii, streaks, spot sizes) stay as they are at other sizes;
what the benchmark defines relative to the image (zoom, pixelation, elastic deformation) scales with it; the fog's plasma is made at the
next power of two and cropped.
Grey images: kinds that treat the channels alike run on the one channel, so noise keeps its strength. Kinds that know colour (`COLOURED`)
run on three equal channels, and the luma of the result is returned; `saturate` at severities 1-3 therefore leaves grey images unchanged.
Paper and code: glass blur copies where the paper swaps (see `blur.glass_blur`); frost uses a procedural texture (see `weather.frost`).
"""

from collections.abc import Sequence

import numpy as np
import torch

from fedlib.data.corruptions import blur, digital, noise, spatter, weather
from fedlib.data.corruptions.common import grey
from fedlib.tools.names import check_name
from fedlib.tools.seeding import numpy_generator

__all__ = ["KINDS", "SOURCE_KINDS", "TARGET_KINDS", "corrupt", "corrupt_each", "image_seeds"]

# kind: (function, its constants at severities 1..5)
RECIPES = {
    "gaussian_noise": (noise.gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10)),
    "shot_noise": (noise.shot_noise, (500, 250, 100, 75, 50)),
    "impulse_noise": (noise.impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07)),
    # radius, sigma
    "defocus_blur": (blur.defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))),
    # sigma, reach, passes
    "glass_blur": (blur.glass_blur, ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2))),
    # radius, sigma
    "motion_blur": (blur.motion_blur, ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),
    "zoom_blur": (blur.zoom_blur, (1.06, 1.11, 1.16, 1.21, 1.26)),
    # mean, s.d., zoom, threshold, radius, sigma, mix
    "snow": (
        weather.snow,
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
    ),
    # weight of the image, of the texture
    "frost": (weather.frost, ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))),
    # amount, decay
    "fog": (weather.fog, ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),
    "brightness": (weather.brightness, (0.05, 0.1, 0.15, 0.2, 0.3)),
    "contrast": (digital.contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    # strength, smoothing, jitter; fractions of the side
    "elastic_transform": (
        digital.elastic_transform,
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    ),
    "pixelate": (digital.pixelate, (0.95, 0.9, 0.85, 0.75, 0.65)),
    "jpeg_compression": (digital.jpeg_compression, (80, 65, 58, 50, 40)),
    "speckle_noise": (noise.speckle_noise, (0.06, 0.1, 0.12, 0.16, 0.2)),
    "gaussian_blur": (blur.gaussian_blur, (0.4, 0.6, 0.7, 0.8, 1)),
    # factor, offset of the saturation
    "saturate": (digital.saturate, ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))),
    # mean, s.d., sigma, threshold, strength, liquid
    "spatter": (
        spatter.spatter,
        (
            (0.62, 0.1, 0.7, 0.7, 0.5, "water"),
            (0.65, 0.1, 0.8, 0.7, 0.5, "water"),
            (0.65, 0.3, 1, 0.69, 0.5, "water"),
            (0.65, 0.1, 0.7, 0.69, 0.6, "mud"),
            (0.65, 0.1, 0.5, 0.68, 0.6, "mud"),
        ),
    ),
}
KINDS = tuple(RECIPES)
SOURCE_KINDS = KINDS[:15]  # FedTHE's list in its order; ATP's source clients
TARGET_KINDS = KINDS[15:]  # ATP's target clients
COLOURED = ("snow", "frost", "brightness", "saturate", "spatter")
SMALLEST = 8
CHUNK_VALUES = 1 << 20  # pixel values worked on at once: bounds the memory, changes no result


def corrupt(
    images: np.ndarray | torch.Tensor, kind: str, severity: int, generator: torch.Generator | np.random.Generator | int
) -> np.ndarray | torch.Tensor:
    """Corrupt all ``images`` with ``kind`` (one of `KINDS`) at ``severity`` (1..5).

    images: uint8 [N, 3 or 1, H, W] with H, W >= 8, array or tensor; not modified. generator: gives every image its own seed, in order
    (see `image_seeds`); an integer is the seed of a fresh generator. Returns the same type and shape. Raises ValueError on other input.
    """
    return corrupt_each(images, kind, severity, image_seeds(generator, len(images)))


def corrupt_each(
    images: np.ndarray | torch.Tensor, kinds: str | int | Sequence[str | int], severities: int | Sequence[int], seeds: Sequence[int]
) -> np.ndarray | torch.Tensor:
    """Corrupt image i with kinds[i] (a name or an index into `KINDS`), severities[i] (1..5) and seeds[i] (>= 0).

    A single kind or severity holds for all images. Every image gets the pixels that a call with it alone would give.
    """
    pixels = images.detach().cpu().numpy() if isinstance(images, torch.Tensor) else images
    _check_images(pixels)
    n = len(pixels)
    kinds = np.array([_kind_index(kind) for kind in _per_image(kinds, n)], int)
    severities = np.array([_checked_severity(severity) for severity in _per_image(severities, n)], int)
    seeds = [int(seed) for seed in seeds]
    if not len(kinds) == len(severities) == len(seeds) == n:
        raise ValueError(f"{n} images need {n} kinds, severities and seeds, got {len(kinds)}, {len(severities)} and {len(seeds)}")
    if min(seeds, default=0) < 0:
        raise ValueError(f"seeds must be non-negative integers, got {min(seeds)}")

    result = np.empty_like(pixels)
    chunk = max(1, CHUNK_VALUES // (3 * pixels.shape[2] * pixels.shape[3]))
    for kind, severity in sorted(set(zip(kinds.tolist(), severities.tolist(), strict=True))):
        index = np.flatnonzero((kinds == kind) & (severities == severity))
        for part in (index[start : start + chunk] for start in range(0, len(index), chunk)):
            rngs = [np.random.default_rng(seeds[i]) for i in part]
            result[part] = _apply(KINDS[kind], severity, pixels[part], rngs)
    return torch.from_numpy(result).to(images.device) if isinstance(images, torch.Tensor) else result


def image_seeds(generator: torch.Generator | np.random.Generator | int, n: int) -> np.ndarray:
    """One 63-bit seed per image, drawn in image order: int64 [n]."""
    if isinstance(generator, torch.Generator):
        return torch.randint(2**63 - 1, (n,), generator=generator, device=generator.device).cpu().numpy()
    if isinstance(generator, (int, np.integer)):
        generator = numpy_generator(int(generator), "corruption")
    if not isinstance(generator, np.random.Generator):
        raise ValueError(f"generator must be a torch.Generator, a numpy Generator or an integer seed, got {type(generator).__name__}")
    return generator.integers(2**63 - 1, size=n)


def _apply(kind: str, severity: int, images: np.ndarray, rngs: list[np.random.Generator]) -> np.ndarray:
    function, constants = RECIPES[kind]
    through_colour = images.shape[1] == 1 and kind in COLOURED
    changed = function(np.repeat(images, 3, axis=1) if through_colour else images, constants[severity - 1], rngs)
    if changed.dtype != np.uint8:
        changed = (np.clip(changed, 0, 1) * 255).astype(np.uint8)
    return np.rint(grey(changed)).astype(np.uint8) if through_colour else changed


def _check_images(pixels: np.ndarray) -> None:
    dtype, shape = getattr(pixels, "dtype", type(pixels).__name__), tuple(getattr(pixels, "shape", ()))
    if dtype != np.uint8 or len(shape) != 4 or shape[1] not in (1, 3):
        raise ValueError(f"images must be uint8 [N, 3 or 1, H, W], before any scaling or normalisation; got {dtype} {shape}")
    if min(shape[2:]) < SMALLEST:
        raise ValueError(f"images must be at least {SMALLEST} x {SMALLEST} pixels, got {shape[2]} x {shape[3]}")


def _per_image(value, n: int):
    return [value] * n if np.ndim(value) == 0 else value


def _checked_severity(severity: int) -> int:
    if severity not in range(1, 6):
        raise ValueError(f"severity must be an integer in 1..5, got {severity!r}")
    return int(severity)


def _kind_index(kind: str | int) -> int:
    if isinstance(kind, str):
        return KINDS.index(check_name(kind, KINDS, "corruption"))
    if not 0 <= kind < len(KINDS):
        raise ValueError(f"corruption index must lie in 0..{len(KINDS) - 1}, got {kind}")
    return int(kind)
