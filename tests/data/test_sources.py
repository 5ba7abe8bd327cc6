"""Loaders on tiny files in the official layouts: pixels, labels and groups arrive in place; absent or hostile files are refused."""

import bz2
import hashlib
import json
import pickle

import numpy as np
import pytest
import torchvision
from PIL import Image
from scipy.io import savemat

from fedlib.data import DOWNLOADABLE, FILES, load, sources_imagenet
from fedlib.data.sources_torchvision import SUPERCLASSES

RNG_SEED = 5


def pixels(*shape):
    return np.random.default_rng(RNG_SEED).integers(0, 256, shape, dtype=np.uint8)


def save_image(path, colour, size=(12, 8)):
    """A one-colour image, losslessly if the name ends in .png."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def colour_of(image):
    return tuple(int(v) for v in np.rint(image.mean(axis=(1, 2))))


def save_npz(path, train=6, test=4, shape=(32, 32, 3), **extra):
    path.parent.mkdir(parents=True, exist_ok=True)
    x = pixels(train + test, *shape)
    y = np.arange(train + test) % 10
    np.savez(path, x_train=x[:train], y_train=y[:train, None], x_test=x[train:], y_test=y[train:], **extra)
    return x, y


@pytest.mark.parametrize("name", [*DOWNLOADABLE, *FILES])
def test_absent_data_name_folder_file_and_remedy(name, tmp_path):
    options = {"kind": "fog"} if name == "cifar10_c" else {}
    with pytest.raises(FileNotFoundError) as error:
        load(name, tmp_path, **options)
    message = str(error.value)
    assert f"data set {name!r}: no " in message
    assert str(tmp_path) in message
    assert "http" in message or "load(" in message.split("Another folder")[0] or "Pack" in message


def test_root_is_the_argument_then_the_environment_then_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDLIB_DATA", raising=False)
    save_npz(tmp_path / "data" / "cifar10.npz", 3, 1)
    assert len(load("cifar10")) == 4
    save_npz(tmp_path / "env" / "cifar10.npz", 3, 2)
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path / "env"))
    assert len(load("cifar10")) == 5
    save_npz(tmp_path / "arg" / "cifar10.npz", 3, 3)
    assert len(load("cifar10", tmp_path / "arg")) == 6


def test_unknown_name_suggests_the_closest():
    with pytest.raises(ValueError, match=r"Did you mean 'cifar100'\?.*'pacs'"):
        load("cifar-100")


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


def test_npz_of_the_user(tmp_path):
    x, _ = save_npz(tmp_path / "mine.npz", shape=(9, 7), classes=np.array(list("abcdefghij")))
    data = load(str(tmp_path / "mine.npz"))
    assert (data.name, data.images.shape, data.classes[:2]) == ("mine", (10, 1, 9, 7), ("a", "b"))
    np.testing.assert_array_equal(data.images[:, 0], x)
    with pytest.raises(FileNotFoundError, match=r"other\.npz"):
        load(str(tmp_path / "other.npz"))
    np.savez(tmp_path / "half.npz", x_train=x)
    with pytest.raises(ValueError, match=r"half.npz: no y_train, x_test, y_test"):
        load(str(tmp_path / "half.npz"))
    (tmp_path / "torn.npz").write_bytes((tmp_path / "mine.npz").read_bytes()[:200])
    with pytest.raises(ValueError, match=r"torn\.npz"):
        load(str(tmp_path / "torn.npz"))


class Trap:
    """Unpickling an instance raises an error that no loader may let happen."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was opened",))


def test_pickles_are_not_opened(tmp_path):
    trap = np.array([Trap()], dtype=object)
    np.savez(tmp_path / "cifar10.npz", x_train=trap, y_train=trap, x_test=trap, y_test=trap)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        load("cifar10", tmp_path)
    for part in ("data", "labels"):
        np.save(tmp_path / f"cifar10.1_v6_{part}.npy", trap)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        load("cifar10_1", tmp_path)
    (tmp_path / "cifar-10-batches-py").mkdir()
    for file, _ in [*torchvision.datasets.CIFAR10.train_list, *torchvision.datasets.CIFAR10.test_list]:
        (tmp_path / "cifar-10-batches-py" / file).write_bytes(pickle.dumps(Trap()))
    (tmp_path / "cifar10.npz").unlink()
    with pytest.raises(FileNotFoundError, match="intact batches"):
        load("cifar10", tmp_path)
    (tmp_path / "Digits5" / "MNIST" / "partitions").mkdir(parents=True)
    (tmp_path / "Digits5" / "MNIST" / "partitions" / "train_part0.pkl").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ValueError, match=r"train_part0.pkl is a pickle and is not read.*MNIST.npz"):
        load("digits5_fedbn", tmp_path)


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


