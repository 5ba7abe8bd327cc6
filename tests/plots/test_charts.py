import itertools
from dataclasses import replace

import matplotlib as mpl

mpl.use("Agg")
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer
from matplotlib.patches import StepPatch

from fedlib.augment.transform import Transform
from fedlib.core import Benchmark, Client, Samples
from fedlib.papers.fedthe import plots as fedthe
from fedlib.plots import charts
from fedlib.plots.style import SHIFTS, look

METHODS, COLUMNS = ("FedAvg", "T3A", "FedTHE"), ("original", "ooc")


@pytest.fixture
def frame():
    """Every method in every column at two rounds and in two settings."""
    names = ["method", "column", "round", "setting"]
    index = pd.MultiIndex.from_product([METHODS, COLUMNS, (1, 5), ("Dir(0.1)", "Dir(1.0)")], names=names)
    return pd.DataFrame({"mean": np.linspace(20, 90, len(index)), "std": 2.0}, index).reset_index()


@pytest.fixture
def density():
    parts = [pd.DataFrame({"method": m, "column": c, "weight": [0.25, 0.75], "density": [0.5, 1.5]}) for m in METHODS[:2] for c in COLUMNS]
    return pd.concat(parts, ignore_index=True)


def assert_legend_is_clear(figure):
    """No legend lies over an axis' data area."""
    figure.canvas.draw()
    legends = [axis.get_legend() for axis in figure.axes if axis.get_legend()]
    assert legends
    for legend in legends:
        assert not any(legend.get_window_extent().overlaps(axis.get_window_extent()) for axis in figure.axes)


def entries(figure):
    return [text.get_text() for axis in figure.axes if axis.get_legend() for text in axis.get_legend().get_texts()]


def test_curves(frame):
    one = frame[(frame["setting"] == "Dir(0.1)") & ~((frame["method"] == "T3A") & (frame["column"] == "ooc"))]
    figure = charts.curves(one, "round", "column", xlabel="round", title="Figure 8\nfacts")
    assert [axis.get_title() for axis in figure.axes] == list(COLUMNS)
    first = figure.axes[0].get_lines()
    assert [line.get_label() for line in first] == list(METHODS)
    assert [line.get_color() for line in first] == [look(m).colour for m in METHODS]
    np.testing.assert_array_equal(first[0].get_ydata(), one[(one["method"] == "FedAvg") & (one["column"] == "original")]["mean"])
    assert entries(figure) == list(METHODS)
    assert_legend_is_clear(figure)


def test_curves_over_words_keep_them(frame):
    one = frame[(frame["setting"] == "Dir(0.1)") & (frame["round"] == frame["round"].max())]
    figure = charts.curves(one, "column", "setting", xlabel="")
    figure.canvas.draw()
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == list(COLUMNS)


def test_densities(density):
    figure = charts.densities(density[density["method"] == "FedAvg"], xlabel="1 - e", title="Figure 17")
    steps = [patch for patch in figure.axes[0].patches if isinstance(patch, StepPatch)]
    assert [to_hex(step.get_edgecolor()) for step in steps] == [SHIFTS[c].lower() for c in COLUMNS]
    # The bins fill the range.
    assert (steps[0].get_data().edges[0], steps[0].get_data().edges[-1]) == figure.axes[0].get_xlim() == (0, 1)
    assert_legend_is_clear(figure)


def test_bars(frame):
    one = frame[(frame["round"] == 5) & (frame["setting"] == "Dir(0.1)")]
    figure = charts.bars(one, x="column", hue="method")
    groups = [c for c in figure.axes[0].containers if isinstance(c, BarContainer)]
    heights = [[bar.get_height() for bar in group] for group in groups]
    np.testing.assert_allclose(heights, one.pivot_table(index="method", columns="column", values="mean", sort=False))
    assert len(figure.axes[0].containers) - len(groups) == len(METHODS)
    assert entries(figure) == list(METHODS)
    assert_legend_is_clear(figure)


