"""A setting told as JSON data comes back, and says nothing of the machine."""

import json
from dataclasses import replace

import pytest

import fedlib
from fedlib.core import Local, Schedule
from fedlib.plain import plain, rebuilt
from fedlib.protocols.brfl import BRFL
from fedlib.protocols.validated import Validated
from fedlib.setting import Setting
from tests.test_start import LOCAL, SETTING


@pytest.mark.parametrize(
    "protocol",
    [
        fedlib.BRFL("digits", 4, columns=("original",)),
        fedlib.BTGFL(alpha=0.5),
        fedlib.TTPFL(),
        fedlib.UPFL(),
        fedlib.Domains(only="fonts"),
    ],
)
def test_a_setting_of_the_package_is_told_whole(protocol):
    schedule = Schedule(7, Local(lr=0.3, clip=1.0), Local("adam"), 0.5, 2)
    setting = Setting("there", protocol, "cnn", schedule)
    assert rebuilt(json.loads(json.dumps(plain(setting)))) == setting


def test_of_a_users_images_only_the_name_is_told(tmp_path):
    assert plain(replace(SETTING, protocol=fedlib.BRFL(str(tmp_path / "mine.npz"))))["protocol"]["fields"]["dataset"] == "mine.npz"
    within = Validated(fedlib.BRFL(str(tmp_path / "mine.npz")), shifted=False)
    assert str(tmp_path) not in json.dumps(plain(replace(SETTING, protocol=within)))
    assert rebuilt(plain(SETTING)) is None


def test_a_setting_of_a_protocol_within_a_protocol_comes_back():
    inner = BRFL("digits", 4, alpha=0.5, corruption_draws=1)
    setting = Setting("BRFL", Validated(inner, shifted=False), "mlp_small", Schedule(2, LOCAL, LOCAL))
    assert rebuilt(plain(setting)) == setting
