"""Values that pass one by one and would stop a run in its middle are refused before it starts, with the parameter and the remedy."""

from dataclasses import replace

import numpy as np
import pytest

from fedlib import paper as paper_module
from fedlib import ready, reproduce
from fedlib.campaign import ENTRIES, parameters
from fedlib.reproduce import ORDER, paper_of, prepared
from fedlib.study import Study
from fedlib.tools.parameters import PROFILES, declared

WRONG = [
    # Names.
    ("atp", {"cifar100": "bogus"}, r"parameter cifar100\) 'bogus'"),
    ("atp", {"cifar100": "none"}, r"parameter cifar100\) 'none'"),
    ("atp", {"model": "bogus"}, "unknown model 'bogus'"),
    ("fedicon", {"model": "bogus"}, "unknown model 'bogus'"),
    ("fedthe", {"imagenet32": "digits5"}, "unknown data set with three natural shifts .*Valid: 'imagenet32', 'digits', 'none'"),
    ("fedthe", {"imagenet32": "cifar10"}, "unknown data set with three natural shifts"),
    ("fedicon", {"dataset": "none", "office": "none", "attribute": "none"}, "nothing to run: switched off by the parameter dataset"),
    # Too few clients.
    ("atp", {"clients": 2}, "parameter clients must be at least 3, got 2"),
    ("comparison", {"population": 2}, "with population = 2: .*take more clients"),
    ("upfl", {"clients": 2}, "with clients = 2: .*too few for 10 classes: take at least 5 clients"),
    ("upfl", {"clients": 12}, "with clients = 12: .*12 clients cannot be shared evenly by 5 superclasses: take a multiple of 5"),
    # Too many clients, or too few images.
    *((paper, {"clients": 100_000}, "with clients = 100000: .*(lower|take|use)") for paper in ORDER),
    ("atp", {"images": 5}, "with images = 5: .*client"),
    ("atp", {"images": 10}, "with images = 10: .*client"),
    ("upfl", {"images": 5}, "with images = 5: .*client"),
    ("upfl", {"images": 10}, "with images = 10: .*client"),
    ("comparison", {"pool": 3}, "with pool = 3: .*client"),
    ("fedicon", {"counts": [5, 1000]}, r"with counts = \[5, 1000\]: Figure 3a: .*would hold"),
    ("btfl", {"alphas": [1e-300]}, "with alphas = .*: Figure 4: .*raise alpha"),
    # Schedules.
    ("fedicon", {"rounds": 1}, "with rounds = 1: .*take more rounds or fewer classifier_rounds"),
    ("fedicon", {"rounds": 3, "classifier_rounds": 3}, "with rounds = 3: .*more rounds than its 3 classifier rounds"),
    ("fedicon", {"classifier_rounds": 100}, "with classifier_rounds = 100: .*more rounds than its 100 classifier rounds"),
    ("fedicon", {"classifier_rounds": -1}, "parameter classifier_rounds must be at least 1, got -1"),
    # Ranges.
    ("fedicon", {"counts": [0]}, "parameter counts must be one or more distinct whole numbers of at least 1"),
    ("fedicon", {"counts": [-5]}, "parameter counts"),
    ("fedicon", {"counts": []}, "parameter counts"),
    ("fedicon", {"epochs": [0]}, "parameter epochs must be one or more distinct whole numbers of at least 1"),
    ("fedicon", {"epochs": [-1]}, "parameter epochs"),
    ("fedicon", {"epochs": [2, 2]}, "parameter epochs"),
    ("fedicon", {"epochs": []}, "parameter epochs"),
    ("fedicon", {"images": -5}, "parameter images must be at least 1, got -5"),
    ("fedicon", {"contrast_lr": -1}, "parameter contrast_lr must be above 0, got -1"),
    ("comparison", {"contrast_lr": -1}, "parameter contrast_lr must be above 0, got -1"),
    ("comparison", {"momentum": 1.0}, r"parameter momentum must lie in \[0, 1\), got 1.0"),
    ("comparison", {"rate_lr": 0}, "parameter rate_lr must be above 0, got 0"),
    ("comparison", {"rate_lr": -1}, "parameter rate_lr must be above 0, got -1"),
    ("atp", {"rate_lr": -1}, "parameter rate_lr must be above 0, got -1"),
    ("btfl", {"alphas": [0.1, 0.1]}, "parameter alphas must be distinct positive"),
    ("fedthe", {"alphas": [0.5]}, "parameter alphas must be some of the printed 0.1, 1.0, 10.0"),
    ("upfl", {"output": ["a"]}, r"parameter output must be str or None, got \['a'\]"),
    # Trained federations of another paper.
    ("upfl", {"start": "digits/fedthe"}, "parameter start: the run of digits/fedthe does not fit here: unknown method 'FedRoD'"),
    (
        "atp",
        {"start": "digits/fedthe", "tables": ["T1"], "methods": ["NoAdapt"]},
        "Table 1: three shifts: NoAdapt cannot start from digits/fedthe",
    ),
    ("btfl", {"start": "digits/fedthe", "methods": ["FedAvg", "BTFL"]}, "BTFL cannot start from digits/fedthe"),
    # Networks on which a method cannot run.
    ("atp", {"model": "mlp"}, "with model = 'mlp': .*needs batch norm, and mlp has none: choose a network that has it"),
    ("comparison", {"model": "cnn"}, "with model = 'cnn': .*needs batch norm, and cnn has none"),
    ("btfl", {"architectures": ["cct4"]}, "BTFL.*: features must not be negative, as cct4's are"),
    (
        "comparison",
        {"plain_model": "fedicon_cnn"},
        "with plain_model = .*runs without batch norm only, and fedicon_cnn has it",
    ),
]


