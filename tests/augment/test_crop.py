import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlib.augment.crop import check_images, normalise, pad_crop_flip
from fedlib.augment.transform import Transform
from fedlib.tools.seeding import generator


def pixels(*shape):
    return torch.randint(0, 256, shape, generator=generator(0, "pixels"), dtype=torch.uint8)


def one_by_one(images, tops, lefts, flips, pad, mode):
    """Plain loop with NumPy's padding."""
    out = []
    for image, top, left, flip in zip(images.numpy(), tops.tolist(), lefts.tolist(), flips.tolist(), strict=True):
        margins = ((0, 0), (pad, pad), (pad, pad))
        padded = np.pad(image, margins) if mode == "zero" else np.pad(image, margins, mode="symmetric")
        crop = padded[:, top : top + image.shape[1], left : left + image.shape[2]]
        out.append(crop[:, :, ::-1] if flip else crop)
    return np.stack(out)


@pytest.mark.parametrize("mode", ["zero", "symmetric"])
@settings(deadline=None, max_examples=25)
@given(n=st.integers(1, 6), channels=st.sampled_from([1, 3]), height=st.integers(4, 9), width=st.integers(4, 9), pad=st.integers(0, 4))
def test_equals_the_loop(mode, n, channels, height, width, pad):
    images = pixels(n, channels, height, width)
    tops, lefts, flips = Transform((0.5,), (0.5,), "sample", pad=pad).draws(n, generator(n, "crop")).unbind(-1)
    np.testing.assert_array_equal(
        pad_crop_flip(images, tops, lefts, flips, pad, mode).numpy(), one_by_one(images, tops, lefts, flips, pad, mode)
    )


def test_one_draw_serves_the_whole_batch():
    images = pixels(5, 3, 8, 8)
    for top, left, flip in ((0, 8, 1), (3, 2, 0)):
        single = [torch.tensor([value]) for value in (top, left, flip)]
        each = [draw.expand(5) for draw in single]
        assert torch.equal(pad_crop_flip(images, *single), pad_crop_flip(images, *each))


def test_no_margin_no_flip_is_the_image_and_the_input_stays():
    images = pixels(4, 1, 6, 6)
    before = images.clone()
    centre, never = torch.full((4,), 4), torch.zeros(4, dtype=torch.bool)
    assert torch.equal(pad_crop_flip(images, centre, centre, never), images)
    pad_crop_flip(images, centre, centre, ~never)
    assert torch.equal(images, before)


def test_padding_is_black_before_normalisation():
    images = torch.full((1, 3, 8, 8), 255, dtype=torch.uint8)
    corner = torch.tensor([0])
    out = normalise(pad_crop_flip(images, corner, corner, corner), (0.5, 0.4, 0.2), (0.5, 0.2, 0.1))
    torch.testing.assert_close(out[0, :, 0, 0], torch.tensor([-1.0, -2.0, -2.0]))
    torch.testing.assert_close(out[0, :, 7, 7], torch.tensor([1.0, 3.0, 8.0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normalise(dtype):
    images = pixels(2, 5, 3, 4, 4)
    mean, std = (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)
    want = (images.double() / 255 - torch.tensor(mean).double()[:, None, None]) / torch.tensor(std).double()[:, None, None]
    got = normalise(images, mean, std, dtype)
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), want, atol=1e-6, rtol=0)
    torch.testing.assert_close(normalise(images.to(dtype) / 255, mean, std), got, atol=1e-6, rtol=0)


def test_bad_input():
    images, zero = pixels(3, 3, 6, 6), torch.zeros(3, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"0\.\.8, got 0\.\.9"):
        pad_crop_flip(images, zero + 9, zero, zero)
    with pytest.raises(ValueError, match="3 images need as many draws"):
        pad_crop_flip(images, zero[:2], zero, zero)
    with pytest.raises(ValueError, match="Did you mean 'symmetric'"):
        pad_crop_flip(images, zero, zero, zero, mode="symetric")
    with pytest.raises(ValueError, match="exceeds the image size 6"):
        pad_crop_flip(images, zero, zero, zero, pad=7, mode="symmetric")
    with pytest.raises(ValueError, match="3 channels"):
        normalise(images, (0.5,), (0.5,))
    with pytest.raises(ValueError, match="before normalisation"):
        check_images(images.float())
