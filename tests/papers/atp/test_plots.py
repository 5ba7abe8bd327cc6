from itertools import product

import numpy as np
import pandas as pd

from fedlib.papers.atp import plots as charts
from fedlib.papers.atp import toy as atp_toy
from fedlib.papers.atp.recipes import RECIPES
from fedlib.protocols.ttpfl import TTPFL

SHIFTS = ("feature shift", "label shift", "hybrid shift")


def heights(axis):
    return [bar.get_height() for container in axis.containers for bar in container]


def test_clients_shows_sources_and_targets_of_every_shift():
    benchmarks = {f"{s} shift": TTPFL("digits", s, n_clients=20).build(0) for s in ("feature", "label")}
    figure = charts.clients(pd.DataFrame(), benchmarks=benchmarks, title="title")
    tops = [axis for axis in figure.axes if axis.get_xlabel()]
    assert [axis.get_title() for axis in tops] == list(benchmarks)
    assert [len(points.get_offsets()) for points in tops[0].collections] == [16 * 10, 4 * 10]
    labels = [axis.get_ylabel() for axis in figure.axes if axis.images]
    assert labels[6:] == ["0: clean", "1: clean", "2: clean", "16: clean", "17: clean", "18: clean"]


def test_clients_shows_as_many_targets_as_there_are():
    few = charts.clients(pd.DataFrame(), benchmarks={"label shift": TTPFL("digits", "label", n_clients=5).build(0)}, title="title")
    assert [axis.get_ylabel() for axis in few.axes if axis.images] == ["0: clean", "1: clean", "2: clean", "4: clean"]


def test_trade_off_has_one_point_per_method_and_lines_through_no_adaptation():
    rows = [(m, s, v) for (m, v), s in product({"NoAdapt": 60, "EM": 70}.items(), SHIFTS[:2])]
    frame = pd.DataFrame(rows, columns=["method", "setting", "mean"])
    axis = charts.trade_off(frame, "title").axes[0]
    assert [line.get_label() for line in axis.lines[:2]] == ["NoAdapt", "EM"]
    assert [line.get_xydata()[0].tolist() for line in axis.lines[2:]] == [[60, 0], [0, 60]]
    assert axis.lines[0].get_markersize() == axis.lines[1].get_markersize()


def test_trade_off_tells_all_methods_apart_also_at_one_place():
    rows = [(m, s, 60) for m, s in product(RECIPES, SHIFTS[:2])]
    axis = charts.trade_off(pd.DataFrame(rows, columns=["method", "setting", "mean"]), "title").axes[0]
    points = axis.lines[: len(RECIPES)]
    assert len({line.get_color() for line in points}) == len(RECIPES)
    assert len({line.get_marker() for line in points}) == len(RECIPES)
    # The later is the smaller and lies above.
    assert (np.diff([line.get_markersize() for line in points]) < 0).all()
    assert (np.diff([line.get_zorder() for line in points]) > 0).all()
    assert min(line.get_zorder() for line in axis.lines[len(RECIPES) :]) >= 2


def test_module_sets_marks_negative_rates():
    rows = [("none", "none", 0.0)] + [("type", "running mean", r) for r in (-1.0, 1.0)] + [("block", "head", 0.1)]
    columns = ["grouping", "modules", "rate", "setting", "mean"]
    frame = pd.DataFrame([(*row, s, 70 + row[2]) for row in rows for s in SHIFTS[:2]], columns=columns)
    left, right = charts.module_sets(frame, "title").axes
    full, hollow = left.collections[:2]
    assert full.get_offsets().tolist() == [[71, 71]]
    assert hollow.get_offsets().tolist() == [[69, 69]]
    assert not len(hollow.get_facecolor())
    assert right.collections[0].get_offsets().tolist() == [[70.1, 70.1]]


def test_module_sets_stay_inside_the_frame():
    rows = [("none", "none", 0.0, 0)] + [("type", "running mean", r, v) for r, v in ((-1.0, -60), (1.0, 2))] + [("block", "head", 0.1, 1)]
    frame = pd.DataFrame(
        [(*row[:3], s, 70 + (row[3] if s == SHIFTS[0] else 0)) for row in rows for s in SHIFTS[:2]],
        columns=["grouping", "modules", "rate", "setting", "mean"],
    )
    axis = charts.module_sets(frame, "title").axes[0]
    edge = 70 - charts.FRAME
    line = axis.lines[0].get_xydata()
    assert line[:, 0].min() == edge == axis.get_xlim()[0]
    full, hollow, beyond = axis.collections[:3]
    assert full.get_offsets().tolist() == [[72, 70]]
    assert not len(hollow.get_offsets())
    assert beyond.get_offsets().tolist() == [[edge, 70]]


def test_rates_are_bars_of_groups_and_dots_of_modules():
    members = pd.DataFrame({"name": ["a", "b"], "block": ["stem", "head"], "type": ["convolution", "last weight"]})
    groups = [("block", "stem", 0.2), ("block", "head", -0.1), ("type", "convolution", 0.2), ("type", "last weight", -0.1)]
    rows = [(s, *g) for s in SHIFTS for g in [*groups, ("module", "a", 0.2), ("module", "b", -0.1)]]
    left, right = charts.rates(pd.DataFrame(rows, columns=["setting", "grouping", "modules", "mean"]), members, "title").axes
    assert heights(left) == heights(right) == [0.2, -0.1] * 3
    assert [tick.get_text() for tick in right.get_xticklabels()] == ["convolution", "last weight"]


def test_sizes_and_losses_draw_one_line_per_method_and_kind():
    rows = [(c, n, m, 60 + n) for c in ("cohort", "batch") for n in (5, 20) for m in ("NoAdapt", "ATP-online")]
    figure = charts.sizes(pd.DataFrame(rows, columns=["column", "size", "method", "mean"]), "title")
    assert [[line.get_label() for line in axis.lines] for axis in figure.axes] == [["NoAdapt", "ATP-online"]] * 2
    rows = [(c, r, k, 1 / (r + 1)) for c in (4, 16) for r in range(3) for k in ("train", "test")]
    figure = charts.losses(pd.DataFrame(rows, columns=["cohort", "round", "column", "mean"]), "title")
    assert [axis.get_title() for axis in figure.axes] == ["cohort 16", "cohort 4"]
    assert figure.axes[0].lines[1].get_ydata().tolist() == [1, 1 / 2, 1 / 3]


def test_corruptions_keep_grey_and_colour():
    for channels in (1, 3):
        pictures = {f"kind_{i}": np.full((5, channels, 8, 8), 10 * i, np.uint8) for i in range(5)}
        first, second = charts.corruptions(pd.DataFrame(), pictures=pictures, split=3, title="title").axes
        # A white line follows every picture, right and below.
        assert first.images[0].get_array().shape[:2] == (45, 27)
        assert [tick.get_text() for tick in second.get_xticklabels()] == ["kind\n3", "kind\n4"]


def test_toy_has_five_panels_with_their_accuracies():
    figure = charts.toy(atp_toy.histograms(n=2000), "title")
    assert len(figure.axes) == 5
    assert figure.axes[0].get_title().startswith("(a) training: 8")
    assert figure.axes[4].get_title().startswith("(e) test, rate -0.5: 9")


def test_long_titles_are_broken():
    figure = charts.toy(atp_toy.histograms(n=200), "word " * 80)
    assert "\n" in figure.get_suptitle()
