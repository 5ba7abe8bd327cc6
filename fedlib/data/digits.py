"""The embedded digit family: small stand-ins that need no download.

Built from scikit-learn's 1,797 real handwritten digits (8 x 8), from digits rendered with matplotlib's own fonts and from
scikit-learn's two sample photographs. Nothing here depends on a run's seed: every call returns the same pixels, in the same arrays, which
are not to be written to. `stand_in` names the data set that each one replaces; results on them are not comparable with published numbers.
"""

import functools
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage
from sklearn.datasets import load_digits, load_sample_images

from fedlib.data.about import described
from fedlib.data.dataset import Dataset
from fedlib.data.partition import stratified
from fedlib.data.sources_torchvision import CHARACTERS, DIGITS, MNIST_SCALE
from fedlib.tools.seeding import numpy_generator

SIDE = 16
DOMAINS = ("plain", "clutter", "lowres", "fonts", "blend")
# The files among matplotlib's fonts that hold upright numerals 0-9; the others are symbol fonts or fallbacks.
FONTS = (
    *(f"DejaVuSans{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSansMono{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta"),
    *("cmb10", "cmr10", "cmss10", "cmti10", "cmtt10"),
)
FAMILY = CHARACTERS | {"small": True}


@functools.cache
@described("digits", stand_in="CIFAR-10 / MNIST", statistics=MNIST_SCALE, natural="digits_natural", pooled=True, **FAMILY)
def digits() -> Dataset:
    """The 1,797 handwritten digits, grey [1797, 1, 16, 16]; one sixth of every class is the test part. Stands in for CIFAR-10 or MNIST."""
    images, labels = _handwritten()
    is_test = np.zeros(len(labels), bool)
    is_test[stratified(labels, 6, numpy_generator(0, "digits", "test"))[0]] = True
    return Dataset("digits", images[:, None], labels, DIGITS, is_test=is_test)


@functools.cache
@described("digits_natural", stand_in="CIFAR-10.1", **FAMILY)
def digits_natural(per_class: int = 200) -> Dataset:
    """Printed digits seen through the same 8 x 8 sampling as `digits`: new images from another source, with CIFAR-10.1's part and size.

    Grey [10 * per_class, 1, 16, 16], sorted by class. Contrast is stretched and the glyphs nearly fill the frame, as in `digits`, so
    that the shift is one of source.
    """
    labels = np.repeat(np.arange(10), per_class)
    coarse = render(labels, 8, numpy_generator(0, "digits", "natural"), variety=0.6).astype(np.float32)
    images = enlarge(coarse * (255 / coarse.max(axis=(1, 2), keepdims=True)))
    return Dataset("digits_natural", images[:, None], labels, DIGITS)


@functools.cache
@described("digits5", stand_in="Digits-5", domains=DOMAINS, held_out="fonts", **FAMILY)
def digits5() -> Dataset:
    """Five domains of colour digits [2247, 3, 16, 16]; groups are the domains of `DOMAINS`, a fifth of each is its test part.

    plain: handwriting, white on black (MNIST's part). clutter: coloured, either polarity, pieces of neighbouring digits (SVHN).
    lowres: sampled at 6 x 6 and enlarged, thick (USPS). fonts: printed, coloured (SynthDigits). blend: absolute difference to a
    patch of a photograph (MNIST-M). The 1,797 handwritten digits are dealt to the four handwriting domains, so that no image is in two.
    """
    handwriting, digit = _handwritten()
    shares = stratified(digit, 4, numpy_generator(0, "digits5", "domains"))
    printed = np.repeat(np.arange(10), 45)
    images, labels, is_test = [], [], []
    for domain in DOMAINS:
        rng = numpy_generator(0, "digits5", domain)
        share = None if domain == "fonts" else shares.pop()
        label = printed if share is None else digit[share]
        ink = render(label, SIDE, rng) if share is None else handwriting[share]
        images.append(_STYLES[domain](ink, rng))
        labels.append(label)
        is_test.append(np.isin(np.arange(len(label)), stratified(label, 5, rng)[0]))
    groups = np.repeat(np.arange(len(DOMAINS)), [len(label) for label in labels])
    return Dataset("digits5", np.concatenate(images), np.concatenate(labels), DIGITS, groups, DOMAINS, np.concatenate(is_test))


def rotate(dataset: Dataset, angles: np.ndarray) -> Dataset:
    """Turn image i by ``angles[i]`` degrees, counter-clockwise, about its centre (PIL bicubic, corners filled with 0, size kept)."""
    angles = np.broadcast_to(angles, (len(dataset),))
    turned = np.empty_like(dataset.images)
    for out, image, angle in zip(turned, dataset.images, angles, strict=True):
        for plane, channel in zip(out, image, strict=True):
            plane[:] = Image.fromarray(channel).rotate(float(angle), Image.Resampling.BICUBIC)
    return replace(dataset, name=f"{dataset.name}_rotated", images=turned)


