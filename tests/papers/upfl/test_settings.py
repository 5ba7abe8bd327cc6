"""UPFL's parameters, and the clients, schedules and recipes that follow from them."""

import pytest

from fedlib.papers.upfl import PAPER, notes
from fedlib.papers.upfl.settings import BLOCKS, evaluated, setting
from fedlib.tools.parameters import declared


def given(**changed):
    """The notebook's parameters as it declares them, with those ``changed``."""
    return declared(PAPER.notebook) | {"jobs": 1} | changed


def parameters(**changed):
    return PAPER.read(given(**changed))


@pytest.mark.parametrize(
    "changed",
    [{"clients": 7}, {"steps": 0}, {"every": 0}, {"images": -1}, {"methods": ["FedTAA"]}, {"dataset": "imagenet"}],
)
def test_bad_parameters(changed):
    with pytest.raises(ValueError, match=r"parameter|unknown"):
        parameters(**changed)


def test_an_unknown_exhibit_is_refused():
    with pytest.raises(ValueError, match=r"unknown table, figure or study 'T3'\. Did you mean"):
        parameters(tables=["T3"])


def test_settings_follow_the_paper():
    p = parameters(profile="paper")
    s = setting(p, "cifar100", "superclass")
    local = s.schedule.local
    assert (s.protocol.dataset, s.protocol.n_clients, s.model, s.schedule.rounds) == ("cifar100", 100, "convnet", 1500)
    assert (local.steps, local.batch_size, local.weight_decay, local.clip, local.continued) == (20, 64, 1e-4, 10, True)
    assert local.decay**10 == pytest.approx(0.99)
    assert setting(p, "mnist", "pathological").protocol.deck
    concept = setting(p, "mnist", "concept").protocol
    assert (concept.n_clients, concept.shards, concept.images) == (50, 10, None)
    assert setting(p, "femnist", "natural").model == "convnet_2048"


def test_data_sets():
    assert [parameters().run_on(d) for d in BLOCKS] == ["digits"] * 5
    assert [parameters(dataset="published").run_on(d) for d in BLOCKS] == list(BLOCKS)
    one = parameters(dataset="cifar10_jpeg")
    assert [one.run_on(d) for d in BLOCKS] == [None, "cifar10_jpeg", None, None, None]
    assert one.recipes("mnist") == {}
    assert one.recipes("cifar10")["FedTTA"].train.rates.outer == 0.05
    assert list(parameters(methods=["Tent", "FedTTA"]).recipes("cifar10")) == ["Tent", "FedTTA"]


def test_a_named_part_of_mnist_has_mnists_clients_and_rates():
    """With MNIST's network, deck, rates and rounds; its number of images counts as changed."""
    p = parameters(profile="paper", dataset="mnist_5k")
    assert [p.run_on(d) for d in BLOCKS] == ["mnist_5k", None, None, None, None]
    s = setting(p, "mnist", "pathological")
    assert (s.protocol.dataset, s.protocol.deck, s.protocol.n_clients, s.model, s.schedule.rounds) == ("mnist_5k", True, 100, "mlp", 200)
    assert p.recipes("mnist") == parameters(profile="paper", dataset="mnist").recipes("mnist")
    assert p.changed(PAPER.profiles) == ["images"]
    assert parameters(profile="paper", dataset="mnist").changed(PAPER.profiles) == []


def test_evaluations_are_after_whole_rounds_the_last_first():
    p = parameters(rounds=7, every=3)
    assert evaluated(setting(p, "cifar10", "pathological")) == (8, 7, 4)
    said = notes(p).splitlines()
    assert "digits, pathological: tested after rounds 3, 6, 7" in said
    assert any("names no writers" in line for line in said)
    assert any("classes are paired" in line for line in said)