@pytest.mark.parametrize("folder", ["", "CIFAR-10.1"])
def test_cifar10_1(folder, tmp_path):
    (tmp_path / folder).mkdir(exist_ok=True)
    x = pixels(4, 32, 32, 3)
    np.save(tmp_path / folder / "cifar10.1_v6_data.npy", x)
    np.save(tmp_path / folder / "cifar10.1_v6_labels.npy", np.array([1, 0, 3, 9], dtype=np.int32))
    data = load("cifar10_1", tmp_path)
    np.testing.assert_array_equal(data.images, x.transpose(0, 3, 1, 2))
    assert data.labels.tolist() == [1, 0, 3, 9]


def test_cifar10_c(tmp_path):
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    x = pixels(20, 32, 32, 3)
    np.save(folder / "fog.npy", x)
    np.save(folder / "labels.npy", np.tile([3, 1, 4, 1], 5))
    data = load("cifar10_c", tmp_path, kind="fog", severity=2)
    np.testing.assert_array_equal(data.images, x[4:8].transpose(0, 3, 1, 2))
    assert data.labels.tolist() == [3, 1, 4, 1]
    with pytest.raises(ValueError, match="Did you mean 'fog'"):
        load("cifar10_c", tmp_path, kind="frog")
    with pytest.raises(ValueError, match=r"severity must be one of 1\.\.5, got 0"):
        load("cifar10_c", tmp_path, kind="fog", severity=0)


def test_femnist(tmp_path):
    data = tmp_path / "femnist" / "data"

    def write(folder, file, users):
        (data / folder).mkdir(parents=True, exist_ok=True)
        user_data = {
            name: {"x": [[shade] * 784 for shade, _ in samples], "y": [label for _, label in samples]} for name, samples in users.items()
        }
        content = {"users": list(users), "num_samples": [len(samples) for samples in users.values()], "user_data": user_data}
        (data / folder / file).write_text(json.dumps(content))

    write("all_data", "all_data_0.json", {"f2": [(1.0, 61)], "f0": [(0.0, 0), (0.2, 10)]})
    write("all_data", "all_data_1.json", {"f1": [(0.6, 36)]})
    merged = load("femnist", tmp_path)
    assert merged.group_names == ("f0", "f1", "f2")
    assert merged.groups.tolist() == [0, 0, 1, 2]
    assert [merged.classes[label] for label in merged.labels] == ["0", "A", "a", "z"]
    assert merged.images[:, 0, 5, 5].tolist() == [0, 51, 153, 255]
    assert merged.is_test is None
    write("train", "a.json", {"f0": [(0.0, 0)], "f1": [(0.6, 36)]})
    write("test", "b.json", {"f0": [(0.2, 10)]})
    split = load("femnist", tmp_path)
    assert (split.groups.tolist(), split.is_test.tolist()) == ([0, 0, 1], [False, True, False])


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


def test_links_out_of_the_folder_are_refused(tmp_path):
    save_image(tmp_path / "private" / "dog" / "secret.png", (1, 1, 1))
    save_image(tmp_path / "PACS" / "photo" / "dog" / "0.png", (1, 1, 1))
    link = tmp_path / "PACS" / "photo" / "dog" / "1.png"
    link.symlink_to(tmp_path / "private" / "dog" / "secret.png")
    with pytest.raises(ValueError, match="leads out of"):
        load("pacs", tmp_path)
    link.unlink()
    (tmp_path / "PACS" / "sketch").symlink_to(tmp_path / "private")
    with pytest.raises(ValueError, match="leads out of"):
        load("pacs", tmp_path)
    # The data set's own folder may be a link: that is how large sets are kept on another disk.
    (tmp_path / "PACS" / "sketch").unlink()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "PACS").symlink_to(tmp_path / "PACS")
    assert len(load("pacs", tmp_path / "elsewhere")) == 1


def test_damaged_image_is_named(tmp_path):
    save_image(tmp_path / "PACS" / "photo" / "dog" / "0.png", (1, 1, 1))
    (tmp_path / "PACS" / "photo" / "dog" / "1.jpg").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"1\.jpg cannot be read as an image"):
        load("pacs", tmp_path)


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
