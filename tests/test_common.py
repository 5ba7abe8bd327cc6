from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest

from fedlib import extras
from fedlib.common import Common, average, densities, labelled, with_mean
from fedlib.core import Recipe
from fedlib.paper import paper_of
from fedlib.tools.parameters import PROJECT, declared
from fedlib.train.fedavg import FedAvg

PROFILES = {"smoke": {"dataset": "digits", "clients": 10, "rounds": 3, "seeds": [0], "costly_samples": 6}}


@dataclass(frozen=True)
class Paper(Common):
    """A paper without parameters of its own."""


def parameters(**given):
    return Paper(**{"jobs": 1} | given)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"profile": "smok"}, "Did you mean 'smoke'"),
        ({"clients": 1}, "clients must be at least 2, got 1"),
        ({"seeds": [10**19]}, r"seeds must be below 2\*\*32"),
        ({"dataset": "cifar11"}, "unknown data set .* Did you mean 'cifar10"),
        ({"dataset": "cifar10_c"}, r"data set \(parameter dataset\): cifar10_c is one kind .* take cifar10,"),
        ({"dataset": "none"}, r"unknown data set \(parameter dataset\) 'none'"),
        ({"dataset": "published"}, r"unknown data set \(parameter dataset\) 'published'"),
        ({"rounds": 10**20}, "rounds must be at most 1,000,000, got 100,000,"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"dataset": ""}, "parameter dataset is empty: leave it out"),
        ({"cache": ""}, "parameter cache is empty: leave it out"),
        ({"costly_samples": -1}, "costly_samples must be at least 0"),
        ({"seeds": []}, "distinct integers"),
        ({"seeds": [1, 1]}, "distinct integers"),
        ({"seeds": [-1]}, "distinct integers"),
        ({"device": "cuda:99"}, "use device='cpu'"),
        ({"tables": []}, "name some, or all"),
        ({"methods": ["FedAvg", "FedTHE", "FedAvg"]}, "parameter methods names FedAvg twice"),
        ({"tables": "T1"}, r"list of names, or all, got the text 'T1': write \['T1'\]"),
        ({"tables": "[T1, T2]"}, r"got the text '\[T1, T2\]': with papermill, -y 'tables: \[T1, T2\]'"),
    ],
)
def test_bad_values(wrong, message, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ValueError, match=message):
        parameters(**wrong)


def test_the_profile_fills_what_is_not_given(monkeypatch):
    monkeypatch.delenv("FEDLIB_DATA", raising=False)
    p = parameters(clients=4, cache="here").resolved(PROFILES)
    assert (p.clients, p.rounds, p.dataset, p.costly_samples) == (4, 3, "digits", 6)
    assert (p.data_root, p.cache) == (str(PROJECT / "data"), str(PROJECT / "here"))
    assert p.local_epochs is None
    assert parameters(cache="/elsewhere").resolved(PROFILES).cache == "/elsewhere"


def test_tables_are_the_users_or_else_the_profiles():
    """Names win over the profile's, and so does ``all``, which no other value of the parameter stands for."""
    few = {"smoke": PROFILES["smoke"] | {"tables": ["T1", "F2"]}}
    asked = lambda given, profiles: [n for n in ("T1", "T2", "F2") if parameters(tables=given).resolved(profiles).asks(n)]  # noqa: E731
    assert asked(None, few) == ["T1", "F2"]
    assert asked(["T2"], few) == ["T2"]
    assert asked("all", few) == asked(None, PROFILES) == asked("all", PROFILES) == ["T1", "T2", "F2"]


def test_a_profile_chooses_among_the_published_methods_only(monkeypatch):
    monkeypatch.setattr(extras, "REGISTERED", {})
    extras.register("Mine", Recipe(FedAvg()))
    few = {"smoke": PROFILES["smoke"] | {"methods": ["FedAvg"]}}
    assert parameters().resolved(few).methods == ["FedAvg", "Mine"]
    assert parameters(methods=["Mine"]).resolved(few).methods == ["Mine"]
    assert parameters(methods="all").resolved(few).methods is None


def test_all_tables_are_a_run_of_its_own_where_the_profile_has_fewer():
    given = declared(PROJECT / "notebooks" / "btfl.ipynb")
    paper = paper_of("btfl")
    folder = lambda profile, tables: paper.folder(paper.read(given | {"profile": profile, "tables": tables})).parent.name  # noqa: E731
    assert folder("smoke", "all") == "smoke"
    assert folder("small", None) == "small"
    assert folder("small", "all").startswith("small-tables-")


def test_the_numbers_that_are_not_the_papers_are_named():
    profiles = PROFILES | {"paper": {"dataset": "cifar10", "clients": 20, "seeds": [0, 1, 2], "costly_samples": 0}}
    assert parameters().resolved(profiles).changed(profiles) == ["clients", "rounds", "seeds", "costly_samples"]
    paper = parameters(profile="paper", dataset="cifar10_jpeg").resolved(profiles)
    assert paper.changed(profiles) == []
    assert replace(paper, rounds=4, seeds=[0]).changed(profiles) == ["rounds", "seeds"]


def test_the_data_folder_comes_from_the_parameter_or_the_environment(monkeypatch):
    monkeypatch.setenv("FEDLIB_DATA", "/data/sets")
    assert parameters().resolved(PROFILES).data_root == "/data/sets"
    assert parameters(data_root="/mine").resolved(PROFILES).data_root == "/mine"


def test_the_reason_for_absent_images_does_not_show_the_machines_folders():
    p = parameters(data_root="/mine/sets").resolved(PROFILES)
    assert p.missing(FileNotFoundError("no x.npz in /mine/sets.\nGet it")) == "no x.npz in data_root. Get it"


