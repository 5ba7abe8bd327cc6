import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from fedlib.augment import tone


def pil(images, operation):
    """Channel by channel: PIL treats the channels of an RGB image separately too."""
    channels = images.flatten(0, 1).numpy()
    return torch.from_numpy(np.stack([np.asarray(operation(Image.fromarray(c))) for c in channels])).view_as(images)


@st.composite
def batches(draw):
    """Images of few or many grey levels, flat channels included, below and above the size at which equalize acts."""
    size, low = draw(st.sampled_from([5, 16, 23, 32])), draw(st.integers(0, 255))
    high = draw(st.integers(low, 255))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    return torch.from_numpy(rng.integers(low, high + 1, (3, 3, size, size), dtype=np.uint8))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (tone.autocontrast, ImageOps.autocontrast),
        (tone.equalize, ImageOps.equalize),
        (tone.posterize, lambda image: ImageOps.posterize(image, 4)),
    ],
)
@settings(deadline=None, max_examples=25)
@given(images=batches())
def test_equals_pil_to_the_grey_level(ours, theirs, images):
    assert torch.equal(ours(images), pil(images, theirs))


@settings(deadline=None, max_examples=25)
@given(images=batches(), threshold=st.integers(0, 255))
def test_solarize_equals_pil(images, threshold):
    thresholds = torch.tensor([threshold, 0, 255])
    want = torch.cat(
        [pil(image[None], lambda c, t=t: ImageOps.solarize(c, t)) for image, t in zip(images, thresholds.tolist(), strict=True)]
    )
    assert torch.equal(tone.solarize(images, thresholds), want)
