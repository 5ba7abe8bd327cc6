"""Streams are in a random order, however the files were sorted: counted by runs of equal labels, in every protocol."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlib.core import Samples
from fedlib.data import load
from fedlib.protocols import downstream, fedicon
from fedlib.protocols.brfl import BRFL
from fedlib.protocols.brfl_imagenet import BRFLImageNet
from fedlib.protocols.btgfl import BTGFL
from fedlib.protocols.downstream import Downstream
from fedlib.protocols.fedicon import Domains
from fedlib.protocols.shifts import in_random_order
from fedlib.protocols.ttpfl import SHIFTS, TTPFL
from fedlib.protocols.upfl import UPFL
from fedlib.published.units import units_of
from fedlib.tools.seeding import numpy_generator

PROTOCOLS = {
    "BRFL": BRFL("digits", 6, 1.0, natural_size=300),
    "BRFL, half of the tests": BRFL("digits", 6, 1.0, natural_size=300, test_size=0.5),
    "BRFL, ImageNet's tests": BRFLImageNet("digits", 6),
    "BTGFL": BTGFL("digits", 6, 1.0, natural_size=300),
    "BTGFL, domains": BTGFL("digits5", 6, 1.0),
    **{f"TTPFL {shift}": TTPFL("digits", shift, 20) for shift in SHIFTS},
    "TTPFL, domains": TTPFL("digits5", "hybrid", 4, held_out="fonts"),
    **{f"UPFL {name}": UPFL("digits", name, 10) for name in ("pathological", "superclass", "natural", "public", "dirichlet")},
    "UPFL concept": UPFL("digits", "concept", 10, shards=10),
    "FedICON covariate": Domains("digits5", n_train=30),
    "FedICON covariate, parts": Domains("digits5", n_train=30, n_clients=10),
    "FedICON domain": Domains("digits5", "domain", "fonts", n_train=30),
    "downstream": Downstream(),
}


def excess(streams: list[np.ndarray]) -> float:
    """Runs of equal labels beyond what a random order of the same labels has, in standard deviations, over all streams.

    Mean and variance of the number of neighbours that differ, from the counts n_c of the classes (Wald and Wolfowitz for many classes).
    """
    surplus = variance = 0.0
    for labels in streams:
        n, counts = len(labels), np.unique(labels, return_counts=True)[1].astype(float)
        if n < 3 or len(counts) == 1:
            continue
        squares, cubes = (counts**2).sum(), (counts**3).sum()
        surplus += (labels[1:] != labels[:-1]).sum() - (n**2 - squares) / n
        variance += (squares * (squares + n * (n + 1)) - 2 * n * cubes - n**3) / (n**2 * (n - 1))
    return surplus / np.sqrt(variance)


def labels_of(benchmark) -> list[np.ndarray]:
    return [draw.labels.numpy() for client in benchmark.clients for draws in client.tests.values() for draw in draws]


def by_class(name, *rest, **options):
    """A data set whose files are sorted by domain and class, as image folders are."""
    data = load(name, *rest, **options)
    return data.select(np.lexsort((data.labels, *(() if data.groups is None else (data.groups,)))))


@pytest.mark.parametrize("name", PROTOCOLS)
@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_streams_have_as_many_runs_as_a_random_order(name, seed):
    assert abs(excess(labels_of(PROTOCOLS[name].build(seed)))) < 5


@pytest.mark.parametrize("name", [name for name in PROTOCOLS if name.startswith("FedICON")])
def test_folders_sorted_by_class_too(name, monkeypatch):
    monkeypatch.setattr(fedicon, "load", by_class)
    assert abs(excess(labels_of(PROTOCOLS[name].build(0)))) < 5


def test_sorted_domains_of_the_downstream_study(monkeypatch):
    monkeypatch.setattr(downstream, "load", by_class)
    (*_, target) = Downstream().build(0).clients
    for draws in target.tests.values():
        assert abs(excess([draws[0].labels.numpy()])) < 5


@given(n=st.integers(30, 300), classes=st.integers(2, 10), seed=st.integers(0, 10**6))
def test_the_count_tells_random_from_sorted(n, classes, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=n)
    labels[:classes] = np.arange(classes)
    shuffled = rng.permutation(labels)
    assert abs(excess([shuffled])) < 6
    assert excess([np.sort(labels)]) < min(-3, excess([shuffled]))


def test_each_stream_has_a_generator_of_its_own():
    samples = Samples(torch.arange(40), torch.arange(40))
    tests = in_random_order({"a": (samples, samples), "b": (samples,)}, 3, 5)
    alone = in_random_order({"b": (samples,)}, 3, 5)
    assert torch.equal(tests["b"][0].images, alone["b"][0].images)
    assert tests["b"][0].images.tolist() == numpy_generator(3, "order", "b", 5, 0).permutation(40).tolist()
    orders = [*tests["a"], *tests["b"], *in_random_order({"b": (samples,)}, 3, 6)["b"]]
    assert len({tuple(draw.images.tolist()) for draw in orders}) == 4
    assert all(torch.equal(draw.images, draw.labels) for draw in orders)


def test_clients_share_images_of_others():
    """By how much the margin of a mean over clients grows for the images that they share (figures/FINDINGS.md)."""
    found = {}
    for protocol in (BRFL("digits", 20, 0.1, natural_size=300), BTGFL("digits", 20, 0.1, natural_size=300)):
        benchmark = protocol.build(0)
        for column in benchmark.columns:
            seen = [client.tests[column][0].identity for client in benchmark.clients]
            rows = pd.DataFrame({"column": column, "seed": 0, "client": range(len(seen)), "n": [len(test) for test in seen], "seen": seen})
            (units,) = units_of(rows.assign(draw=0, accuracy=np.arange(20.0)), ["column"])
            found[column] = units.error / replace(units, repeats=1.0).error
    assert all(found[column] == pytest.approx(1, abs=0.02) for column in ("original", "corrupted", "original_ind"))
    assert all(1.35 < found[column] < 1.55 for column in ("ooc", "original_exd", "shifted_exd"))
    assert all(1.15 < found[column] < 1.35 for column in ("mixture", "synthetical"))