def test_requests():
    p = parameters().resolved(PROFILES)
    assert p.request(rounds=(1, 3)).costly_samples == 6
    assert p.request(costly_samples=2).costly_samples == 2
    assert replace(p, costly_samples=0).request().costly_samples is None


@pytest.mark.parametrize("name", ["fedthe", "upfl", "atp", "fedicon", "btfl", "comparison"])
def test_a_run_with_other_parameters_than_its_profiles_writes_to_a_folder_of_its_own(name):
    paper = paper_of(name)
    make = paper.read
    for profile in ("smoke", "small", "paper"):
        given = declared(paper.notebook) | {"profile": profile}
        # Where files are and how many processes run is no difference, nor is a value given that the profile has anyhow.
        usual = make(given | {"jobs": 1, "cache": "elsewhere", "seeds": make(given).seeds})
        assert paper.folder(usual) == PROJECT / "figures" / profile / name
        other = make(given | {"seeds": [7], "methods": make(given).methods})
        assert paper.folder(other).parent.name.startswith(f"{profile}-seeds-")
        assert paper.folder(other) != paper.folder(make(given | {"seeds": [8]}))


def rows(values, column="original", **more):
    """One row per (seed, client, draw) of a nested list."""
    flat = [(s, c, d, v) for s, clients in enumerate(values) for c, draws in enumerate(clients) for d, v in enumerate(draws)]
    frame = pd.DataFrame(flat, columns=["seed", "client", "draw", "accuracy"])
    return frame.assign(**{"setting": "Dir(0.1)", "method": "M", "column": column, "dataset": "digits", "model": "cnn"} | more)


def test_draws_are_averaged_before_clients_and_clients_before_seeds():
    frame = average(rows([[[10, 30], [60]], [[0], [20]]]))
    assert frame["mean"].tolist() == [25]
    assert frame["std"].tolist() == pytest.approx([np.std([40, 10], ddof=1)])
    assert frame["n_seeds"].tolist() == [2]


def test_one_seed_has_no_spread():
    assert average(rows([[[10], [20]]]))["std"].isna().all()


def test_images_of_two_draws_are_the_same_and_those_of_two_tests_are_not():
    frame = rows([[[10, 30], [60, 70]], [[0, 0], [20, 20]]], n=5)
    assert average(frame)["n"].tolist() == [20]
    tests = pd.concat([frame, frame]).assign(column="average")
    assert average(tests)["n"].tolist() == [40]
    assert average(frame.drop(columns="n"))["n"].isna().all()


def test_densities_pool_samples_and_integrate_to_one():
    weights = [np.array([0.1, 0.1, 0.9]), np.array([0.1]), None]
    frame = rows([[[0], [0], [0]]]).assign(weight=weights)
    result = densities(frame, "weight", bins=10)
    assert result["density"].sum() / 10 == pytest.approx(1)
    assert result.loc[result["density"].idxmax(), "weight"] == pytest.approx(0.15)
    assert result["density"].max() == pytest.approx(7.5)
    assert set(result["n_seeds"]) == {1}


def test_stand_ins_are_labelled():
    frame = pd.concat([rows([[[1]]], column) for column in ("original", "natural")])
    assert labelled(average(frame), frame, ["cifar10"])["status"].tolist() == ["stand-in", "stand-in"]
    frame = frame.assign(dataset="cifar10")
    assert labelled(average(frame), frame, ["cifar10"])["status"].tolist() == ["ok", "ok"]
    told = frame.assign(stand_in=frame["column"] == "natural")
    several = pd.concat([average(frame), average(frame).tail(1).assign(column="average")])
    assert labelled(several, told, ["cifar10"])["status"].tolist() == ["ok", "stand-in", "stand-in"]
    named = labelled(average(frame), frame.assign(dataset="cifar10_jpeg"), [])
    assert set(named["status"]) == {"stand-in"}
    assert set(named["run_dataset"]) == {"CIFAR-10 (JPEG)"}
    assert set(named["run_model"]) == {"cnn"}


def test_printed_images_count_in_their_own_place_and_on_the_printed_network_alone():
    frame, real = rows([[[1]]], dataset="cifar10"), ["cifar10", "imagenet32"]
    for place, status in (
        ({"dataset": "cifar10", "model": "cnn"}, "ok"),
        ({"dataset": "imagenet32"}, "stand-in"),
        ({"model": "resnet20gn"}, "stand-in"),
    ):
        placed = frame.assign(**{f"printed_{name}": value for name, value in place.items()})
        assert labelled(average(frame), placed, real)["status"].tolist() == [status]


@pytest.mark.parametrize("paper", ["fedthe", "upfl", "atp", "fedicon", "btfl", "comparison"])
def test_what_would_stop_or_do_nothing_in_the_middle_of_a_run_is_refused(paper):
    make, usual = paper_of(paper).read, declared(paper_of(paper).notebook)
    for name in ("methods", "tables"):
        with pytest.raises(ValueError, match=f"parameter {name} is empty"):
            make(usual | {name: []})
    for name in {"officehome", "imagenet32"} & set(usual):
        with pytest.raises(ValueError, match=f"unknown data set \\(parameter {name}\\) 'bogus'"):
            make(usual | {name: "bogus"})


def test_the_mean_of_several_tests_rests_on_all_their_images():
    tests = [rows([[[10, 20], [30, 40]]], column, n=10) for column in ("original", "ooc")]
    found = with_mean(pd.concat(tests), "average")
    assert found.loc[found["column"] == "average", "n"].tolist() == [20, 20]