def test_pictures_say_what_bands_and_error_bars_are(frame):
    one = frame[(frame["round"] == 5) & (frame["setting"] == "Dir(0.1)")]
    told = "facts\n{}: one standard deviation over seeds."
    assert charts.bars(one, x="column", hue="method", title="T\nfacts").texts[-1].get_text() == told.format("Error bars")
    curves = charts.curves(frame, "round", "setting", xlabel="round", title="T\nfacts")
    assert curves.texts[-1].get_text() == told.format("Bands and error bars")
    bare = charts.bars(one.assign(std=np.nan), x="column", hue="method", title="T\nfacts")
    assert bare.texts[-1].get_text() == "facts"
    other = charts.bars(one, x="column", hue="method", title="T\nfacts", spread="standard deviation over the tests")
    assert other.texts[-1].get_text().endswith("one standard deviation over the tests.")


def test_a_bar_that_was_not_run_takes_no_others_deviation():
    given = {("a", "x"): (1.0, 0.1), ("b", "x"): (2.0, 0.2), ("b", "y"): (3.0, 0.3), ("a", "z"): (4.0, 0.4), ("b", "z"): (5.0, 0.5)}
    frame = pd.DataFrame([{"method": m, "x": x, "mean": mean, "std": std} for (m, x), (mean, std) in given.items()])
    figure = charts.bars(frame, x="x", hue="method")
    found = [tuple(segment[:, 1]) for lines in figure.axes[0].collections for segment in lines.get_segments()]
    assert sorted(np.round(found, 6).tolist()) == sorted([round(m - s, 6), round(m + s, 6)] for m, s in given.values())


def test_what_was_not_run_has_no_bars_and_no_entry():
    rows = [{"column": "original", "method": m, "mean": v} for m, v in (("FedAvg", 50.0), ("GMA", np.nan), ("FedTHE", 60.0))]
    figure = charts.bars(pd.DataFrame(rows), x="column", hue="method")
    assert entries(figure) == ["FedAvg", "FedTHE"]
    plt.close(figure)


def test_names_below_bars_do_not_meet():
    names = ["original", "corrupted", "ooc", "natural", "mixture"]
    frame = pd.DataFrame([{"column": c, "method": m, "mean": 50.0} for c in names for m in ("FedAvg", "FedTHE", "RunningPrior")])
    with plt.rc_context(mpl.rcParamsDefault):
        figure = charts.bars(frame, x="column", hue="method", title="five\nfacts")
        figure.canvas.draw()
        boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_repeated_colours_get_hatches():
    palette = {"a": "red", "b": "red", "c": "blue"}
    frame = pd.DataFrame({"x": "x", "method": list("abc"), "mean": [1.0, 2.0, 3.0]})
    figure = charts.bars(frame, x="x", hue="method", palette=palette)
    assert [container[0].get_hatch() for container in figure.axes[0].containers] == ["", "//", ""]
    assert [patch.get_hatch() for patch in figure.axes[0].get_legend().get_patches()] == ["", "//", ""]


def test_clients_and_shifts():
    def samples(n):
        return Samples(torch.zeros(n, 1, 4, 4, dtype=torch.uint8), torch.arange(n) % 2)

    clients = tuple(Client(k, samples(3 + k), samples(1), {c: (samples(8),) for c in COLUMNS}) for k in range(2))
    benchmark = Benchmark(clients, Transform((0.5,), (0.5,)), (1, 4, 4), ("0", "1"), "toy", "CIFAR-10")
    figure = charts.clients_and_shifts(benchmark)
    dots, first, second = figure.axes
    assert dots.get_title() == "training samples per client, largest dot 2"
    assert dots.collections[0].get_sizes().tolist() == [160, 80, 160, 160]
    assert all(tick == int(tick) for tick in dots.get_xticks())
    assert (first.get_ylabel(), second.get_ylabel()) == COLUMNS
    assert first.images[0].get_array().shape == (4, 24)
    trains_only = Client(0, samples(3), samples(1), {})
    figure = charts.clients_and_shifts(replace(benchmark, clients=(trains_only, clients[1])))
    assert figure.subfigs[1].get_suptitle() == "test streams of client 1"


