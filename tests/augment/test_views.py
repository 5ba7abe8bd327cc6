import functools

import numpy as np
import pytest
import torch
from torchvision.transforms.v2 import functional as reference

from fedlib.augment import views
from fedlib.augment.crop import pad_crop_flip
from fedlib.augment.draws import uniforms
from fedlib.tools.seeding import generator

MAKERS = {
    "crop_flip": functools.partial(views.crop_flip_views, n_views=2),
    "moco": views.moco_views,
    **{kind: functools.partial(views.contrastive_views, kind=kind) for kind in views.CONTRASTIVE},
}


def pixels(n, channels, size=16):
    return torch.randint(0, 256, (n, channels, size, size), generator=generator(0, "pixels"), dtype=torch.uint8)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", MAKERS)
def test_shape_range_and_independence(name, channels):
    images, make = pixels(6, channels), MAKERS[name]
    before = images.clone()
    out = make(images, generator=generator(0))
    assert out.shape == (6, 2, channels, 16, 16)
    assert out.dtype == torch.float32
    assert out.min() >= 0
    assert out.max() <= 1 + 1e-6
    assert torch.equal(images, before)
    assert (out[:, 0] != out[:, 1]).flatten(1).any(1).all()
    assert torch.equal(make(images, generator=generator(0)), out)
    torch.testing.assert_close(make(images[:2], generator=generator(0)), out[:2], atol=1e-6, rtol=0)
    own = make(images, generator=[generator(0, i) for i in range(6)])
    torch.testing.assert_close(make(images[4:5], generator=[generator(0, 4)]), own[4:5], atol=1e-6, rtol=0)


def test_rotations():
    images, labels = pixels(8, 3), torch.tensor([0, 1, 2, 3, 3, 2, 1, 0])
    want = np.stack([np.rot90(image, k, axes=(1, 2)) for image, k in zip(images.numpy(), labels.tolist(), strict=True)])
    np.testing.assert_array_equal(views.rotations(images, labels).numpy(), want)
    with pytest.raises(ValueError, match="16 x 8"):
        views.rotations(images[..., :8], labels)


def test_crop_flip_views_are_crops_of_the_mirrored_image():
    images = pixels(3, 1)
    u = uniforms(generator(0), 3, 4, 3)
    copies = images.repeat_interleave(4, dim=0)
    want = pad_crop_flip(copies, (u[:, 0] * 9).long(), (u[:, 1] * 9).long(), u[:, 2] < 0.5, 4, "symmetric")
    got = views.crop_flip_views(images, 4, generator(0))
    assert torch.equal((got * 255).round().to(torch.uint8).flatten(0, 1), want)


def test_blur_equals_torchvision():
    images = torch.rand(4, 3, 16, 20, generator=generator(0), dtype=torch.float64)
    sigmas = torch.tensor([0.1, 0.7, 1.5, 2.0], dtype=torch.float64)
    want = torch.stack([reference.gaussian_blur(i, [13, 13], [s.item()]) for i, s in zip(images, sigmas, strict=True)])
    torch.testing.assert_close(views.gaussian_blur(images, sigmas), want, atol=1e-7, rtol=0)


def test_blur_of_images_smaller_than_its_radius_keeps_constants():
    flat = torch.full((1, 1, 4, 4), 0.3)
    torch.testing.assert_close(views.gaussian_blur(flat, torch.tensor([2.0])), flat)


def test_moco_steps_occur_as_often_as_stated():
    """On a flat coloured image without margin effects grey shows as equal channels, and no step but jitter and grey changes the centre."""
    images = torch.tensor([180, 90, 60], dtype=torch.uint8)[None, :, None, None].expand(750, 3, 32, 32).contiguous()
    centre = views.moco_views(images, generator(0)).flatten(0, 1)[:, :, 16, 16]
    grey = (centre - centre.mean(1, keepdim=True)).abs().amax(1) < 1e-4
    plain = (centre * 255 - torch.tensor([180.0, 90.0, 60.0])).abs().amax(1) < 1e-2
    assert abs(grey.double().mean() - 0.2) < 0.04
    assert abs(plain.double().mean() - 0.2 * 0.8) < 0.04


def test_contrastive_families():
    flat = torch.full((200, 1, 32, 32), 100, dtype=torch.uint8)
    digits, objects, cifar = (views.contrastive_views(flat, generator(0), kind=k)[:, 0, 0] for k in ("digits", "objects", "cifar"))
    assert (digits[:, 0, 0] > 0.1).all()  # a resized crop never leaves the image
    corners = objects[:, 0, 0] < objects[:, 16, 16] - 0.1  # a rotation uncovers the corner, contrast may lift its black
    assert 0.5 < corners.double().mean() < 1
    edges = (cifar[:, 0] - cifar[:, 16, 16, None]).abs().amax(1) > 0.1  # eight of nine crops show some padding, half above or beside
    assert 0.5 < edges.double().mean() < 0.95
    with pytest.raises(ValueError, match="Did you mean 'digits'"):
        views.contrastive_views(flat, generator(0), kind="digit")


def test_moco_views_need_uint8():
    with pytest.raises(ValueError, match="before normalisation"):
        views.moco_views(torch.rand(1, 3, 8, 8), generator(0))
