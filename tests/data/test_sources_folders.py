"""Folders of domains and classes: pixels, labels and groups arrive in place; pickles are refused."""

import pickle

import numpy as np
import pytest

from fedlib.data import load
from tests.data.layouts import Trap, colour_of, save_image, save_npz


@pytest.mark.parametrize(
    ("name", "folder"), [("pacs", "PACS"), ("officehome", "OfficeHome"), ("office10", "office_caltech_10"), ("domainnet", "DomainNet")]
)
def test_domain_folders(name, folder, tmp_path):
    save_image(tmp_path / folder / "sketch" / "dog" / "b.png", (1, 2, 3))
    save_image(tmp_path / folder / "sketch" / "dog" / "a.JPG", (90, 90, 90))
    save_image(tmp_path / folder / "photo" / "cat" / "x.png", (7, 8, 9))
    (tmp_path / folder / "photo" / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / folder / "splits").mkdir()
    options = {"classes": ("cat", "dog")} if name == "domainnet" else {}
    data = load(name, tmp_path, size=16, **options)
    assert data.images.shape == (3, 3, 16, 16)
    assert data.name == ("pacs16" if name == "pacs" else name)
    assert (data.classes, data.group_names) == (("cat", "dog"), ("photo", "sketch"))
    assert (data.labels.tolist(), data.groups.tolist()) == ([0, 1, 1], [0, 1, 1])
    assert [colour_of(image) for image in data.images] == [(7, 8, 9), (90, 90, 90), (1, 2, 3)]


def test_domainnet_keeps_the_classes_asked_for(tmp_path):
    for label, class_name in enumerate(("aircraft_carrier", "bird", "zebra")):
        save_image(tmp_path / "DomainNet" / "real" / class_name / "0.png", (label, 0, 0))
    data = load("domainnet", tmp_path, classes=("zebra", "bird"))
    assert (data.classes, data.labels.tolist(), data.images[:, 0, 0, 0].tolist()) == (("zebra", "bird"), [0, 1], [2, 1])
    with pytest.raises(ValueError, match="no class feather, headphones"):
        load("domainnet", tmp_path)


def test_digits5_from_archives_and_folders(tmp_path):
    folder = tmp_path / "Digits5"
    grey, _ = save_npz(folder / "MNIST.npz", 3, 2, (28, 28))
    for domain, side in (("SVHN", 32), ("USPS", 16), ("SynthDigits", 32)):
        save_npz(folder / f"{domain}.npz", 3, 2, (side, side, 3))
    save_npz(folder / "MNIST_M.npz", 3, 2, (28, 28, 3))
    data = load("digits5_fedbn", tmp_path)
    assert data.images.shape == (25, 3, 28, 28)
    assert data.groups.tolist() == np.repeat(np.arange(5), 5).tolist()
    assert data.is_test.tolist() == [False, False, False, True, True] * 5
    np.testing.assert_array_equal(data.images[:5], np.repeat(grey[:, None], 3, axis=1))
    (folder / "USPS.npz").unlink()
    save_image(folder / "USPS" / "4" / "0.png", (9, 9, 9))
    mixed = load("digits5_fedbn", tmp_path, size=32)
    assert mixed.is_test is None
    assert mixed.labels[mixed.groups == 2].tolist() == [4]
    assert colour_of(mixed.images[mixed.groups == 2][0]) == (9, 9, 9)


def test_partitions_in_pickles_are_not_opened(tmp_path):
    (tmp_path / "Digits5" / "MNIST" / "partitions").mkdir(parents=True)
    (tmp_path / "Digits5" / "MNIST" / "partitions" / "train_part0.pkl").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ValueError, match=r"train_part0.pkl is a pickle and is not read.*MNIST.npz"):
        load("digits5_fedbn", tmp_path)
