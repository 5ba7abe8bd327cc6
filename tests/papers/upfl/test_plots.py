import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from fedlib.papers.upfl import plots
from fedlib.papers.upfl.recipes import recipes
from fedlib.plots import charts


def test_steps_mark_the_least_entropy_in_every_panel():
    parts = [pd.DataFrame({"step": range(5), "column": c, "mean": np.roll([1.0, 2, 3, 4, 5], k)}) for k, c in enumerate(plots.LABELS)]
    figure = plots.steps(pd.concat(parts).assign(client=4))
    assert figure.axes[1].get_title() == "new client 4"
    assert len(figure.axes) == 3
    for axis in figure.axes:
        line, mark = axis.lines
        assert len(line.get_xdata()) == 5
        assert mark.get_xdata()[0] == 2


def test_the_client_of_figure_2_is_the_first_that_peaks_inside():
    paths = {3: range(51), 5: [*range(20), *range(31, 0, -1)], 7: [*range(40), *range(11, 0, -1)]}
    frame = pd.DataFrame(
        [{"client": c, "step": t, "column": "accuracy", "mean": v} for c, path in paths.items() for t, v in enumerate(path)]
    )
    assert set(plots.peaked(frame)["client"]) == {5}
    assert set(plots.peaked(frame[frame["client"] == 3])["client"]) == {3}


@pytest.mark.parametrize(("methods", "drawn"), [(("PFL-Sampled", "FedTTA"), ["FedTTA"]), (("PFL-Sampled",), ["PFL-Sampled"])])
def test_pfl_is_drawn_only_where_nothing_else_was_run(methods, drawn):
    frame = pd.DataFrame([{"method": m, "column": c, "mean": 50.0} for m in methods for c in ("validation", "test")])
    assert [text.get_text() for text in plots.rotated(frame).axes[0].get_legend().get_texts()] == drawn


def test_a_line_per_method_over_the_share_of_images():
    frame = pd.DataFrame([{"method": m, "share": s, "mean": 50.0} for m in ("Tent", "FedTTA") for s in (0.1, 1.0)])
    assert [list(line.get_xdata()) for line in plots.shares(frame).axes[0].lines] == [[0.1, 1.0]] * 2


def test_strengths_draw_tent_and_every_lambda_in_order_of_rounds():
    rows = [("Tent", 0.0), ("HeteroFedTTA", 0.0), ("HeteroFedTTA", 0.8)]
    frame = pd.concat([pd.DataFrame({"method": m, "strength": s, "round": [10, 5], "mean": [2.0, 1.0]}) for m, s in rows])
    axis = plots.strengths(frame).axes[0]
    assert len(axis.lines) == 3
    assert [list(line.get_xdata()) for line in axis.lines] == [[5, 10]] * 3
    assert axis.lines[1].get_alpha() < axis.lines[2].get_alpha()


def test_strengths_of_a_single_round_are_points():
    frame = pd.DataFrame({"method": ["Tent", "HeteroFedTTA"], "strength": [0.0, 0.8], "round": 2, "mean": 1.0})
    assert [line.get_marker() for line in plots.strengths(frame).axes[0].lines] == ["o", "o"]
    longer = pd.concat([frame, frame.assign(round=4)])
    assert [line.get_marker() for line in plots.strengths(longer).axes[0].lines] == ["", ""]


def test_learning_curves_have_a_panel_per_data_set_and_column():
    index = pd.MultiIndex.from_product([("mnist", "cifar10"), ("validation", "test"), ("FedAvg", "FedTTA"), (5, 10)])
    frame = index.to_frame(index=False, name=["dataset", "column", "method", "round"]).assign(mean=50.0, status="stand-in")
    figure = plots.learning(frame)
    assert figure.axes[0].get_title() == "in place of\nmnist"
    assert len(figure.axes) == 4
    assert all(len(axis.lines) == 2 for axis in figure.axes)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["FedAvg", "FedTTA"]


def lab(colour):
    """An sRGB colour in the CIE Lab space (white: D65)."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear / [0.9505, 1, 1.089]
    x, y, z = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz * (29 / 6) ** 2 / 3 + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def distance(first, second):
    """Of two colours as they are seen; 2 is just noticed."""
    return np.linalg.norm(lab(first) - lab(second))


def test_no_two_of_the_fourteen_methods_share_a_colour():
    """Bars of Figure 4 and lines of the learning curves, as they are drawn."""
    index = pd.MultiIndex.from_product([("mnist",), ("validation", "test"), recipes(), (5, 10)])
    frame = index.to_frame(index=False, name=["dataset", "column", "method", "round"]).assign(mean=50.0, status="run")
    lines = [line.get_color() for line in plots.learning(frame).axes[0].lines]
    last = frame[frame["round"] == 10]
    bars = charts.bars(last, x="column", hue="method", palette=plots.COLOURS).axes[0].containers
    for colours in (lines, [container[0].get_facecolor() for container in bars]):
        assert len(colours) == 14
        assert min(distance(a, b) for a, b in itertools.combinations(colours, 2)) > 20
