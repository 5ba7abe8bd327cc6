"""What every protocol owes: each generator of the run's seed and of one purpose, and each image with its own label."""

import numpy as np
import pytest
import torch

from fedlib.core import Samples
from fedlib.data import load
from fedlib.protocols import brfl, btgfl, downstream, shifts, validated
from fedlib.protocols.brfl import BRFL
from fedlib.protocols.btgfl import BTGFL
from fedlib.protocols.downstream import Downstream
from fedlib.protocols.validated import Validated
from fedlib.tools.seeding import numpy_generator

WHOLE = BRFL(n_clients=4, alpha=1.0, columns=brfl.COLUMNS)
CASES = [WHOLE, BTGFL(n_clients=4, alpha=1.0, corruption_draws=2), BTGFL(n_clients=4, alpha=1.0, shift_mix="half"), Downstream()]


@pytest.mark.parametrize("of", [*CASES, Validated(BTGFL(n_clients=4, alpha=1.0), choosing=True)], ids=lambda of: type(of).__name__)
def test_every_generator_is_of_the_runs_seed_and_of_one_purpose(of, monkeypatch):
    asked = []
    watching = lambda seed, *purpose: asked.append((seed, *purpose)) or numpy_generator(seed, *purpose)  # noqa: E731
    for module in (brfl, btgfl, downstream, shifts, validated):
        monkeypatch.setattr(module, "numpy_generator", watching)
    of.build(3)
    assert {seed for seed, *_ in asked} == {3}
    assert len(set(asked)) == len(asked)


@pytest.fixture(scope="module")
def labels():
    """By the identity of an image, grey or with three equal channels."""
    found = {}
    for data in map(load, ("digits", "digits_natural", "digits5")):
        for images in (data.images, np.repeat(data.images, 3, axis=1) if data.images.shape[1] == 1 else data.images):
            samples = Samples(torch.from_numpy(images), torch.from_numpy(data.labels))
            found |= dict(zip(samples.identity.tolist(), samples.labels.tolist(), strict=True))
    return found


@pytest.mark.parametrize("of", CASES, ids=lambda of: type(of).__name__)
def test_every_image_keeps_its_label(of, labels):
    """Through partition, corruption, mixing and order: by the identity of the image that it was made of."""
    for client in of.build(0).clients:
        for draws in ((client.train,), (client.val,), *client.tests.values()):
            for samples in draws:
                assert [labels[i] for i in samples.identity.tolist()] == samples.labels.tolist()