def test_heatmaps():
    index = pd.MultiIndex.from_product([COLUMNS, (0.05, 0.1), (0.1, 0.3)], names=["column", "alpha", "beta"])
    figure = fedthe.heatmaps(pd.DataFrame({"mean": np.arange(8.0)}, index).reset_index(), x="beta", y="alpha", title="Figure 16")
    assert [axis.get_title() for axis in figure.axes] == list(COLUMNS)
    assert [text.get_text() for text in figure.axes[1].texts] == ["4.0", "5.0", "6.0", "7.0"]


def test_interpolation():
    rows = [("shared", 0.0, 50), ("shared", 1.0, 60), ("oracle", np.nan, 70), ("FedTHE", np.nan, 68)]
    frame = pd.DataFrame(rows, columns=["method", "weight", "mean"])
    both = pd.concat([frame.assign(setting=s) for s in ("Dir(0.1)", "Dir(1.0)")])
    figure = fedthe.interpolation(both, xlabel="e")
    assert [axis.get_title() for axis in figure.axes] == ["Dir(0.1)", "Dir(1.0)"]
    shared, oracle, ours = figure.axes[0].get_lines()
    assert shared.get_ydata().tolist() == [50, 60]
    assert oracle.get_ydata() == [70, 70]
    assert ours.get_color() == look("FedTHE").colour
    assert "best weight per client (oracle)" in entries(figure)
    assert_legend_is_clear(figure)


def test_embedding():
    frame = pd.DataFrame({"method": ["z"] * 3 + ["z'"] * 3, "label": [0, 1, 1] * 2, "x": np.arange(6.0), "y": 0.0})
    figure = fedthe.embedding(frame)
    assert [axis.get_title() for axis in figure.axes] == ["z", "z'"]
    assert [len(points.get_offsets()) for points in figure.axes[0].collections] == [1, 2]
    assert entries(figure) == ["0", "1"]
    assert_legend_is_clear(figure)


def test_density_panels(density):
    figure = charts.densities(density, xlabel="1 - e", panels="method")
    assert [axis.get_title() for axis in figure.axes] == list(METHODS[:2])
    assert [len(axis.patches) for axis in figure.axes] == [len(COLUMNS)] * 2
    assert [axis.get_xlabel() for axis in figure.axes] == ["1 - e"] * 2
    assert entries(figure) == list(COLUMNS)
    assert_legend_is_clear(figure)


def test_curves_with_their_deviation():
    """A band where the line has a range, an error bar at one point and at names; nothing where there is one seed."""
    frame = pd.DataFrame({"method": "FedAvg", "column": "test", "clients": [5, 10], "mean": [60.0, 50.0], "std": [2.0, 1.0]})
    (area,) = charts.curves(frame, "clients", "column", xlabel="clients").axes[0].collections
    corners = {tuple(corner) for corner in area.get_paths()[0].vertices}
    assert corners == {(5, 58), (5, 62), (10, 49), (10, 51)}
    for several in (frame[:1], frame.assign(clients=["few", "many"])):
        (bars,) = charts.curves(several, "clients", "column", xlabel="clients").axes[0].collections
        assert [tuple(segment[:, 1]) for segment in bars.get_segments()] == [(58, 62), (49, 51)][: len(several)]
    plain = charts.curves(frame.assign(std=np.nan), "clients", "column", xlabel="clients").axes[0]
    assert not plain.collections
    assert [text.get_text() for text in plain.get_legend().get_texts()] == ["FedAvg"]


def test_a_method_with_one_point_is_its_marker_alone():
    frame = pd.DataFrame({"round": [1, 2, 2], "method": ["FedAvg", "FedAvg", "MEMO-P"], "column": "original", "mean": [1.0, 2.0, 3.0]})
    figure = charts.curves(frame, "round", "column", xlabel="round")
    legend = {line.get_label(): line.get_linestyle() for line in figure.axes[0].get_lines()}
    assert legend["FedAvg"] != "None"
    assert legend["MEMO-P"] == "None"
    assert figure.axes[0].get_lines()[1].get_markerfacecolor() == "none"
