"""The embedded family: shapes, no leak between domains, fixed pixels, and a shift that is a shift."""

import time

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.svm import SVC

from fedlib.data import digits, load


@pytest.fixture(scope="module")
def handwriting():
    return load("digits")


@pytest.fixture(scope="module")
def five():
    return load("digits5")


def flat(images):
    return images.reshape(len(images), -1) / 255


def test_handwriting(handwriting):
    assert handwriting.images.shape == (1797, 1, 16, 16)
    np.testing.assert_array_equal(handwriting.labels, load_digits().target)
    test = np.bincount(handwriting.labels[handwriting.is_test])
    assert test.sum() == 300
    assert np.abs(test - np.bincount(handwriting.labels) / 6).max() < 1
    # Enlarging is faithful: averaged back over 2 x 2 pixels, every image is scikit-learn's but for the smoothing.
    back = handwriting.images[:, 0].reshape(-1, 8, 2, 8, 2).mean(axis=(2, 4))
    assert min(np.corrcoef(a.ravel(), b.ravel())[0, 1] for a, b in zip(back, load_digits().images, strict=True)) > 0.95


@pytest.mark.parametrize("name", ["digits", "digits_natural", "digits5"])
def test_calls_agree_and_say_what_they_replace(name):
    first, second = load(name), load(name)
    assert first.fingerprint() == second.fingerprint()
    assert first.stand_in
    assert first.classes == tuple("0123456789")


@pytest.mark.parametrize(("name", "seconds"), [("digits", 2), ("digits_natural", 5), ("digits5", 5)])
def test_loading_is_quick(name, seconds):
    start = time.process_time()
    load(name)
    assert time.process_time() - start < seconds


def test_natural_is_a_shift_but_still_digits(handwriting):
    natural = load("digits_natural")
    assert natural.images.shape == (2000, 1, 16, 16)
    assert (np.bincount(natural.labels) == 200).all()
    train, test = handwriting.select(~handwriting.is_test), handwriting.select(handwriting.is_test)
    model = SVC(C=5).fit(flat(train.images), train.labels)
    here, there = (model.score(flat(part.images), part.labels) for part in (test, natural))
    assert here > 0.95
    assert 0.5 < there < here - 0.1


def test_five_domains(five):
    assert five.images.shape == (2247, 3, 16, 16)
    assert five.group_names == ("plain", "clutter", "lowres", "fonts", "blend")
    for group in range(5):
        share = five.select(five.groups == group)
        assert 449 <= len(share) <= 450
        assert np.bincount(share.labels).min() >= 42
        assert np.bincount(share.labels[share.is_test]).min() >= 8
        assert abs(share.is_test.mean() - 0.2) < 0.01


def test_no_handwritten_image_is_in_two_domains(five, handwriting):
    """Domains that keep the ink unmixed can be traced to their sources exactly; the labels of all four add up to the source's."""
    ink = handwriting.images[:, 0]
    places = {}
    for group, traced in ((0, np.repeat(ink[:, None], 3, axis=1)), (2, digits.coarsened(ink))):
        source = {image.tobytes(): i for i, image in enumerate(traced)}
        places[group] = [source[image.tobytes()] for image in five.images[five.groups == group]]
        np.testing.assert_array_equal(handwriting.labels[places[group]], five.labels[five.groups == group])
    assert len({*places[0], *places[2]}) == len(places[0]) + len(places[2])
    np.testing.assert_array_equal(np.bincount(five.labels[five.groups != 3]), np.bincount(handwriting.labels))


def test_domains_differ(five):
    """A model of the plain domain loses on every other; clutter has both polarities."""
    plain = five.select((five.groups == 0) & ~five.is_test)
    model = SVC(C=5).fit(flat(plain.images), plain.labels)
    scores = [model.score(flat(five.images[part]), five.labels[part]) for part in ((five.groups == g) & five.is_test for g in range(5))]
    assert scores[0] > 0.95
    assert max(scores[1], scores[3], scores[4]) < 0.7
    assert scores[2] < scores[0]


def test_coarse_digits_are_brightened_by_half():
    """But for what the enlarging adds to a plain square."""
    grey, bright = (digits.coarsened(np.full((1, 16, 16), ink, np.uint8)).astype(float) for ink in (100, 200))
    assert grey[0, :, 6:10, 6:10] == pytest.approx(150, abs=5)
    assert bright.max() == 255


def test_a_blended_digit_is_its_difference_to_a_photograph():
    """So that black ink shows a patch of it, and white ink the same patch's negative."""
    black, white = (digits._blend(np.full((9, 16, 16), ink, np.uint8), np.random.default_rng(0)) for ink in (0, 255))
    assert (black.astype(int) + white == 255).all()
    assert black.std(axis=(2, 3)).min() > 0


def test_rotation_is_counter_clockwise_and_fills_with_black(handwriting):
    few = handwriting.select(np.arange(4))
    np.testing.assert_array_equal(digits.rotate(few, np.zeros(4)).images, few.images)
    turned = digits.rotate(few, np.array([90, 180, 270, 0]))
    for k, image in enumerate(turned.images):
        np.testing.assert_array_equal(image, np.rot90(few.images[k], (k + 1) % 4, axes=(1, 2)))
    white = digits.rotate(few.__class__("white", np.full((1, 3, 16, 16), 255, np.uint8), np.zeros(1, np.int64), ("0",)), 45.0)
    assert (white.images[:, :, 0, 0] == 0).all()
    assert (white.images[:, :, 8, 8] == 255).all()


def test_every_font_has_ten_different_digits():
    rng = np.random.default_rng(0)
    images = digits.render(np.arange(10).repeat(60), 16, rng, variety=0.0)
    assert (images.max(axis=(1, 2)) > 150).all()
    assert images.shape == (600, 16, 16)
    by_digit = images.reshape(10, -1, 256).astype(int)
    means = by_digit.mean(axis=1)
    distance = np.abs(means[:, None] - means[None]).mean(axis=2)
    assert distance[~np.eye(10, dtype=bool)].min() > 10
