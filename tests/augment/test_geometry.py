import numpy as np
import pytest
import torch
from PIL import Image

from fedlib.augment.geometry import resample, resized_crop, rotation
from fedlib.tools.seeding import generator

BILINEAR, AFFINE = Image.Resampling.BILINEAR, Image.Transform.AFFINE


@pytest.mark.parametrize(("height", "width"), [(16, 16), (32, 32), (28, 20)])
def test_affine_and_rotation_agree_with_pil(height, width):
    """PIL's 32-bit float images are interpolated without truncation, by the same rule for the border."""
    images = torch.rand(6, 1, height, width, generator=generator(0, "images")) * 255
    matrices = torch.eye(2, 3).double().repeat(6, 1, 1) + 0.1 * torch.randn(6, 2, 3, generator=generator(0, "matrix")).double()
    degrees = torch.tensor([-30.0, -2.0, 0.0, 1.0, 17.0, 90.0], dtype=torch.float64)
    got = resample(images, matrices, torch.tensor([7.0]))
    turned = resample(images, rotation(degrees, height, width), torch.tensor([7.0]))
    for i, image in enumerate(images[:, 0].numpy()):
        source = Image.fromarray(image)
        want = source.transform(source.size, AFFINE, tuple(matrices[i].flatten().tolist()), resample=BILINEAR, fillcolor=7)
        np.testing.assert_allclose(got[i, 0].numpy(), np.asarray(want), atol=5e-3)
        if (height == width) or degrees[i] != 90:  # PIL turns by 90 degrees without resampling only where the shape allows
            want = source.rotate(degrees[i].item(), resample=BILINEAR, fillcolor=7)
            np.testing.assert_allclose(turned[i, 0].numpy(), np.asarray(want), atol=5e-3)


def test_fill_by_channel_and_default():
    images = torch.ones(1, 3, 4, 4)
    right = torch.tensor([[[1.0, 0, 3], [0, 1, 0]]])
    assert resample(images, right)[0, :, 0].tolist() == [[1, 0, 0, 0]] * 3
    assert resample(images, right, torch.tensor([0.5, 0, 0.25]))[0, :, 0, 3].tolist() == [0.5, 0, 0.25]


def test_resized_crops_lie_in_the_image_and_keep_their_area():
    matrices = resized_crop(torch.rand(2000, 4, generator=generator(0), dtype=torch.float64), 20, 10, 0.6)
    across, down = matrices[:, 0, 0], matrices[:, 1, 1]
    left, top = matrices[:, 0, 2] / 10, matrices[:, 1, 2] / 20
    assert (across * down).min() >= 0.6 - 1e-12
    assert 0.75 < (across * down).mean() < 0.85
    assert min(left.min(), top.min()) >= 0
    assert max((left + across).max(), (top + down).max()) <= 1 + 1e-12
    assert (across / down).min() > 0.75 - 1e-12
    assert (across / down).max() < 4 / 3 + 1e-12
    assert (across / down).min() < 0.8
