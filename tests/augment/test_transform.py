import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlib.augment.transform import Transform, transform_for


def images(n, height=6, width=5, channels=2):
    return torch.randint(1, 256, (n, channels, height, width), generator=torch.Generator().manual_seed(n)).to(torch.uint8)


def plainly_augmented(image, top, left, flip, pad):
    """One image through NumPy: pad with black, crop, flip."""
    padded = np.pad(image.numpy(), ((0, 0), (pad, pad), (pad, pad)))
    crop = padded[:, top : top + image.shape[1], left : left + image.shape[2]]
    return crop[..., ::-1] if flip else crop


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 7), st.integers(0, 3), st.booleans(), st.sampled_from(["batch", "sample"]), st.integers(0, 2**20))
def test_augmentation_equals_one_image_at_a_time(n, pad, flip, augment, seed):
    transform = Transform((0.5,) * 2, (0.5,) * 2, augment, pad=pad, flip=flip)
    batch, draws = images(n), transform.draws(n, torch.Generator().manual_seed(seed))
    assert len(draws) == (n if augment == "sample" else 1)
    assert draws[:, :2].min() >= 0
    assert draws[:, :2].max() <= 2 * pad
    assert flip or draws[:, 2].max() == 0
    result = transform.augmented(batch, draws)
    for image, out, (top, left, turned) in zip(batch, result, draws.expand(n, 3).tolist(), strict=True):
        np.testing.assert_array_equal(out.numpy(), plainly_augmented(image, top, left, turned, pad))


def test_every_offset_and_both_directions_occur():
    transform = Transform((0.5,), (0.5,), "sample", pad=2)
    draws = transform.draws(2000, torch.Generator().manual_seed(0))
    counts = [torch.bincount(draws[:, i]) for i in range(3)]
    assert [len(c) for c in counts] == [5, 5, 2]
    assert all((c - 2000 / len(c)).abs().max() < 5 * (2000 / len(c)) ** 0.5 for c in counts)


def test_none_leaves_images_alone_and_draws_nothing():
    transform, generator = Transform((0.5,) * 2, (0.5,) * 2, "none"), torch.Generator().manual_seed(0)
    before = generator.get_state()
    batch = images(3)
    assert torch.equal(transform.augmented(batch, transform.draws(3, generator)), batch)
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normalise(dtype):
    transform = Transform((0.5, 0.25), (0.5, 0.1))
    out = transform.normalise(torch.tensor([[0, 255]], dtype=torch.uint8).view(1, 2, 1, 1), dtype)
    torch.testing.assert_close(out, torch.tensor([-1.0, 7.5], dtype=dtype).view(1, 2, 1, 1))


def test_the_input_is_not_changed():
    transform, batch = Transform((0.5,) * 2, (0.5,) * 2, "sample"), images(4)
    before = batch.clone()
    transform.normalise(transform.augmented(batch, transform.draws(4, torch.Generator().manual_seed(1)))).mul_(2)
    assert torch.equal(batch, before)


def test_known_data_sets():
    assert transform_for("cifar10_jpeg", 3).mean == (0.4914, 0.4822, 0.4465)
    assert transform_for("cifar100", 3).mean != transform_for("cifar10", 3).mean
    assert transform_for("cifar10", 3).flip
    digits = transform_for("digits", 1, "none")
    assert (digits.mean, digits.std, digits.flip, digits.augment) == ((0.5,), (0.5,), False, "none")


@pytest.mark.parametrize("bad", [{"augment": "per_batch"}, {"std": (0.5, 0.5)}, {"std": (0.0,)}])
def test_bad_fields(bad):
    with pytest.raises(ValueError):
        Transform(**{"mean": (0.5,), "std": (0.5,)} | bad)
