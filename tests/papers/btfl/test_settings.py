"""BTFL's parameters by profile, and the settings and recipes that follow from them."""

import math
from dataclasses import fields

import pytest

from fedlib.papers.btfl import PAPER
from fedlib.papers.btfl import settings as btfl
from fedlib.train.fedavg import FedAvg


def given(**changed):
    """Parameters as the notebook declares them, fewer of some."""
    fixed = {"profile": "smoke", "split": "fixed", "shift_mix": "all", "jobs": 1, "device": "cpu", "cache": "cache"}
    chosen = {"alphas": [0.1, 0.7], "architectures": ["resnet20gn"], "label_counts": [4, 10]}
    return dict.fromkeys(field.name for field in fields(btfl.Parameters)) | fixed | chosen | changed


def parameters(**changed):
    return PAPER.read(given(**changed))


def test_profile_fills_in():
    p = parameters()
    assert (p.dataset, p.rounds, p.other_rounds, p.officehome) == ("digits", 3, 1, "digits5")
    assert btfl.other_rounds(parameters(profile="paper")) == 130
    assert btfl.other_rounds(parameters(profile="paper"), "officehome") == 50
    assert parameters(rounds=7).rounds == 7


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"profile": "smok"}, "smoke"),
        ({"methods": ["BTLF"]}, "BTFL"),
        ({"architectures": ["resnet20"]}, "resnet20gn"),
        ({"alphas": [-0.7]}, "alphas"),
        ({"alphas": [math.nan]}, "alphas"),
        ({"label_counts": [10, -3]}, "label_counts"),
        ({"label_counts": [1]}, "label_counts must be at least 2"),
        ({"tables": ["T8"]}, "T7"),
        ({"split": "leak"}, "resplit"),
        ({"timed_samples": 0}, "timed_samples"),
    ],
)
def test_bad_parameters(given, message):
    with pytest.raises(ValueError, match=message):
        parameters(**given)


def test_settings_follow_the_paper():
    p = parameters(profile="paper")
    main = btfl.setting(p, 0.1, rounds=p.rounds)
    assert (main.label, main.protocol.n_clients, main.schedule.rounds, main.schedule.local.lr) == ("Dir(0.1)", 20, 130, 0.01)
    image = btfl.setting(p, 1.0, block="imagenet32", model=p.wide_model)
    assert (image.model, image.protocol.n_clients, image.schedule.local.batch_size) == ("resnet20gn_w4", 10, 128)
    assert (image.schedule.local.momentum, image.schedule.rounds) == (0.9, 100)
    cct = btfl.setting(p, 0.1, model="cct4_relu").schedule
    assert (cct.local.optimizer, cct.personal.lr, cct.personal.epochs) == ("adam", 0.001, 1)


def test_stand_ins_hold_out_different_domains():
    office, image = (btfl.setting(parameters(), 0.1, block=block).protocol for block in ("officehome", "imagenet32"))
    assert office.dataset == image.dataset == "digits5"
    assert (office.domain, image.domain) == (None, "clutter")


def test_recipes_share_trainings():
    p = parameters()
    assert len({recipe.train for recipe in p.recipes("cnn").values()}) == 4
    assert p.recipes("officehome")["BTFL"].train == FedAvg()
    assert p.recipes("imagenet32")["BTFL"].train.feature_l1 == 1e-4
    assert p.recipes("cct4_relu")["FedTHE"].adapt.lr == 0.01
    assert parameters(wide_model="cct4_relu").recipes("officehome")["FedTHE"].adapt.lr == 0.01
    assert list(parameters(methods=["BTFL", "FedAvg"]).recipes()) == ["FedAvg", "BTFL"]
    assert list(parameters(methods=["BTFL (code)"]).recipes()) == ["BTFL (code)"]
