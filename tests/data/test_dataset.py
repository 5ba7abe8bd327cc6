import numpy as np
import pytest

from fedlib.data.dataset import Dataset

IMAGES = np.arange(4 * 2 * 2, dtype=np.uint8).reshape(4, 1, 2, 2)
LABELS = np.array([0, 1, 1, 0])


def made(**fields):
    given = {"name": "tiny", "images": IMAGES, "labels": LABELS, "classes": ("a", "b"), "is_test": np.array([False, False, True, True])}
    return Dataset(**given | fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"images": IMAGES.astype(float)}, r"images must be uint8 \[N, C, H, W\], got float64"),
        ({"images": IMAGES[:, 0]}, r"images must be uint8"),
        ({"labels": LABELS[:3]}, r"labels must be int64 \[4\]"),
        ({"labels": LABELS.astype(np.int32)}, r"labels must be int64 \[4\], got int32"),
        ({"labels": LABELS + 1}, r"labels must lie in 0\.\.1, got 1\.\.2"),
        ({"groups": np.zeros(3, int)}, "groups has 3 entries for 4 images"),
        ({"is_test": np.zeros(5, bool)}, "is_test has 5 entries for 4 images"),
    ],
)
def test_what_does_not_fit_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        made(**fields)


def test_selection_keeps_order_and_everything_else():
    part = made(groups=np.array([5, 6, 7, 8]), stand_in="CIFAR-10").select(np.array([3, 0]))
    assert part.images[:, 0, 0, 0].tolist() == [12, 0]
    assert part.groups.tolist() == [8, 5]
    assert part.is_test.tolist() == [True, False]
    assert (part.name, part.classes, part.stand_in) == ("tiny", ("a", "b"), "CIFAR-10")
    assert len(made().select(made().is_test)) == 2


def test_fingerprint_follows_content_and_order_not_the_name():
    assert made().fingerprint() == made(name="other").fingerprint()
    order = np.array([1, 0, 2, 3])
    changed = {made().select(order).fingerprint(), made(labels=np.array([1, 1, 1, 0])).fingerprint(), made().fingerprint()}
    assert len(changed) == 3


def test_it_introduces_itself_without_its_pixels():
    assert repr(made()) == "tiny: 4 images of 1 x 2 x 2, 2 classes"
    named = made(stand_in="PACS", groups=np.zeros(4, int), group_names=("photo", "art"))
    assert repr(named) == "tiny (stand-in for PACS): 4 images of 1 x 2 x 2, 2 classes, groups photo, art"