def render(labels: np.ndarray, side: int, rng: np.random.Generator, variety: float = 1.0) -> np.ndarray:
    """Draw each label in a random font, white on black; uint8 [N, side, side], side a divisor of 64.

    At variety 1: height 75-100 % of the side, width 80-120 % of the font's, slant -0.25..0.25, angle -10..10 degrees, shift up to 1/16
    of the side. Smaller values narrow these ranges towards an upright, centred glyph of full height.
    """
    big = 64
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    fonts = [ImageFont.truetype(str(folder / f"{name}.ttf"), big, layout_engine=ImageFont.Layout.BASIC) for name in FONTS]
    out = np.empty((len(labels), side, side), np.uint8)
    for i, label in enumerate(labels):
        font = fonts[rng.integers(len(fonts))]
        left, top, right, bottom = font.getbbox(str(label))
        glyph = Image.new("L", (right - left, bottom - top))
        ImageDraw.Draw(glyph).text((-left, -top), str(label), fill=255, font=font)
        scale = big * (1 - variety * rng.uniform(0, 0.25)) / glyph.height
        width, slant, angle, *shift = variety * rng.uniform(-1, 1, 5) * (0.2, 0.25, np.radians(10), big / 16, big / 16)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        forward = turn @ np.array([[1, slant], [0, 1]]) @ np.diag([scale * (1 + width), scale])
        # PIL wants the map from output to input pixels.
        back = np.linalg.inv(forward)
        offset = np.array([glyph.width, glyph.height]) / 2 - back @ (big / 2 + np.array(shift))
        matrix = (*back[0], offset[0], *back[1], offset[1])
        drawn = glyph.transform((big, big), Image.Transform.AFFINE, matrix, Image.Resampling.BICUBIC)
        out[i] = drawn.reduce(big // side)
    return out


def enlarge(images: np.ndarray) -> np.ndarray:
    """Smooth (cubic) enlargement of grey images [N, h, w] with values 0..255 to uint8 [N, 16, 16]."""
    factor = SIDE / images.shape[-1]
    smooth = ndimage.zoom(images.astype(np.float32), (1, factor, factor), order=3, mode="grid-constant", grid_mode=True)
    return np.clip(np.rint(smooth), 0, 255).astype(np.uint8)


def _handwritten() -> tuple[np.ndarray, np.ndarray]:
    """Grey images uint8 [1797, 16, 16] and labels int64 [1797]."""
    source = load_digits()
    return enlarge(source.images * (255 / 16)), source.target.astype(np.int64)


def coarsened(ink: np.ndarray) -> np.ndarray:
    """Grey images uint8 [N, H, W] sampled at 6 x 6, brightened by half and enlarged again; uint8 [N, 3, 16, 16]."""
    coarse = np.stack([Image.fromarray(image).resize((6, 6), Image.Resampling.BOX) for image in ink])
    return _colourless(enlarge(np.minimum(coarse * 1.5, 255)))


def _colourless(ink: np.ndarray) -> np.ndarray:
    return np.repeat(ink[:, None], 3, axis=1)


def _coloured(ink: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Paint ink on a ground of another colour; the two brightnesses differ by at least a third of the range, either way round."""
    n = len(ink)
    bright, dark = rng.uniform(150, 255, (n, 3)), rng.uniform(0, 100, (n, 3))
    swap = rng.random((n, 1)) < 0.5
    paint, ground = np.where(swap, dark, bright)[..., None, None], np.where(swap, bright, dark)[..., None, None]
    cover = ink[:, None] / 255
    return np.rint(cover * paint + (1 - cover) * ground).astype(np.uint8)


def _clutter(ink: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    # Neighbours are printed, not handwritten: no handwritten image may enter a second sample.
    left, right = (render(rng.integers(0, 10, len(ink)), SIDE, rng) for _ in range(2))
    crowded = ink.copy()
    crowded[:, :, :3] = np.maximum(crowded[:, :, :3], left[:, :, -6:-3])
    crowded[:, :, -3:] = np.maximum(crowded[:, :, -3:], right[:, :, 3:6])
    return _coloured(crowded, rng)


def _blend(ink: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    photographs = np.stack(load_sample_images().images)[:, ::2, ::2].transpose(0, 3, 1, 2)
    patches = np.lib.stride_tricks.sliding_window_view(photographs, (SIDE, SIDE), axis=(2, 3))
    which = [rng.integers(0, patches.shape[axis], len(ink)) for axis in (0, 2, 3)]
    texture = patches[which[0], :, which[1], which[2]]
    return np.abs(texture.astype(np.int16) - ink[:, None]).astype(np.uint8)


_STYLES = {
    "plain": lambda ink, rng: _colourless(ink),
    "clutter": _clutter,
    "lowres": lambda ink, rng: coarsened(ink),
    "fonts": _coloured,
    "blend": _blend,
}
