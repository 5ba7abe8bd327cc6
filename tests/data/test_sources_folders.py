"""Folders of domains and classes: pixels, labels and groups arrive in place; pickles are refused."""

import pickle

import numpy as np
import pytest

from fedlib.data import load
from fedlib.data.sources_torchvision import CIFAR10
from tests.data.layouts import Trap, colour_of, save_image, save_npz


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_folders_of_cifar10_put_classes_in_turn(suffix, tmp_path):
    counts = {"train": 3, "test": 2}
    for part, n in counts.items():
        for label, name in enumerate(CIFAR10):
            for i in range(n):
                save_image(
                    tmp_path / "cifar10_jpeg" / part / name / f"{i:04}.{suffix}",
                    (20 * label, 40 * i, 0 if part == "train" else 200),
                    (32, 32),
                )
    (tmp_path / "cifar10_jpeg" / ".git").mkdir()
    (tmp_path / "cifar10_jpeg" / "README.md").write_text("not an image")
    save_npz(tmp_path / "cifar10.npz")
    data = load("cifar10_jpeg", tmp_path)
    assert (data.name, data.stand_in, data.classes) == ("cifar10_jpeg", "CIFAR-10, JPEG-coded copy", CIFAR10)
    assert data.labels.tolist() == list(range(10)) * 5
    assert data.is_test.tolist() == [False] * 30 + [True] * 20
    expected = [(20 * label, 40 * i, 0 if part == "train" else 200) for part, n in counts.items() for i in range(n) for label in range(10)]
    np.testing.assert_allclose([colour_of(image) for image in data.images], expected, atol=0 if suffix == "png" else 4)
    # The same streams in one file are the same data set, and the file comes first.
    parts = {"train": ~data.is_test, "test": data.is_test}
    arrays = {f"x_{part}": data.images[of].transpose(0, 2, 3, 1) for part, of in parts.items()}
    np.savez(tmp_path / "cifar10_jpeg.npz", **arrays, **{f"y_{part}": data.labels[of] for part, of in parts.items()})
    assert load("cifar10_jpeg", tmp_path).fingerprint() == data.fingerprint()


@pytest.mark.parametrize(
    ("parts", "names", "side", "message"),
    [
        (["train"], CIFAR10, 32, "all images are in train/: .* put the rest beside it"),
        (["train", "test"], CIFAR10[:9], 32, "32 x 32 images of CIFAR-10's ten classes"),
        (["train", "test"], CIFAR10, 16, "32 x 32 images of CIFAR-10's ten classes"),
    ],
)
def test_folders_that_are_not_cifar10_say_what_is_expected(parts, names, side, message, tmp_path):
    for part in parts:
        for name in names:
            save_image(tmp_path / "cifar10_jpeg" / part / name / "0.png", (0, 0, 0), (side, side))
    with pytest.raises(ValueError, match=message):
        load("cifar10_jpeg", tmp_path)


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
