"""AugMix views one at a time with PIL, following a given plan: the plain version of ``fedlib.augment.augmix.apply``."""

import numpy as np
from PIL import Image, ImageOps

BILINEAR, AFFINE = Image.Resampling.BILINEAR, Image.Transform.AFFINE


def operate(image: Image.Image, op: str, level: float, sign: float) -> Image.Image:
    """One operation at strength 1 of 10. level: U(0.1, 1); sign: +-1."""
    if op == "autocontrast":
        return ImageOps.autocontrast(image)
    if op == "equalize":
        return ImageOps.equalize(image)
    if op == "posterize":
        return ImageOps.posterize(image, 4 - int(level * 4 / 10))
    if op == "solarize":
        return ImageOps.solarize(image, 256 - int(level * 256 / 10))
    if op == "rotate":
        return image.rotate(sign * int(level * 30 / 10), resample=BILINEAR, fillcolor=128)
    shear = sign * level * 0.3 / 10
    across, down = (sign * int(level * (size / 3) / 10) for size in image.size)
    matrix = {
        "shear_x": (1, shear, 0, 0, 1, 0),
        "shear_y": (1, 0, 0, shear, 1, 0),
        "translate_x": (1, 0, across, 0, 1, 0),
        "translate_y": (1, 0, 0, 0, 1, down),
    }[op]
    return image.transform(image.size, AFFINE, matrix, resample=BILINEAR, fillcolor=128)


def normalised(image: Image.Image, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """PIL image -> float32 [C, H, W]."""
    pixels = np.atleast_3d(np.asarray(image, dtype=np.float32)).transpose(2, 0, 1) / 255
    return (pixels - mean[:, None, None]) / std[:, None, None]


def view(pixels: np.ndarray, names, top, left, flip, mix, weights, ops, levels, signs, mean, std, pad=4) -> np.ndarray:
    """One view of a uint8 image [C, H, W]; ``ops`` holds positions in ``names``, -1 after the end of a chain."""
    mean, std = np.asarray(mean, np.float32), np.asarray(std, np.float32)
    height, width = pixels.shape[1:]
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    image = ImageOps.expand(image, pad).crop((left, top, left + width, top + height))
    if flip:
        image = ImageOps.mirror(image)
    mixture = np.zeros(pixels.shape, np.float32)
    for chain in range(len(ops)):
        changed = image.copy()
        for op, level, sign in zip(ops[chain], levels[chain], signs[chain], strict=True):
            if op >= 0:
                changed = operate(changed, names[op], level, sign)
        mixture += np.float32(weights[chain]) * normalised(changed, mean, std)
    return np.float32(mix) * normalised(image, mean, std) + np.float32(1 - mix) * mixture


def views(images: np.ndarray, names, plan, mean, std) -> np.ndarray:
    """Images [V, C, H, W], one per entry of the plan -> [V, C, H, W]."""
    columns = (plan.tops, plan.lefts, plan.flips, plan.mix, plan.weights, plan.ops, plan.levels, plan.signs)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return np.stack([view(image, names, *row, mean, std, plan.margin) for image, row in zip(images, rows, strict=True)])
