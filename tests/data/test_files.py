"""Trees of images: links out of the folder are refused, damaged files named."""

import pytest

from fedlib.data import load
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
