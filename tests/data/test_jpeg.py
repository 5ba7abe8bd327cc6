"""JPEG streams in one array are read as images; damaged ones are named."""

import io

import numpy as np
import pytest
from PIL import Image

from fedlib.data import load


@pytest.fixture
def streams():
    """Five grey images as JPEG streams, the last two of them test images, and what they decode to."""
    encoded = []
    for level in (10, 60, 110, 160, 210):
        buffer = io.BytesIO()
        Image.new("RGB", (32, 32), (level, level, level)).save(buffer, "JPEG")
        encoded.append(buffer.getvalue())
    arrays = {"jpeg": np.frombuffer(b"".join(encoded), np.uint8), "offsets": np.cumsum([0, *map(len, encoded)])}
    return arrays | {"labels": np.array([0, 1, 2, 1, 0]), "is_test": np.array([0, 0, 0, 1, 1], bool), "classes": np.array(["a", "b", "c"])}


def test_jpeg_streams_in_one_array_are_read_as_images(tmp_path, streams):
    np.savez(tmp_path / "cifar10_jpeg.npz", **streams)
    data = load("cifar10_jpeg", tmp_path)
    assert data.images.shape == (5, 3, 32, 32)
    assert data.images[:, 0, 0, 0].tolist() == [10, 60, 110, 160, 210]
    assert data.labels.tolist() == [0, 1, 2, 1, 0]
    assert data.is_test.tolist() == [False, False, False, True, True]
    named = load(str(tmp_path / "cifar10_jpeg.npz"))
    assert named.classes == ("a", "b", "c")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"offsets": np.arange(3)}, r"\(3,\) offsets, \(5,\) labels"),
        ({"jpeg": np.zeros(9999, np.uint8)}, "image 0 cannot be decoded"),
        ({"labels": np.arange(5) / 2}, "cifar10_jpeg.npz: labels and offsets must be integers, got float64"),
        ({"classes": np.array("a")}, "cifar10_jpeg.npz: classes must be a list"),
    ],
)
def test_damaged_streams_are_named(tmp_path, streams, wrong, message):
    np.savez(tmp_path / "cifar10_jpeg.npz", **streams | wrong)
    with pytest.raises(ValueError, match=message):
        load("cifar10_jpeg", tmp_path)


def test_streams_without_labels_are_named(tmp_path, streams):
    np.savez(tmp_path / "cifar10_jpeg.npz", jpeg=streams["jpeg"], offsets=streams["offsets"])
    with pytest.raises(ValueError, match="no labels, is_test beside jpeg"):
        load("cifar10_jpeg", tmp_path)


def test_images_of_another_size_are_refused(tmp_path):
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "JPEG")
    data = np.frombuffer(buffer.getvalue(), np.uint8)
    np.savez(tmp_path / "cifar10_jpeg.npz", jpeg=data, offsets=[0, len(data)], labels=[0], is_test=[False])
    with pytest.raises(ValueError, match=r"must have the shape \(32, 32, 3\), got \(8, 8, 3\)"):
        load("cifar10_jpeg", tmp_path)
