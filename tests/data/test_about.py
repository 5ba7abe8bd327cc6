from dataclasses import replace

import pytest

from fedlib.augment.views import CONTRASTIVE
from fedlib.data import DOWNLOADABLE, EMBEDDED, FILES, about, counts
from fedlib.data.about import RECORDS, About, described, is_own, recorded
from fedlib.data.dataset import Dataset

NAMES = (*EMBEDDED, *DOWNLOADABLE, *FILES)


@pytest.mark.parametrize("name", NAMES)
def test_every_data_set_describes_itself(name):
    record = about(name)
    assert record is RECORDS[name]
    assert record.shown
    assert record.views in CONTRASTIVE
    assert not record.own
    # A natural shift is another data set of the kit, a domain held out is one of its own.
    assert record.natural in ("", *NAMES)
    assert record.held_out in ("", *record.domains)


def test_names_that_results_carry():
    assert recorded("pacs64").shown == "PACS (64 px)"
    assert recorded("pacs64").printed == ""
    assert recorded("cifar10_jpeg_rotated").shown == "CIFAR-10 (JPEG), rotated"
    assert is_own("mine.npz")
    assert is_own("photographs/_rotated")
    assert not is_own("cifar10")


def test_ones_own_images_stand_in_for_no_others():
    assert [counts(name, ["cifar10"]) for name in ("cifar10", "digits", "mine.npz")] == [True, False, True]


def test_the_statistics_of_a_code_or_what_was_measured_or_the_default():
    record = About("x", statistics={"fedthe": ((0.1,), (0.2,))})
    assert record.scaling("fedthe", 1, (0.5, 0.5)) == ((0.1,), (0.2,))
    assert record.scaling("upfl", 2, (0.5, 0.25)) == ((0.5, 0.5), (0.25, 0.25))
    assert replace(record, statistics={"measured": ((0.3,), (0.4,))}).scaling("upfl", 1, (0.5, 0.5)) == ((0.3,), (0.4,))


def test_what_is_lacking_is_said_by_name():
    assert About("mine.npz", own=True).lacks("natural shift") == "mine.npz has no natural shift"
    assert About("mine.npz", own=True, held_out="ink", domains=("ink",)).lacks("natural shift") == ""
    assert about("cifar10").lacks("domains") == f"{about('cifar10').shown} has no domains"


def test_a_loader_marks_what_its_images_stand_in_for(monkeypatch):
    monkeypatch.setitem(RECORDS, "copy", About("copy"))
    data = EMBEDDED["digits"]()
    load = described("copy", stand_in="the moon")(lambda: replace(data, stand_in=""))
    assert isinstance(load(), Dataset)
    assert load().stand_in == "the moon"
