import itertools
from dataclasses import replace

import pytest

from fedlib.cache.manifest import training_manifest
from fedlib.cache.store import describe, key_of
from fedlib.core import Local, Schedule
from fedlib.protocols import BRFL
from fedlib.setting import Setting
from fedlib.stages.engine import Engine
from fedlib.train.fedavg import FedAvg
from tests import tiny

SETTING = Setting("here", tiny.Protocol(), "mlp", Schedule(rounds=3))


METHOD = FedAvg()


def key(setting=SETTING, method=METHOD, **fields):
    benchmark = replace(setting.protocol.build(0), **fields)
    return key_of(training_manifest(setting, 0, method, benchmark, Engine()) | {"torch": "any"})


def test_labels_names_and_the_number_of_rounds_do_not_count():
    other = replace(SETTING, label="there", schedule=replace(SETTING.schedule, rounds=9, personal=Local(epochs=7)))
    assert key(other) == key()
    assert key(stand_in="something", dataset="renamed") == key()


def test_what_training_reads_counts():
    changed = [
        key(replace(SETTING, model="cnn")),
        key(replace(SETTING, schedule=replace(SETTING.schedule, local=Local(lr=0.5)))),
        key(replace(SETTING, schedule=replace(SETTING.schedule, participation=0.5))),
        key(replace(SETTING, protocol=tiny.Protocol(leaky=True))),
        key(method=FedAvg(loss="balanced_softmax")),
    ]
    assert len({key(), *changed}) == len(changed) + 1


def test_keys_of_the_full_schedules_stay():
    """Hours of training lie under such keys: whoever changes this hash throws them away."""
    setting = Setting("Dir(0.1)", BRFL("digits", n_clients=4), "cnn", Schedule())
    manifest = training_manifest(setting, 0, FedAvg(), setting.protocol.build(0), Engine()) | {"torch": "any", "data": "any"}
    manifest = describe(manifest)
    assert manifest["train"] == {"FedAvg": {"version": 1}}
    assert key_of(manifest) == "e64be969403b3488ae13"


GIVEN = [*itertools.product(("train", "val", "pool"), ("images", "labels")), ("public", "images")]


@pytest.mark.parametrize(("part", "what"), GIVEN)
def test_all_that_a_training_is_given_counts(part, what):
    built = replace(tiny.Protocol(leaky=part == "pool").build(0), public=tiny.samples(4).images)
    first, *rest = built.clients
    if part == "public":
        changed = replace(built, public=built.public ^ 1)
    else:
        own = getattr(first, part)
        other = (own.labels + 1) % tiny.CLASSES if what == "labels" else own.images ^ 1
        changed = replace(built, clients=(replace(first, **{part: replace(own, **{what: other})}), *rest))
    setting = Setting("Dir(0.1)", tiny.Protocol(), "mlp_small", Schedule(rounds=1))
    keys = [key_of(training_manifest(setting, 0, FedAvg(), benchmark, Engine())) for benchmark in (built, changed)]
    assert keys[0] != keys[1]
