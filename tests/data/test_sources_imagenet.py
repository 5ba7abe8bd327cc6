"""ImageNet's three numberings of its classes meet in the right labels."""

import numpy as np
import pytest

from fedlib.data import load, sources_imagenet
from tests.data.layouts import pixels, save_image


@pytest.fixture
def imagenet(tmp_path):
    """1,000 class ids whose batch numbers run against their alphabetical order; returns the ids in alphabetical order."""
    ids = [f"n{i:08d}" for i in range(1000)]
    lines = [f"{wnid} {1000 - place} name_{place}" for place, wnid in enumerate(ids)]
    (tmp_path / "map_clsloc.txt").write_text("\n".join(reversed(lines)) + "\n")
    return ids


def test_imagenet_indices():
    assert len(set(sources_imagenet.INDICES)) == 86
    assert list(sources_imagenet.INDICES) == sorted(sources_imagenet.INDICES)


def test_imagenet32_batches(tmp_path, imagenet):
    folder = tmp_path / "Imagenet32_train_npz"
    folder.mkdir()
    x = pixels(4, 3072)
    # Alphabetical places 6 and 988 are labels 0 and 85; place 7 is none of the 86. Batch 10 comes after batch 2.
    np.savez(folder / "train_data_batch_10.npz", data=x[3:], labels=np.array([1000 - 11]))
    np.savez(folder / "train_data_batch_2.npz", data=x[:3], labels=np.array([1000 - 988, 1000 - 7, 1000 - 6]))
    data = load("imagenet32", tmp_path)
    assert data.labels.tolist() == [85, 0, 1]
    np.testing.assert_array_equal(data.images, x[[0, 2, 3]].reshape(3, 3, 32, 32))
    assert (data.classes[0], data.classes[85]) == (imagenet[6], imagenet[988])


@pytest.mark.parametrize(("name", "folder"), [("imagenet_a", "imagenet-a"), ("imagenet_r", "imagenet-r")])
def test_imagenet_shifts(name, folder, tmp_path, imagenet):
    for place in (988, 7, 11):
        save_image(tmp_path / folder / imagenet[place] / "0.png", (place % 256, 0, 0), size=(50, 40))
    data = load(name, tmp_path)
    assert data.images.shape == (2, 3, 32, 32)
    assert data.labels.tolist() == [1, 85]
    assert data.images[:, 0, 0, 0].tolist() == [11, 988 % 256]


def test_imagenet_v2_folders_are_numbers(tmp_path, imagenet):
    base = tmp_path / "imagenetv2-matched-frequency-format-val"
    for place in (6, 11, 22, 100, 105, 988):
        save_image(base / str(place) / "0.png", (place % 256, 0, 0))
    data = load("imagenet_v2", tmp_path)
    assert data.labels.tolist() == [0, 1, 3, 15, 85]
    assert data.images[:, 0, 0, 0].tolist() == [6, 11, 22, 105, 988 % 256]
