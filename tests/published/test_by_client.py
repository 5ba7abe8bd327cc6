import io
from contextlib import nullcontext
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlib.published.by_client import COLUMNS, by_client, with_units
from tests.published.measured import frame, units


def read_back(table):
    """The table as a reader of its two files has it."""
    clients = pd.read_csv(io.StringIO(by_client(table).round(4).to_csv(index=False)))
    return with_units(table.drop(columns="units"), clients)


values = st.lists(st.lists(st.floats(0, 100), min_size=3, max_size=3), min_size=1, max_size=2)


@given(values, values)
def test_the_file_keeps_what_pairs_are_made_of(ours, cut):
    cut = (cut * 2)[: len(ours)]
    shared = replace(units(ours, cut=cut, weight=[1, 2, 3] * len(ours)), repeats=1.5)
    table = frame(A=replace(shared, cut=replace(shared.cut, repeats=1.25)), B=units(ours, partial=True), C=None)
    again = read_back(table)
    assert again["units"].iloc[2] is None
    for before, after in zip(table["units"][:2], again["units"][:2], strict=True):
        assert (after.keys, after.partial, after.images) == (before.keys, before.partial, before.images)
        assert (after.mean, after.error) == pytest.approx((before.mean, before.error), abs=1e-3, nan_ok=True)
        assert after.on_cut().mean == pytest.approx(before.on_cut().mean, abs=1e-3)
        assert after.on_cut().partial
        assert (after.repeats, after.on_cut().repeats) == (before.repeats, before.on_cut().repeats)


def test_a_row_for_every_seed_and_client_that_is_known():
    clients = by_client(frame(A=units([[50, 60], [70, 80]]), B=None))
    rows = [[0, 0, 50, 50], [0, 1, 60, 50], [1, 0, 70, 50], [1, 1, 80, 50]]
    assert tuple(clients.columns) == COLUMNS
    assert clients[["seed", "client", "accuracy", "n"]].to_numpy().tolist() == rows
    assert len(by_client(frame(B=None))) == 0
    assert len(by_client(frame(B=None).drop(columns="units"))) == 0


def test_clients_of_another_run_are_refused():
    table = frame(A=units([[50, 60]]))
    with pytest.raises(ValueError, match=r"A ooc is 55\.00, and the mean of its clients 65\.00: they are of another run"):
        with_units(table.drop(columns="units"), by_client(frame(A=units([[60, 70]]))))
    for off, alike in ((0.02, False), (0.002, True)):
        clients = by_client(frame(A=units([[50 + off, 60 + off]])))
        with nullcontext() if alike else pytest.raises(ValueError, match="of another run"):
            with_units(table.drop(columns="units"), clients)


def test_files_without_repeats_are_read_as_if_no_image_were_shared():
    table = frame(A=replace(units([[50, 60]]), repeats=1.5))
    older = by_client(table).drop(columns=["repeats", "cut_repeats"])
    assert with_units(table.drop(columns="units"), older)["units"].iloc[0].repeats == 1
