from collections import Counter

import pytest

from fedlib.adapt.atp import modules
from fedlib.models import build
from fedlib.models.places import kinds, places


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("shallow_cnn", {"block1": 5, "block2": 5, "block3": 5, "block4": 6, "head": 2}),
        ("resnet18", {"stem": 5, "block1": 20, "block2": 25, "block3": 25, "block4": 25, "head": 2}),
    ],
)
def test_every_module_has_its_place_in_order(name, counts):
    model = build(name, (3, 32, 32), 10, seed=0)
    where = places(model)
    found = [where[module] for module in modules(model)]
    assert Counter(found) == counts
    assert list(dict.fromkeys(found)) == list(counts)


def test_kinds_repeat_as_published():
    """ResNet-18: module 5i is a convolution, 5i + 1 ... 5i + 4 its batch norm; 100 and 101 the last layer."""
    model = build("resnet18", (3, 32, 32), 10, seed=0)
    found = [kinds(model)[module] for module in modules(model)]
    layer = ["convolution", "running mean", "running variance", "norm weight", "norm bias"]
    assert found == layer * 20 + ["last weight", "last bias"]


def test_hidden_layers_are_told_from_the_last():
    model = build("shallow_cnn", (1, 16, 16), 10, seed=0)
    count = Counter(kinds(model)[module] for module in modules(model))
    assert count["hidden weight"] == count["hidden bias"] == count["last weight"] == count["last bias"] == 1
    assert count["convolution"] == 3
    assert count["running mean"] == count["norm bias"] == 4
