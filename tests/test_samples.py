import numpy as np
import torch

from fedlib.samples import Samples, joined
from tests import tiny


def test_the_same_image_is_known_wherever_it_is():
    samples = tiny.samples(9)
    assert len(np.unique(samples.identity)) == 9
    order = np.array([3, 1, 8])
    assert samples.at(order).identity.tolist() == samples.identity[order].tolist()
    assert samples.at(torch.tensor(order)).identity.tolist() == samples.identity[order].tolist()
    assert samples.head(4).identity.tolist() == samples.identity[:4].tolist()
    assert samples.to("cpu").identity.tolist() == samples.identity.tolist()
    changed = samples.images.clone()
    changed[2, 0, 0, 0] ^= 1
    assert np.flatnonzero(Samples(changed, samples.labels).identity != samples.identity).tolist() == [2]


def test_what_is_made_of_an_image_counts_as_that_image():
    samples = tiny.samples(5)
    dark = Samples(samples.images // 2, samples.labels, samples.identity)
    assert dark.identity.tolist() == samples.identity.tolist()
    assert dark.at(np.array([4, 0])).identity.tolist() == samples.identity[[4, 0]].tolist()
    assert joined(samples.head(2), dark).identity.tolist() == [*samples.identity[:2], *samples.identity]
    assert joined(samples.head(2), samples).origin is None
    assert Samples(samples.images // 2, samples.labels).identity.tolist() != samples.identity.tolist()


def test_no_images():
    nothing = tiny.samples(3).head(0)
    assert nothing.identity.shape == (0,)
    assert len(joined(nothing, nothing)) == 0
