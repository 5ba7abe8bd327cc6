import numpy as np
import pytest
import torch

from fedlib.core import Samples
from fedlib.data.dataset import Dataset
from fedlib.protocols import shifts


def dataset(n=60, name="tiny", is_test=None):
    labels = np.arange(n) % 3
    images = np.random.default_rng(0).integers(0, 256, (n, 1, 8, 8)).astype(np.uint8)
    return Dataset(name, images, labels, ("a", "b", "c"), is_test=is_test)


def test_pool_is_the_official_training_part_but_for_the_digits():
    is_test = np.arange(60) >= 40
    assert len(shifts.training_pool(dataset(is_test=is_test))) == 40
    assert len(shifts.training_pool(dataset(name="digits", is_test=is_test))) == 60
    assert len(shifts.training_pool(dataset())) == 60


def test_cuts_are_disjoint_and_rounded_as_in_the_code():
    (train, val, test), *_ = shifts.local_cuts([np.arange(2500), np.arange(30)], 0)
    assert (len(train), len(val), len(test)) == (1500, 499, 500)
    assert len(set(train) | set(val) | set(test)) == 2499
    (half, same_val, same_test), *_ = shifts.local_cuts([np.arange(2500), np.arange(30)], 0, 0.5)
    assert half.tolist() == train[:750].tolist()
    assert len(shifts.local_cuts([np.arange(30)], 0, 0.7)[0][0]) == 12, "of 12.6"
    assert (same_val.tolist(), same_test.tolist()) == (val.tolist(), test.tolist())


def test_clients_with_too_few_images_are_refused():
    with pytest.raises(ValueError, match="60 images leave under 10 for a client: lower n_clients=30"):
        shifts.partitioned(dataset(), 30, 0.1, 0)


@pytest.mark.parametrize("size", [15, 17])
def test_natural_shift_falls_back_on_the_official_test_and_says_so(tmp_path, size):
    part, note = shifts.natural_shift(dataset(is_test=np.arange(60) >= 30), "tiny", size, 0, str(tmp_path))
    assert np.bincount(part.labels).tolist() == [5, 5, 5], "balanced, and no more than asked for"
    assert part.is_test.all()
    assert "stand-in" in note
    with pytest.raises(FileNotFoundError, match="no natural-shift set is known for 'tiny'"):
        shifts.natural_shift(dataset(), "tiny", 15, 0, str(tmp_path))


def test_an_absent_natural_shift_is_named_where_nothing_can_stand_in(tmp_path):
    """ImageNet-32 has no official test part: the error names ImageNet-R's file, and no note of a stand-in is made."""
    with pytest.raises(FileNotFoundError, match="imagenet_r"):
        shifts.natural_shift(dataset(), "imagenet32", None, 0, str(tmp_path))


def test_all_of_a_natural_shift(tmp_path):
    part, note = shifts.natural_shift(dataset(is_test=np.arange(60) >= 30), "tiny", None, 0, str(tmp_path))
    assert len(part) == 30
    assert "stand-in" in note


def test_a_natural_shift_that_is_there_needs_no_stand_in(tmp_path):
    official = dataset(is_test=np.arange(60) >= 30)
    assert "stand-in" in shifts.natural_shift(official, "cifar10", None, 0, str(tmp_path))[1]
    np.save(tmp_path / "cifar10.1_v6_data.npy", np.zeros((20, 32, 32, 3), np.uint8))
    np.save(tmp_path / "cifar10.1_v6_labels.npy", np.arange(20) % 10)
    part, note = shifts.natural_shift(official, "cifar10", None, 0, str(tmp_path))
    assert (len(part), note) == (20, "")
    assert shifts.natural_shift(official, "digits", None, 0, None)[1] == ""


def test_corruption_of_an_image_depends_on_its_place_alone():
    data = dataset(12)
    samples = Samples(torch.from_numpy(data.images), torch.from_numpy(data.labels))
    whole, again = (shifts.corrupted(samples, 5, np.random.default_rng(3)) for _ in range(2))
    assert torch.equal(whole.images, again.images)
    assert torch.equal(whole.labels, samples.labels)
    assert (whole.images != samples.images).flatten(1).any(1).float().mean() > 0.8
    other = Samples(samples.images.flip(0), samples.labels)
    assert not torch.equal(shifts.corrupted(other, 5, np.random.default_rng(3)).images.flip(0), whole.images)
