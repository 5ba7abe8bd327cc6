import itertools

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex

from fedlib.plots import verdicts
from fedlib.plots.style import look


@pytest.fixture(autouse=True)
def without_screen():
    mpl.use("Agg")
    yield
    plt.close("all")


def test_gains_are_filled_where_a_test_carries_them():
    rows = [("BRFL", "mean", "BTFL", 5.0, "helps"), ("BRFL", "mean", "EM", -1.0, "undecided"), ("BRFL", "original", "EM", 9.0, "helps")]
    rows += [("UPFL new clients", "test", "EM", -4.0, "hurts"), ("UPFL new clients", "test", "MEMO", 8.0, "too few images")]
    frame = pd.DataFrame(rows, columns=["protocol", "column", "method", "gain", "verdict"]).assign(
        low=lambda f: f["gain"] - 2, high=lambda f: f["gain"] + 2
    )
    figure = verdicts.gains(frame, title="T\nfacts")
    first, second = figure.axes
    assert [axis.get_title() for axis in (first, second)] == ["BRFL", "UPFL new clients"]
    points = {tuple(p.get_offsets()[0]): p for p in (*first.collections, *second.collections)}
    # Methods down: BTFL, EM, MEMO. The mean column only, where there is one.
    assert set(points) == {(5, 0), (-1, 1), (-4, 1), (8, 2)}
    assert to_hex(points[5, 0].get_facecolor()[0]) == look("BTFL").colour.lower()
    assert to_hex(points[-1, 1].get_facecolor()[0]) == "#ffffff"
    spans = {tuple(line.get_xdata()) for axis in (first, second) for line in axis.lines}
    assert {(3, 7), (-3, 1), (-6, -2), (6, 10)} <= spans


def ranked(kind, ranks, critical, friedman=0.001):
    frame = pd.DataFrame({"kind": kind, "method": list(ranks), "rank": list(ranks.values())})
    return frame.assign(blocks=9, n_methods=len(ranks), friedman=friedman, critical=critical)


@pytest.mark.parametrize(
    ("critical", "friedman", "bars"),
    [(0.9, 0.01, [(0, 1), (2, 3)]), (1.76, 0.01, [(0, 2), (1, 3)]), (0.3, 0.01, []), (9.0, 0.01, [(0, 3)]), (0.3, 0.2, [(0, 3)])],
)
def test_bars_join_what_lies_within_the_critical_difference(critical, friedman, bars):
    """Ranks 1, 1.8, 2.75, 3.5; where Friedman does not reject, one bar over all."""
    frame = ranked("new", {"FedAvg": 3.5, "T3A": 1.0, "Tent": 2.75, "EM": 1.8}, critical, friedman)
    assert verdicts._cliques(frame) == bars
    figure = verdicts.critical_differences(frame)
    drawn = [line for line in figure.axes[0].lines if line.get_linewidth() == 3]
    ranks = np.sort(frame["rank"])
    assert [tuple(np.round(line.get_xdata(), 2)) for line in drawn] == [
        (round(ranks[a] - 0.06, 2), round(ranks[b] + 0.06, 2)) for a, b in bars
    ]


def test_one_diagram_per_kind_best_at_the_right():
    both = pd.concat(
        [ranked("labels", {"BTFL": 1.0, "T3A": 2.0, "EM": 3.0}, 1.2), ranked("all", {"T3A": 1.0, "FedAvg": 2.0, "EM": 3.0}, 1.2)]
    )
    figure = verdicts.critical_differences(both)
    assert [axis.get_title().split(":")[0] for axis in figure.axes] == ["clients with labels", "all clients, methods that run everywhere"]
    assert all(axis.xaxis_inverted() for axis in figure.axes)
    assert "BTFL (1.0)" in [text.get_text() for text in figure.axes[0].texts]


def test_the_answer_marks_verdicts_and_tells_prices():
    frame = pd.DataFrame(
        [
            ("none", "BTFL", 5.2, "helps"),
            ("none", "EM", -3.1, "hurts"),
            ("natural", "BTFL", 0.4, "undecided"),
            ("natural", "EM", 9.0, "too few images"),
        ],
        columns=["shift", "method", "gain", "verdict"],
    )
    cost = pd.DataFrame({"method": ["BTFL", "EM"], "seconds": [0.1234, 2.0], "memory": [1.0, 30.0]})
    needs = pd.DataFrame({"method": ["EM", "BTFL"], "labels": ["", "must"], "training": [False, True], "batch_norm": False})
    needs = needs.assign(together=["batch", "one"], passes=[1, 2], sent=["", "a table"])
    axis = verdicts.answer(frame, cost, needs, title="T").axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["EM", "BTFL"]
    assert axis.texts[-1].get_text() == "a table"
    texts = {(round(t.get_position()[0]), round(t.get_position()[1])): t.get_text() for t in axis.texts}
    assert [texts[x, 0] for x in range(8)] == ["▼-3.1", "few", "2", "30", "", "", "", "a batch"]
    assert [texts[x, 1] for x in range(8)] == ["▲+5.2", "+0.4", "0.12", "1", "must", "yes, x 2", "", ""]


def test_the_answer_without_prices():
    frame = pd.DataFrame([("none", "EM", -3.1, "hurts")], columns=["shift", "method", "gain", "verdict"])
    needs = pd.DataFrame(
        {"method": ["EM"], "labels": "", "training": False, "batch_norm": False, "together": "batch", "passes": 1, "sent": ""}
    )
    assert verdicts.answer(frame, pd.DataFrame(), needs).axes[0].get_ylim() == (0.6, -0.6)


def test_halves_hatch_what_does_not_fit():
    rows = [("BRFL", "no batch norm", t, a, 70.0, 3.0) for t, a in itertools.product(("cross-entropy", "FedTTA's"), ("none", "T3A"))][:-1]
    frame = pd.DataFrame(rows, columns=["protocol", "network", "training", "adaptation", "mean", "total"])
    axis = verdicts.halves(frame).axes[0]
    assert [text.get_text() for text in axis.texts] == ["70"] * 3
    assert [(p.get_x() + 0.5, p.get_y() + 0.5) for p in axis.patches if p.get_hatch()] == [(1, 1)]


def test_tuning_joins_both_values_of_a_method():
    rows = [("BRFL", "original", "T3A", 1.0, 4.0), ("BRFL", "ooc", "T3A", 3.0, 4.0), ("BRFL", "original", "EM", -2.0, -1.0)]
    frame = pd.DataFrame(rows, columns=["protocol", "column", "method", "untuned", "tuned"])
    axis = verdicts.tuning(frame).axes[0]
    before, after = (points.get_offsets() for points in axis.collections if len(points.get_offsets()) == 2)
    assert before.tolist() == [[2, 0], [-2, 1]]
    assert after.tolist() == [[4, 0], [-1, 1]]


def test_causes_start_from_what_is():
    frame = pd.DataFrame(
        {"method": "FedTTA", "protocol": "UPFL new clients", "change": ["as it is", "10 x the rounds"], "gain": [-20.0, 4.0]}
    )
    frame = frame.assign(low=frame["gain"] - 1, high=frame["gain"] + 1, p_holm=[0.2, 0.01], mean=[30.0, 95.0], without=[50.0, 91.0])
    axis = verdicts.causes(frame, title="T").axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["as it is (30 against 50)", "10 x the rounds (95 against 91)"]
    faces = [to_hex(points.get_facecolor()[0]) for points in axis.collections]
    assert faces == ["#ffffff", look("FedTTA").colour.lower()]
    assert [line.get_xdata()[0] for line in axis.lines[-2:]] == [-20, 0]
