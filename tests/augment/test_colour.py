import pytest
import torch
from torchvision.transforms.v2 import functional as reference

from fedlib.augment import colour
from fedlib.tools.seeding import generator


def pictures(n=8, channels=3):
    images = torch.rand(n, channels, 9, 7, generator=generator(0, "colour"), dtype=torch.float64)
    images[0] = 0.5  # no chroma
    images[1, :, :, :3] = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)[:channels, None, None]
    return images


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("ours", "theirs", "amounts"),
    [
        (colour.brightness, reference.adjust_brightness, (0.0, 0.6, 1.0, 1.4)),
        (colour.contrast, reference.adjust_contrast, (0.0, 0.6, 1.0, 1.4)),
        (colour.saturation, reference.adjust_saturation, (0.0, 0.6, 1.0, 1.4)),
        (colour.hue, reference.adjust_hue, (-0.5, -0.1, 0.0, 0.3)),
    ],
)
def test_equals_torchvision(ours, theirs, amounts, channels):
    images = pictures(channels=channels)
    amounts = torch.tensor(amounts * 2, dtype=torch.float64)
    want = torch.stack([theirs(image, amount.item()) for image, amount in zip(images, amounts, strict=True)])
    # torchvision's weight of red is 0.2989
    torch.testing.assert_close(ours(images, amounts), want, atol=2e-4, rtol=0)


def test_hue_of_a_third_of_the_circle_rotates_the_channels():
    images = pictures()
    torch.testing.assert_close(colour.hue(images, torch.full((8,), 1 / 3)), images.roll(1, dims=1), atol=1e-6, rtol=0)


def test_jitter_applies_each_image_s_own_order():
    images, uniform = pictures(), torch.rand(8, 8, generator=generator(0), dtype=torch.float64)
    strengths = (0.4, 0.4, 0.4, 0.1)
    got = colour.jitter(images, uniform, strengths)
    for i in range(8):
        one = images[i : i + 1]
        for kind in uniform[i, 4:].argsort().tolist():
            centre = 0 if kind == 3 else 1
            amount = centre + strengths[kind] * (2 * uniform[i, kind] - 1)
            one = colour.ADJUSTMENTS[kind](one, amount[None])
        torch.testing.assert_close(got[i], one[0], atol=1e-12, rtol=0)


def test_jitter_leaves_the_others_and_the_input_alone():
    images, uniform = pictures(), torch.rand(8, 8, generator=generator(0), dtype=torch.float64)
    before, chosen = images.clone(), torch.arange(8) % 2 == 0
    got = colour.jitter(images, uniform, (0.4, 0.4, 0.4, 0.1), chosen)
    assert torch.equal(images, before)
    assert torch.equal(got[~chosen], images[~chosen])
    assert (got[chosen] != images[chosen]).flatten(1).any(1).all()
    assert torch.equal(colour.jitter(images, uniform, (0.0, 0.0, 0.0, 0.0)), images)
