"""Nothing that the kit reads can run code, and no reader of a folder follows a link out of it."""

import ast
import os

import numpy as np
import pytest
import torch
from PIL import Image

from fedlib.data import load
from fedlib.tools.parameters import PROJECT

SOURCES = sorted((PROJECT / "fedlib").rglob("*.py"))
# Module.function that unpickles, or runs text as code or as a command.
FORBIDDEN = {
    *(
        "pickle.load",
        "pickle.loads",
        "pickle.Unpickler",
        "joblib.load",
        "pd.read_pickle",
        "pandas.read_pickle",
        "dill.load",
        "marshal.loads",
    ),
    *("yaml.load", "yaml.unsafe_load", "yaml.full_load", "os.system", "os.popen", "shelve.open", "torch.jit.load", "torch.hub.load"),
    *("eval", "exec", "compile", "__import__", "input"),
}


def calls(path):
    """(dotted name, keyword arguments, line) of every call in a source file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), {k.arg: ast.unparse(k.value) for k in node.keywords}, node.lineno


def faults(path):
    for name, options, line in calls(path):
        unsafe = name in FORBIDDEN or options.get("shell") == "True" or options.get("allow_pickle", "False") != "False"
        unsafe |= name == "torch.load" and options.get("weights_only") != "True"
        unsafe |= name == "np.load" and options.get("allow_pickle") != "False"
        if unsafe:
            yield f"{path.name}:{line}: {name}({options})"


def test_the_package_calls_nothing_that_runs_what_it_reads():
    assert len(SOURCES) > 100
    # A user's own methods are code, and are run: that is what their parameter is for.
    found = [fault for path in SOURCES for fault in faults(path)]
    assert [fault.split(":")[0] for fault in found] == ["extras.py"] * 2


@pytest.mark.parametrize(
    "line",
    ["torch.load(p)", "np.load(p)", "np.load(p, allow_pickle=True)", "pickle.load(f)", "eval(text)", "subprocess.run(c, shell=True)"],
)
def test_the_search_finds_what_it_looks_for(tmp_path, line):
    (tmp_path / "bad.py").write_text(line)
    assert list(faults(tmp_path / "bad.py"))


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def arrays(folder):
    with (folder / "mine.npz").open("wb") as file:
        np.savez(file, x_train=np.array([Trap(folder / "sprung")]), y_train=np.zeros(1, int), x_test=np.zeros(1), y_test=np.zeros(1, int))
    return str(folder / "mine.npz")


def cifar10_1(folder):
    np.save(folder / "cifar10.1_v6_data.npy", np.array([Trap(folder / "sprung")]))
    np.save(folder / "cifar10.1_v6_labels.npy", np.zeros(1, int))
    return "cifar10_1"


def imagenet32(folder):
    (folder / "Imagenet32_train_npz").mkdir()
    (folder / "map_clsloc.txt").write_text("".join(f"n{i:08d} {i + 1} name\n" for i in range(1000)))
    np.savez(folder / "Imagenet32_train_npz" / "train_data_batch_1.npz", data=np.array([Trap(folder / "sprung")]), labels=np.ones(1, int))
    return "imagenet32"


@pytest.mark.parametrize("make", [arrays, cifar10_1, imagenet32])
def test_array_files_with_objects_are_refused(tmp_path, make):
    with pytest.raises(ValueError, match="it holds Python objects, which are not read"):
        load(make(tmp_path), tmp_path)
    assert not (tmp_path / "sprung").exists()


def test_weights_with_objects_are_refused(tmp_path, monkeypatch):
    from fedlib.models import build

    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError) as absent:
        build("resnet18_imagenet", (3, 32, 32), 10, 0)
    file = next(word.strip(",.;:'()") for word in str(absent.value).split() if word.strip(",.;:'()").endswith(".pth"))
    torch.save({"weight": Trap(tmp_path / "sprung")}, tmp_path / file)
    with pytest.raises(ValueError, match=r"\.pth"):
        build("resnet18_imagenet", (3, 32, 32), 10, 0)
    assert not (tmp_path / "sprung").exists()


def image(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (9, 9, 9)).save(path)


@pytest.mark.parametrize("linked", ["file", "class", "domain"])
def test_links_out_of_an_image_folder_are_refused(tmp_path, linked):
    outside, root = tmp_path / "outside", tmp_path / "data"
    image(outside / "dog" / "secret.png")
    for domain in ("art_painting", "photo"):
        image(root / "PACS" / domain / "dog" / "1.png")
    link, target = {
        "file": (root / "PACS" / "photo" / "dog" / "2.png", outside / "dog" / "secret.png"),
        "class": (root / "PACS" / "photo" / "cat", outside / "dog"),
        "domain": (root / "PACS" / "sketch", outside),
    }[linked]
    link.symlink_to(target)
    with pytest.raises(ValueError, match="links out of a data set's folder are not followed"):
        load("pacs", root)


def test_links_within_the_folder_and_a_linked_root_are_fine(tmp_path):
    image(tmp_path / "data" / "PACS" / "photo" / "dog" / "1.png")
    (tmp_path / "data" / "PACS" / "photo" / "dog" / "2.png").symlink_to("1.png")
    (tmp_path / "elsewhere").symlink_to(tmp_path / "data")
    assert len(load("pacs", tmp_path / "elsewhere")) == 2


@pytest.mark.parametrize("name", ["../secret", "pacs/../../secret", "/etc/passwd"])
def test_a_name_never_leads_out_of_the_data_folder(tmp_path, name):
    """With a slash it is a path of the user's, relative to the current folder, and must be an .npz file or a folder of images."""
    (tmp_path.parent / "secret").write_text("secret")
    with pytest.raises(FileNotFoundError, match=r"no \.npz file and no folder"):
        load(name, tmp_path)


@pytest.mark.parametrize("kind", ["../../secret", "/etc/passwd"])
def test_a_corruption_is_no_path(tmp_path, kind):
    (tmp_path / "CIFAR-10-C").mkdir()
    for stem in ("fog", "labels"):
        np.save(tmp_path / "CIFAR-10-C" / f"{stem}.npy", np.zeros((5, 32, 32, 3), np.uint8))
    with pytest.raises(ValueError, match="unknown kind of corruption"):
        load("cifar10_c", tmp_path, kind=kind)
