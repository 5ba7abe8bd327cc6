"""FedTHE's parameters, and the settings behind printed words."""

from dataclasses import replace

import pytest

from fedlib.papers.fedthe.recipes import ABLATIONS, METHODS, RECIPES
from fedlib.papers.fedthe.settings import PROFILES, setting
from fedlib.published import cells
from tests.papers.fedthe.fedthe_cases import parameters


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tables": ["T16"]}, "unknown table, figure or study 'T16'"),
        ({"methods": ["FedThe"]}, "Did you mean 'FedTHE'"),
        ({"split": "fix"}, "Did you mean 'fixed'"),
        ({"wide_model": "cnnn"}, "Did you mean 'cnn'"),
        ({"side_rounds": 0}, "side_rounds must be at least 1"),
        ({"network_clients": 1}, "network_clients must be at least 2"),
        ({"long_rounds": [500]}, "long_rounds must be two numbers"),
        ({"alphas": [0.0]}, "alphas must be some of the printed 0.1, 1.0, 10.0"),
        ({"curve_points": 0}, "curve_points must be at least 1"),
        ({"curve_samples": -1}, "curve_samples must be at least 0"),
        ({"partition_seed": -7000}, "partition_seed must be None or a whole number"),
    ],
)
def test_bad_values(wrong, message):
    with pytest.raises(ValueError, match=message):
        parameters(**wrong)


def test_what_the_words_of_a_setting_vary():
    p = parameters("paper")
    plain = setting(p, "Dir(0.1)")
    assert setting(p, "Dir(0.1), severity 3").protocol == replace(plain.protocol, severity=3)
    assert setting(p, "Dir(0.1), test size 0.75").protocol == replace(plain.protocol, test_size=0.75)
    assert setting(p, "Dir(0.1), train size 0.5").protocol == replace(plain.protocol, train_size=0.5)
    assert setting(p, "Dir(0.1), 100 clients").protocol == replace(plain.protocol, n_clients=100)
    assert setting(p, "Dir(0.1), sampling 0.4").schedule == replace(plain.schedule, participation=0.4)
    personal = replace(plain.schedule.personal, epochs=4)
    assert setting(p, "Dir(0.1), personal epochs 4").schedule == replace(plain.schedule, personal=personal)
    for wrong in ("Dir(0.1), strength 3", "iid", "Dir(0.1), 100"):
        with pytest.raises(ValueError, match="not understood"):
            setting(p, wrong)


def test_side_studies_of_the_digits_train_on_half_of_their_images():
    p = parameters("smoke")
    sizes = {"Dir(0.1)": 1, "Dir(10.0)": 0.5, "Dir(0.1), sampling 0.4": 0.5, "Dir(0.1), 100 clients": 1}
    assert {label: setting(p, label).protocol.train_size for label in sizes} == sizes
    assert setting(p, "Dir(0.1), train size 0.75").protocol.train_size == 0.75
    assert setting(parameters("paper"), "Dir(10.0)").protocol.train_size == 1


def test_eight_personal_epochs_end_at_a_tenth_of_the_rate():
    """The code's schedule has its milestone one epoch behind the five of local training."""
    personal = setting(parameters("paper"), "Dir(0.1), personal epochs 8").schedule.personal
    assert [personal.rate(epoch) for epoch in range(8)] == [0.01] * 6 + [0.001] * 2
    plain = setting(parameters("paper"), "Dir(0.1)").schedule
    assert plain.local.milestone is plain.personal.milestone is None


def test_the_published_partition_can_be_chosen():
    for dataset in ("cifar10", "imagenet32"):
        drawn, published = (setting(parameters(partition_seed=s), "Dir(1.0)", dataset=dataset).protocol for s in (None, 7000))
        assert published == replace(drawn, partition_seed=7000)
        assert drawn.partition_seed is None
    changed = parameters("paper", partition_seed=7000, curve_points=30).changed(PROFILES)
    assert changed == parameters("paper").changed(PROFILES) == []


def test_the_papers_schedule():
    s = setting(parameters("paper"), "Dir(0.1)")
    assert (s.schedule.rounds, s.schedule.local.epochs, s.schedule.personal.epochs, s.protocol.n_clients) == (100, 5, 1, 20)
    assert (s.schedule.local.lr, s.schedule.local.momentum, s.schedule.local.batch_size) == (0.01, 0, 32)
    assert (s.protocol.natural_size, s.protocol.corruption_draws, s.protocol.split) == (2000, 2, "fixed")
    resnet, cct = (setting(parameters("paper"), "Dir(1.0)", model=m).schedule.local for m in ("resnet20gn", "cct4"))
    assert (resnet.optimizer, resnet.lr, resnet.momentum) == ("sgd", 0.01, 0.9)
    assert (cct.optimizer, cct.lr) == ("adam", 0.001)
    imagenet = setting(parameters("paper"), "Dir(1.0)", model="resnet20gn_w4", dataset="imagenet32").schedule
    assert (imagenet.rounds, imagenet.local.batch_size) == (300, 128)


def test_cct_solves_for_the_weight_at_a_tenth_of_the_rate():
    p = parameters()
    assert p.recipes(["FedTHE"], "cct4")["FedTHE"].adapt.lr == 0.01
    assert p.recipes(["FedTHE+"], "cct4")["FedTHE+"].adapt.ensemble.lr == 0.01
    assert p.recipes(["FedTHE", "FedTHE+"], "resnet20gn") == {m: RECIPES[m] for m in ("FedTHE", "FedTHE+")}


def test_the_rate_is_that_of_the_network_which_runs():
    recipes = parameters(wide_model="cct4").recipes(["FedTHE", "FedTHE+"], "resnet20gn_w4", "imagenet32")
    assert (recipes["FedTHE"].adapt.lr, recipes["FedTHE+"].adapt.ensemble.lr) == (0.01, 0.01)


def test_batches_of_imagenet_hold_128_samples():
    """Those of the history, in FedTHE and FedTHE+, and of nothing else."""
    recipes = parameters().recipes(["T3A", "FedTHE", "FedTHE+"], "resnet20gn_w4", "imagenet32")
    assert (recipes["FedTHE"].adapt.batch_size, recipes["FedTHE+"].adapt.ensemble.batch_size) == (128, 128)
    assert recipes["T3A"] == RECIPES["T3A"]
    assert parameters().recipes(["FedTHE"])["FedTHE"].adapt.batch_size == 32


@pytest.mark.parametrize("model", ["resnet20gn", "cct4"])
def test_memo_keeps_the_moments_of_optimisers_that_have_any(model):
    """As the code does; the paper's steps start afresh with every sample."""
    names = ["MEMO-P", "MEMO-P (paper)"]
    kept, fresh = parameters().recipes(names, model).values()
    assert (kept.adapt.carry, fresh.adapt.carry) == (True, False)
    assert list(parameters().recipes(names).values()) == [METHODS[name] for name in names]


def test_methods_keep_the_printed_order():
    assert list(parameters(methods=["FedTHE", "FedAvg"]).recipes()) == ["FedAvg", "FedTHE"]
    names = cells("fedthe", "T13")["method"].unique()
    assert list(parameters().recipes(names)) == list(names)
    assert set(ABLATIONS) == set(names)
