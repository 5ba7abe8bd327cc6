"""Files of images: links out of the folder are refused, damaged, impossible and unusual files named or read as they are meant."""

import re
import time
import zipfile

import numpy as np
import pytest
from PIL import Image

from fedlib.data import check_files, load
from tests.data.layouts import save_image


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


def pixels(folder, image, **options):
    """The upper left pixel of ``image`` as it comes back from a file."""
    (folder / "PACS" / "photo" / "dog").mkdir(parents=True)
    image.save(folder / "PACS" / "photo" / "dog" / "0.png", **options)
    return load("pacs", folder, size=image.width).images[0, :, 0, 0].tolist()


def test_sixteen_bits_are_scaled(tmp_path):
    assert pixels(tmp_path, Image.fromarray(np.full((4, 4), 200 * 257, np.uint16))) == [200, 200, 200]


def test_a_smaller_image_is_the_mean_of_a_larger_one(tmp_path):
    """Stripes of one pixel become grey, where single pixels would be all black or all white."""
    save_image(tmp_path / "PACS" / "photo" / "dog" / "0.png", (0, 0, 0))
    Image.fromarray(np.tile(np.array([0, 255], np.uint8), (16, 8))).save(tmp_path / "PACS" / "photo" / "dog" / "0.png")
    image = load("pacs", tmp_path, size=4).images[0].astype(float)
    assert image[:, 1:3, 1:3] == pytest.approx(128, abs=8)


def test_a_palette_keeps_its_colours(tmp_path):
    assert pixels(tmp_path, Image.new("RGB", (4, 4), (200, 20, 30)).quantize(4)) == [200, 20, 30]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_what_could_be_transparent_and_is_not_is_read_as_it_is(tmp_path, mode):
    assert pixels(tmp_path, Image.new(mode, (4, 4), (90, 255) if mode == "LA" else (90, 90, 90, 255))) == [90, 90, 90]


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_is_put_on_white_with_a_warning(tmp_path, mode):
    clear = Image.new("P" if mode == "P" else mode, (4, 4), 0)
    with pytest.warns(UserWarning, match=r"1 of 1 images are transparent and were placed on white, first .*0\.png"):
        assert pixels(tmp_path, clear, **({"transparency": 0} if mode == "P" else {})) == [255, 255, 255]


IMAGES, LABELS = np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 1, 2, 1])


def packed(path, **changes):
    arrays = {"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES, "y_test": LABELS} | changes
    np.savez_compressed(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def with_header(path, header):
    """An .npz whose x_train has another header over the same few bytes."""
    packed(path)
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\0" * 64
    with zipfile.ZipFile(path, "w") as file:
        for name, kept in members.items():
            file.writestr(name, content if name == "x_train.npy" else kept)
    return path


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"{'descr': '|u1', 'fortran_order': False, 'shape': (211106232532992,), }\n", "asks for 211,106,232,532,992 bytes, 64 are there"),
        (b"{'descr': '|u1', 'fortran_order': False, 'shape': (10**9,", "x"),
        (b"(((((((('", "x"),
        (b"\xff\xfe garbage \x00", "x"),
    ],
)
def test_a_header_that_cannot_be_true(tmp_path, header, message):
    """Neither a MemoryError nor what Python says of text that it cannot parse."""
    path = with_header(tmp_path / "a.npz", header)
    with pytest.raises(ValueError, match=re.escape(message if message != "x" else "a.npz: ")):
        load(str(path))
    with pytest.raises(ValueError, match=re.escape("a.npz: ")):
        check_files([str(path)])


def test_a_file_that_unpacks_to_a_thousand_times_its_size_is_not_read(tmp_path):
    path = packed(tmp_path / "bomb.npz", x_train=np.zeros((300_000, 32, 32), np.uint8), y_train=np.zeros(300_000, np.int8))
    start = time.process_time()
    with pytest.raises(ValueError, match=r"unpack to .* not read"):
        load(str(path))
    assert time.process_time() - start < 1


def test_class_names_and_labels_of_a_users_file(tmp_path):
    assert load(str(packed(tmp_path / "a.npz"))).classes == ("0", "1", "2")
    for labels in (np.array([0, 1, 3, 1]), np.array([0, 1, 10**7, 2])):
        with pytest.raises(ValueError, match=r"no image has label [23], though labels go up to"):
            load(str(packed(tmp_path / "b.npz", y_train=labels, y_test=np.array([0, 0, 1, 1]))))
    with pytest.raises(ValueError, match="class name 'cat' occurs 2 times"):
        load(str(packed(tmp_path / "c.npz", classes=np.array(["cat", "dog", "cat"]))))
    # A class without images is none of these faults where it has a name.
    named = load(str(packed(tmp_path / "d.npz", classes=np.array(["cat", "dog", "bird", "fish"]))))
    assert named.classes == ("cat", "dog", "bird", "fish")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, "no y_test; the file must hold"),
        ({"x_train": IMAGES.astype(np.float32)}, "x_train must be uint8"),
        ({"classes": np.array("cat")}, "classes must be a list of names"),
        ({"x_test": IMAGES[:, :4]}, "must hold images of one shape"),
        ({"y_train": LABELS[:3]}, r"y_train must be integers \[4\]"),
    ],
)
def test_wrong_arrays_are_found_without_reading_them(tmp_path, monkeypatch, changes, message):
    packed(tmp_path / "cifar10.npz", **changes)
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("the file was read"))
    with pytest.raises(ValueError, match=message):
        check_files(["cifar10_jpeg", "digits"], tmp_path)
    with pytest.raises(ValueError, match=message):
        check_files([str(tmp_path / "cifar10.npz")])


def test_absent_files_pass_and_absent_paths_do_not(tmp_path):
    check_files(["cifar10", "digits5_fedbn", "pacs", "none"], tmp_path)
    with pytest.raises(ValueError, match=r"a name that ends in \.npz is taken as a path"):
        check_files([str(tmp_path / "mine.npz")])


def test_a_set_without_some_of_its_domains_is_refused(tmp_path):
    for domain in ("art_painting", "cartoon", "photo"):
        save_image(tmp_path / "PACS" / domain / "dog" / "0.png", (1, 1, 1))
    with pytest.raises(ValueError, match=r"PACS has no sketch: complete or rename its folders"):
        check_files(["pacs"], tmp_path)
    save_image(tmp_path / "PACS" / "sketch" / "dog" / "0.png", (1, 1, 1))
    check_files(["pacs", "officehome"], tmp_path)