@pytest.mark.parametrize(("paper", "given", "message"), WRONG)
def test_what_would_stop_in_its_middle_is_refused_before_it_starts(paper, given, message):
    with pytest.raises(ValueError, match=message):
        prepared(paper, given)


def test_the_first_cell_refuses_it_too():
    upfl = paper_of("upfl")
    with pytest.raises(ValueError, match="with clients = 2: "):
        Study(upfl, declared(upfl.notebook) | {"clients": 2})


def test_a_folder_of_data_that_is_not_there(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"parameter data_root: no folder .*/nothere"):
        prepared("fedthe", {"data_root": f"{tmp_path}/nothere"})
    # The usual one need not be there: the embedded images are in none.
    monkeypatch.setenv("FEDLIB_DATA", f"{tmp_path}/nothere")
    prepared("upfl", {"tables": ["AT1"]})


@pytest.mark.parametrize("name", ["cache", "output"])
@pytest.mark.parametrize("below", ["", "/deep/down"])
def test_a_file_is_no_folder(name, below, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=f"parameter {name} must be a folder, but .*/file is a file: name another folder"):
        prepared("upfl", {name: f"{tmp_path}/file{below}"})


def test_a_folder_starts_at_the_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"parameter output must be a folder, but .*/README.md is a file"):
        prepared("upfl", {"output": "README.md"})


def test_images_of_sides_that_a_network_refuses_are_named_first(tmp_path):
    shape = {"x_train": (40, 30, 30, 3), "x_test": (40, 30, 30, 3)}
    images = {name: np.zeros(sides, np.uint8) for name, sides in shape.items()}
    np.savez(tmp_path / "mine.npz", **images, y_train=np.arange(40) % 4, y_test=np.arange(40) % 4)
    with pytest.raises(ValueError, match="ConvNet needs image sides divisible by 4"):
        prepared("upfl", {"dataset": str(tmp_path / "mine.npz"), "tables": ["T1"]})


def test_a_device_is_no_folder():
    with pytest.raises(ValueError, match="parameter cache must be a folder, but /dev/null is a file"):
        prepared("upfl", {"cache": "/dev/null"})


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("paper", ORDER)
def test_every_notebook_may_start_in_every_profile(paper, profile):
    """Whether real images are there or not, which are not looked for. With another rate the embedded clients are built."""
    prepared(paper, {"profile": profile})
    prepared(paper, {"profile": profile, "lr": 0.011})


@pytest.mark.parametrize("profile", ["smoke", "paper"])
@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_of_the_campaign_may_start(entry, profile):
    prepared(ENTRIES[entry].notebook, parameters(entry, profile, {}), entry)


def test_what_is_not_asked_for_is_not_checked():
    """FedICON's schedule stops no run of other methods, nor too many clients of a figure one without it."""
    prepared("fedicon", {"rounds": 1, "methods": ["FedAvg"]})
    prepared("fedicon", {"counts": [5, 1000], "tables": ["T1"]})


def test_nothing_is_written_or_run(tmp_path, monkeypatch):
    monkeypatch.setattr("fedlib.federation.run", lambda *_, **__: pytest.fail("a training was started"))
    prepared("atp", {"cache": str(tmp_path / "cache"), "output": str(tmp_path / "out"), "data_root": str(tmp_path)})
    assert not list(tmp_path.iterdir())


def test_an_exhibit_made_of_what_clients_have_learned_is_left_to_the_run():
    paper = paper_of("atp")
    p = replace(paper.read(declared(paper.notebook)), tables=["T3"])
    assert list(ready._blocks(paper, ready._plan(p))) == []
    assert list(ready._blocks(paper, ready._plan(replace(p, tables=["T1"]))))


def test_what_was_saved_in_a_notebook_is_a_change_like_any_other(tmp_path, monkeypatch):
    """Its results do not go where those of the profile are."""
    text = (reproduce.NOTEBOOKS / "upfl.ipynb").read_text()
    (tmp_path / "upfl.ipynb").write_text(text.replace("rounds = None", "rounds = 7"))
    for module in (reproduce, paper_module):
        monkeypatch.setattr(module, "NOTEBOOKS", tmp_path)
    assert prepared("upfl", {}).folder.parent.name.startswith("smoke-rounds-")
    assert prepared("upfl", {"rounds": None}).folder.parent.name == "smoke"
