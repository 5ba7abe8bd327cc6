"""Torchvision's layouts: pixels, labels and groups arrive in place; batches without the published sum are refused."""

import bz2
import hashlib
import pickle

import numpy as np
import pytest
import torchvision
from scipy.io import savemat

from fedlib.data import load, sources_torchvision
from fedlib.data.sources_torchvision import SUPERCLASSES
from tests.data.layouts import Trap, pixels, save_npz


def test_npz(tmp_path):
    x, y = save_npz(tmp_path / "cifar10.npz", note=np.array("re-encoded"))
    data = load("cifar10", tmp_path)
    np.testing.assert_array_equal(data.images, x.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(data.labels, y)
    assert data.is_test.tolist() == [False] * 6 + [True] * 4
    assert (data.stand_in, data.classes[9]) == ("", "truck")
    copy = load("cifar10_jpeg", tmp_path)
    assert (copy.name, copy.stand_in) == ("cifar10_jpeg", "CIFAR-10, JPEG-coded copy")
    assert copy.fingerprint() == data.fingerprint()
    save_npz(tmp_path / "cifar10_jpeg.npz", 2, 1)
    assert len(load("cifar10_jpeg", tmp_path)) == 3


def test_the_jpeg_copy_is_not_taken_for_the_official_images(tmp_path, monkeypatch):
    save_npz(tmp_path / "cifar10.npz")
    with np.load(tmp_path / "cifar10.npz") as file:
        first = file["x_test"].transpose(0, 3, 1, 2)[:100]
    monkeypatch.setattr(sources_torchvision, "JPEG_COPY", hashlib.sha256(first.tobytes()).hexdigest())
    with pytest.raises(ValueError, match="its name is cifar10_jpeg"):
        load("cifar10", tmp_path)
    assert load("cifar10_jpeg", tmp_path).name == "cifar10_jpeg"


def test_the_copy_is_known_by_its_sum():
    try:
        data = load("cifar10_jpeg")
    except FileNotFoundError as error:
        pytest.skip(f"its images are not here: {error}")
    assert hashlib.sha256(data.images[data.is_test][:100].tobytes()).hexdigest() == sources_torchvision.JPEG_COPY


def test_batches_without_the_published_sum_are_not_opened(tmp_path):
    (tmp_path / "cifar-10-batches-py").mkdir()
    for file, _ in [*torchvision.datasets.CIFAR10.train_list, *torchvision.datasets.CIFAR10.test_list]:
        (tmp_path / "cifar-10-batches-py" / file).write_bytes(pickle.dumps(Trap()))
    with pytest.raises(FileNotFoundError, match="intact batches"):
        load("cifar10", tmp_path)


def official_cifar(monkeypatch, kind, folder, batches, meta):
    """Write pickled batches as the CIFAR page has them and tell torchvision's class their sums."""

    def write(file, content):
        folder.mkdir(exist_ok=True)
        (folder / file).write_bytes(pickle.dumps(content))
        return [file, hashlib.md5((folder / file).read_bytes()).hexdigest()]

    lists = {part: [write(file, content) for file, content in files.items()] for part, files in batches.items()}
    monkeypatch.setattr(kind, "train_list", lists["train"])
    monkeypatch.setattr(kind, "test_list", lists["test"])
    file, md5 = write(kind.meta["filename"], meta)
    monkeypatch.setattr(kind, "meta", {**kind.meta, "filename": file, "md5": md5})


def test_cifar10_batches(tmp_path, monkeypatch):
    x = pixels(6, 3 * 32 * 32)
    names = ["airplane", "automobile"]
    train = {f"data_batch_{i}": {"data": x[2 * i - 2 : 2 * i], "labels": [0, 1]} for i in (1, 2)}
    batches = {"train": train, "test": {"test_batch": {"data": x[4:], "labels": [1, 1]}}}
    official_cifar(monkeypatch, torchvision.datasets.CIFAR10, tmp_path / "cifar-10-batches-py", batches, {"label_names": names})
    data = load("cifar10", tmp_path)
    np.testing.assert_array_equal(data.images, x.reshape(6, 3, 32, 32))
    assert data.labels.tolist() == [0, 1, 0, 1, 1, 1]
    assert data.is_test.sum() == 2


def test_cifar100_superclasses(tmp_path, monkeypatch):
    fine = sorted(name for members in SUPERCLASSES.values() for name in members.split())
    assert len(set(fine)) == 100
    x = pixels(3, 3 * 32 * 32)
    wanted = ["apple", "whale", "tractor"]
    content = {"data": x[:2], "fine_labels": [fine.index(name) for name in wanted[:2]]}
    batches = {"train": {"train": content}, "test": {"test": {"data": x[2:], "fine_labels": [fine.index("tractor")]}}}
    official_cifar(monkeypatch, torchvision.datasets.CIFAR100, tmp_path / "cifar-100-python", batches, {"fine_label_names": fine})
    data = load("cifar100", tmp_path)
    assert [data.classes[label] for label in data.labels] == wanted
    assert [data.group_names[group] for group in data.groups] == ["fruit_and_vegetables", "aquatic_mammals", "vehicles_2"]
    assert data.groups.tolist() == [4, 0, 19]


@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST"), ("fashion_mnist", "FashionMNIST")])
def test_idx_files(name, folder, tmp_path):
    raw = tmp_path / folder / "raw"
    raw.mkdir(parents=True)
    x = pixels(5, 28, 28)
    for part, images, labels in (("train", x[:3], [7, 0, 9]), ("t10k", x[3:], [1, 2])):
        header = b"\0\0\x08\x03" + np.array(images.shape, ">i4").tobytes()
        (raw / f"{part}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01" + np.array([len(labels)], ">i4").tobytes() + bytes(labels))
    data = load(name, tmp_path)
    np.testing.assert_array_equal(data.images[:, 0], x)
    assert data.labels.tolist() == [7, 0, 9, 1, 2]
    assert data.is_test.tolist() == [False] * 3 + [True] * 2
    assert len(data.classes) == 10


def test_svhn(tmp_path, monkeypatch):
    x = pixels(32, 32, 3, 4)
    split_list = dict(torchvision.datasets.SVHN.split_list)
    for part, images, labels in (("train", x[..., :2], [10, 3]), ("test", x[..., 2:], [9, 10])):
        file = tmp_path / f"{part}_32x32.mat"
        savemat(file, {"X": images, "y": np.array(labels)[:, None]})
        split_list[part] = [*split_list[part][:2], hashlib.md5(file.read_bytes()).hexdigest()]
    monkeypatch.setattr(torchvision.datasets.SVHN, "split_list", split_list)
    data = load("svhn", tmp_path)
    np.testing.assert_array_equal(data.images, x.transpose(3, 2, 0, 1))
    assert data.labels.tolist() == [0, 3, 9, 0]


def test_usps(tmp_path):
    for file, label in (("usps.bz2", 10), ("usps.t.bz2", 1)):
        line = f"{label} " + " ".join(f"{i + 1}:{-1 if i < 128 else 1}" for i in range(256)) + " \n"
        (tmp_path / file).write_bytes(bz2.compress(line.encode()))
    data = load("usps", tmp_path)
    assert data.labels.tolist() == [9, 0]
    assert (data.images[:, :, :8] == 0).all()
    assert (data.images[:, :, 8:] == 255).all()
