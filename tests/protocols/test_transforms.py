"""What every protocol makes of every data set: the transform, which is part of a training's identity, and the clients of the digits.

``recorded.json`` holds what cached trainings were made with; a change of it makes them worthless.
"""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from fedlib.cache.manifest import trained_with
from fedlib.cache.store import digest
from fedlib.data import DOWNLOADABLE, EMBEDDED, FILES
from fedlib.data.dataset import Dataset
from fedlib.protocols import BRFL, BTGFL, TTPFL, UPFL, BRFLImageNet, Domains, brfl, brfl_imagenet, btgfl, fedicon, shifts, ttpfl, upfl

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())
GREY = ("digits", "digits_natural", "mnist", "mnist_5k", "fashion_mnist", "usps", "femnist")
DOMAINS = {
    "digits5": ("plain", "clutter", "lowres", "fonts", "blend"),
    "pacs": ("art_painting", "cartoon", "photo", "sketch"),
    "officehome": ("Art", "Clipart", "Product", "Real World"),
}
PROTOCOLS = {
    "BRFL": lambda name: BRFL(name, 4, alpha=1.0, natural_size=50, columns=("original", "natural")),
    "BTGFL": lambda name: BTGFL(name, 4, alpha=1.0, natural_size=50),
    "TTPFL": lambda name: TTPFL(name, "label", 4),
    "UPFL": lambda name: UPFL(name, n_clients=10),
    "Domains": lambda name: Domains(name, "domain", DOMAINS.get(name, "abcd")[0], n_train=20, n_test=None),
}
ON_DIGITS = {
    "BRFL": BRFL("digits", 4, natural_size=300, corruption_draws=1),
    "BRFLImageNet": BRFLImageNet("digits", 4),
    "BTGFL": BTGFL("digits", 4, natural_size=300),
    "BTGFL domains": BTGFL("digits5", 4, natural_size=300),
    **{f"TTPFL {shift}": TTPFL("digits", shift, 10, images=300) for shift in ttpfl.SHIFTS},
    "TTPFL domains": TTPFL("digits5", n_clients=5, held_out="fonts"),
    **{f"UPFL {how}": UPFL("digits", how, 10) for how in upfl.PARTITIONS},
    "Domains": Domains("digits5", n_train=40, n_test=4),
    "Domains unseen": Domains("digits5", "domain", "blend", n_train=40, n_test=4),
}


def made(name: str, root: str | None = None, size: int | None = None, **options) -> Dataset:
    """Noise in the shape of a data set: channels, domains, ten classes, an official test part."""
    n, names = 400, DOMAINS.get(name, tuple("abcd"))
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (n, 1 if name in GREY else 3, 16, 16), dtype=np.uint8)
    called = "pacs64" if name == "pacs" else name
    groups = np.arange(n) // 10 % len(names)
    return Dataset(called, images, np.arange(n) % 10, tuple("0123456789"), groups, names, rng.random(n) < 0.25)


def transform_of(protocol: str, name: str, monkeypatch) -> dict:
    for module in (brfl, brfl_imagenet, btgfl, fedicon, shifts, ttpfl, upfl):
        monkeypatch.setattr(module, "load", made)
    return json.loads(json.dumps(asdict(trained_with(PROTOCOLS[protocol](name).build(0).transform))))


def clients_of(protocol) -> str:
    """Digest of everything that clients train on, and of the labels of their streams in order."""
    benchmark, tensors = protocol.build(0), {}
    for client in benchmark.clients:
        tensors |= {
            f"{client.id} {part} {what}": getattr(getattr(client, part), what) for part in ("train", "val") for what in ("images", "labels")
        }
        tensors |= {f"{client.id} {column} {d}": draw.labels for column, draws in client.tests.items() for d, draw in enumerate(draws)}
    return digest(tensors)


def test_every_data_set_is_recorded():
    for protocol in PROTOCOLS.keys() - {"Domains"}:
        assert list(RECORDED["transforms"][protocol]) == [*EMBEDDED, *DOWNLOADABLE, *FILES]


@pytest.mark.parametrize(("protocol", "name"), [(p, name) for p, names in RECORDED["transforms"].items() for name in names])
def test_transform_is_the_one_of_the_trainings_in_the_cache(protocol, name, monkeypatch):
    assert transform_of(protocol, name, monkeypatch) == RECORDED["transforms"][protocol][name]


@pytest.mark.parametrize("name", ON_DIGITS)
def test_clients_of_the_digits_are_those_of_the_trainings_in_the_cache(name):
    assert clients_of(ON_DIGITS[name]) == RECORDED["clients"][name]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_views_at_test_time_do_not_mirror_digits(protocol):
    transform = PROTOCOLS[protocol]("digits5" if protocol == "Domains" else "digits").build(0).transform
    assert (transform.flip, transform.pad) == (False, 1)
