import itertools

import numpy as np
import pandas as pd
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from fedlib.papers.comparison import plots
from fedlib.papers.comparison.recipes import NONE, PLAIN
from fedlib.plots.style import look

CELLS = pd.DataFrame(
    [
        ("BRFL", "original", "FedAvg", 80.0, 0.0),
        ("BRFL", "ooc", "FedAvg", 70.0, 0.0),
        ("TTPFL label", "test", "FedAvg", 60.0, 0.0),
        ("BRFL", "original", "BTFL", 90.0, 10.0),
        ("BRFL", "ooc", "BTFL", 50.0, -20.0),
        ("TTPFL label", "test", "BTFL", None, None),
    ],
    columns=["protocol", "column", "method", "mean", "gain"],
)


def test_heatmaps_number_what_ran_and_hatch_what_did_not():
    figure = plots.heatmaps(CELLS, title="T\nfacts")
    accuracy, gain = figure.axes[:2]
    texts = [text.get_text() for text in gain.texts]
    assert texts == ["0", "0", "0", "+10", "-20"]
    assert all("Bold" not in text.get_text() and "†" not in text.get_text() for text in figure.texts)
    sure = plots.heatmaps(CELLS.assign(verdict=["", "", "", "helps", "undecided", ""]), title="T\nfacts")
    assert sure.texts[1].get_text() == "facts\nBold: differs from no adaptation (corrected test).\nHatched: not run."
    assert [label.get_text() for label in gain.get_xticklabels()] == ["own images", "others' images", "new client: labels"]
    assert [t.get_text() for t in accuracy.texts if t.get_text().isdigit()] == ["80", "70", "60", "90", "50"]
    assert {"BRFL", "TTPFL label"} < {t.get_text() for t in accuracy.texts}
    for axis in (accuracy, gain):
        hatched = [patch for patch in axis.patches if isinstance(patch, Rectangle) and patch.get_hatch()]
        assert [(patch.get_x() + 0.5, patch.get_y() + 0.5) for patch in hatched] == [(2, 1)]
    scale = gain.images[0].norm
    assert scale.vmin == -scale.vmax


def test_methods_on_cut_streams_have_a_dagger_and_its_meaning():
    """Their accuracy is on fewer images than the baseline's, so that it and the gain do not add up."""
    cut = CELLS.assign(images=[200.0, 200, 200, 200, 16, None])
    figure = plots.heatmaps(cut, title="T\nfacts")
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["FedAvg", "BTFL †"]
    assert figure.texts[1].get_text().split("\n")[1] == "†: accuracy on the first images of each stream; the gain is on the same images."
    plain = plots.heatmaps(CELLS.replace({"FedAvg": PLAIN}))
    assert plain.axes[0].get_yticklabels()[0].get_text() == "FedAvg, on FedTTA's network"


def test_numbers_are_readable_on_their_colour():
    """Light cells have black numbers, dark ones white."""
    figure = plots.heatmaps(CELLS.assign(mean=[0.0, 100.0, 50.0, 0.0, 100.0, None]))
    colours = {text.get_text(): text.get_color() for text in figure.axes[0].texts}
    assert (colours["0"], colours["100"]) == ("white", "black")


def test_cost_marks_the_other_network():
    frame = pd.DataFrame({"method": ["BTFL", "FedTTA"], "seconds": [0.123, 151.0], "seconds_std": [0.01, 1.0], "gain": [3.0, -2.0]})
    frame = frame.assign(protocol="BRFL", gain_std=[0.5, 1.5], images=[400, 40])
    figure = plots.gain_and_cost(frame, plain=["FedTTA"], few=200)
    axis = figure.axes[0]
    assert axis.get_xscale() == "log"
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["BTFL (0.12 s)", "FedTTA (150 s, 40 images)"]
    filled = [len(points.get_facecolor()) > 0 for points in axis.collections if points.get_label().startswith(("BTFL", "FedTTA"))]
    assert filled == [True, False]
    bars = [(line[0][1], line[1][1]) for points in axis.collections if hasattr(points, "get_segments") for line in points.get_segments()]
    assert {(2.5, 3.5), (-3.5, -0.5)} <= set(bars)
    baseline = plots.gain_and_cost(frame.replace({"method": {"BTFL": PLAIN}})).axes[0].get_legend().get_texts()[0]
    assert baseline.get_text() == "FedAvg, on FedTTA's network (0.12 s)"
    three = pd.concat([frame.assign(protocol=name) for name in ("BRFL", "BTGFL", "TTPFL label")])
    panels = plots.gain_and_cost(three).axes
    assert [axis.get_ylabel() for axis in panels] == [f"gain on {name} (points)" for name in three["protocol"].unique()]


def test_bold_is_what_a_test_carries():
    frame = CELLS.assign(verdict=[None, None, None, "helps", "undecided", None])
    accuracy, gain = plots.heatmaps(frame).axes[:2]
    assert {text.get_text(): text.get_weight() for text in gain.texts} == {"0": "normal", "+10": "bold", "-20": "normal"}
    assert {text.get_weight() for text in accuracy.texts} == {"normal"}
    unsure = plots.heatmaps(frame.replace({"verdict": {"helps": "undecided"}}), title="T\nfacts")
    assert "Nothing differs from no adaptation for certain (corrected test)." in unsure.texts[-1].get_text().replace("\n", " ")


def test_other_values_than_the_mean():
    frame = CELLS.assign(worst=CELLS["mean"] - 20, ece=[5.0, 10.0, 15.0, 20.0, 75.0, None])
    worst, calibration = plots.heatmaps(frame, ("worst", "ece")).axes[:2]
    assert [t.get_text() for t in worst.texts if t.get_text().isdigit()] == ["60", "50", "40", "70", "30"]
    assert [t.get_text() for t in calibration.texts] == ["5", "10", "15", "20", "75"]
    told = "FedICON domain: all clients have one test, so that without a personal part the worst is the mean."
    for protocol, met in (("FedICON domain", True), ("UPFL new clients", False)):
        figure = plots.heatmaps(frame.replace({"protocol": {"TTPFL label": protocol}}), ("worst", "ece"), title="T\nfacts")
        assert (told in figure.texts[-1].get_text().replace("\n", " ")) == met


def test_the_curve_has_a_panel_per_network():
    frame = pd.DataFrame({"protocol": ["A", "A", "B", "A", "A"], "run_model": ["cnn"] * 3 + ["mlp"] * 2, "round": [1, 2, 2, 1, 2]})
    frame = frame.assign(method=[NONE] * 3 + [PLAIN] * 2, mean=[10.0, 20, 30, 40, 50], std=[1.0, 2] + [float("nan")] * 3)
    figure = plots.curve(frame)
    assert [axis.get_title() for axis in figure.axes] == ["cnn", "mlp"]
    assert [line.get_ydata().tolist() for line in figure.axes[0].lines] == [[10, 20], [30]]
    assert len(figure.axes[0].collections) == 1
    same = plots.curve(frame.assign(run_model="cnn"))
    assert [axis.get_title() for axis in same.axes] == [f"cnn\n{NONE}", f"cnn\n{plots.NAMES[PLAIN]}"]
    assert [len(axis.lines) for axis in same.axes] == [2, 1]


def test_gains_are_filled_where_a_test_carries_them():
    rows = [("BRFL", "mean", "BTFL", 5.0, "helps"), ("BRFL", "mean", "EM", -1.0, "undecided"), ("BRFL", "original", "EM", 9.0, "helps")]
    rows += [("UPFL new clients", "test", "EM", -4.0, "hurts"), ("UPFL new clients", "test", "MEMO", 8.0, "too few images")]
    frame = pd.DataFrame(rows, columns=["protocol", "column", "method", "gain", "verdict"]).assign(
        low=lambda f: f["gain"] - 2, high=lambda f: f["gain"] + 2, over="clients"
    )
    figure = plots.gains(frame, title="T\nfacts")
    first, second = figure.axes
    assert [axis.get_title() for axis in (first, second)] == ["BRFL", "UPFL new clients"]
    points = {tuple(p.get_offsets()[0]): p for p in (*first.collections, *second.collections)}
    # Methods down: BTFL, EM, MEMO. The mean column only, where there is one.
    assert set(points) == {(5, 0), (-1, 1), (-4, 1), (8, 2)}
    assert to_hex(points[5, 0].get_facecolor()[0]) == look("BTFL").colour.lower()
    assert to_hex(points[-1, 1].get_facecolor()[0]) == "#ffffff"
    spans = {tuple(line.get_xdata()) for axis in (first, second) for line in axis.lines}
    assert {(3, 7), (-3, 1), (-6, -2), (6, 10)} <= spans
    for part, told in ((frame, ["differs", "undecided", "too few images"]), (frame.iloc[:2], ["differs", "undecided"])):
        legend = plots.gains(part).legends[0]
        assert [text.get_text().split("\n")[0] for text in legend.get_texts()] == told


def test_halves_hatch_what_does_not_fit():
    rows = [("BRFL", "no batch norm", t, a, 70.0, 3.0) for t, a in itertools.product(("cross-entropy", "FedTTA's"), ("none", "T3A"))][:-1]
    frame = pd.DataFrame(rows, columns=["protocol", "network", "training", "adaptation", "mean", "total"])
    axis = plots.halves(frame.assign(total_verdict=[None, "helps", "undecided"])).axes[0]
    assert [text.get_weight() for text in axis.texts] == ["normal", "normal", "bold"]
    assert [text.get_text() for text in axis.texts] == ["70"] * 3
    assert [(p.get_x() + 0.5, p.get_y() + 0.5) for p in axis.patches if p.get_hatch()] == [(1, 1)]


def test_halves_show_the_worst_client_and_calibration_where_they_are_told():
    rows = [("BRFL", "batch norm", t, a, 70.0, 3.0) for t, a in itertools.product(("cross-entropy", "contrastive"), ("none", "T3A"))]
    frame = pd.DataFrame(rows, columns=["protocol", "network", "training", "adaptation", "mean", "total"]).assign(total_verdict=None)
    panels = plots.halves(frame.assign(worst=[31.0, 32, 33, 34], ece=float("nan"))).axes[:2]
    assert [[text.get_text() for text in axis.texts] for axis in panels] == [["70"] * 4, ["31", "33", "32", "34"]]
    assert [axis.get_ylabel() for axis in panels] == ["accuracy (%)", "worst client (%)"]


def test_halves_put_four_panels_in_a_row():
    rows = [(f"protocol {i}", "batch norm", "cross-entropy", a, 70.0, 3.0) for i in range(5) for a in ("none", "T3A")]
    frame = pd.DataFrame(rows, columns=["protocol", "network", "training", "adaptation", "mean", "total"]).assign(total_verdict=None)
    panels = plots.halves(frame.assign(worst=31.0)).axes[:16]
    assert [axis.get_visible() for axis in panels] == ([True] * 5 + [False] * 3) * 2
    assert [axis.get_title().split("\n")[0] for axis in panels[8:13]] == [f"protocol {i}" for i in range(5)]


def test_tuning_joins_both_values_of_a_method():
    rows = [("original", "T3A", 1.0, 4.0, "hurts"), ("mean", "T3A", 2.0, 4.0, "helps"), ("mean", "EM", -2.0, -1.0, "undecided")]
    frame = pd.DataFrame(rows, columns=["column", "method", "untuned", "tuned", "verdict"]).assign(protocol="BRFL")
    frame = frame.assign(low=frame["tuned"] - frame["untuned"] - 1, high=frame["tuned"] - frame["untuned"] + 1, over="clients")
    axis = plots.tuning(frame).axes[0]
    points = [points for points in axis.collections if isinstance(points, PathCollection)]
    assert [p.get_offsets()[0].tolist() for p in points] == [[2, 0], [4, 0], [-2, 1], [-1, 1]]
    assert [to_hex(p.get_facecolor()[0]) for p in points[1::2]] == [look("T3A").colour.lower(), "#ffffff"]
    intervals = [lines.get_segments()[0][:, 0].tolist() for lines in axis.collections if not isinstance(lines, PathCollection)]
    assert intervals == [[3, 5], [-2, 0]]


def test_causes_start_from_what_is():
    frame = pd.DataFrame(
        {"method": "FedTTA", "protocol": "UPFL new clients", "change": ["as it is", "10 x the rounds"], "gain": [-20.0, 4.0]}
    )
    frame = frame.assign(low=frame["gain"] - 1, high=frame["gain"] + 1, p_holm=[0.2, 0.01], mean=[30.0, 95.0], without=[50.0, 91.0])
    axis = plots.causes(frame, title="T").axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == [
        "as it is (30 %, without adaptation 50 %)",
        "10 x the rounds (95 %, without adaptation 91 %)",
    ]
    faces = [to_hex(points.get_facecolor()[0]) for points in axis.collections]
    assert faces == ["#ffffff", look("FedTTA").colour.lower()]
    assert [line.get_xdata()[0] for line in axis.lines[-2:]] == [-20, 0]


def test_what_no_cell_was_run_of_is_named_below_and_takes_no_room():
    absent = CELLS.assign(protocol="BTGFL", mean=np.nan, gain=np.nan)
    other = CELLS[CELLS["method"] == CELLS["method"].iloc[0]].assign(method="EM", mean=np.nan, gain=np.nan)
    both = pd.concat([other.assign(method="FedAvg:plain"), other.assign(method="FedTTA")])
    frame = pd.concat([CELLS, absent, other, both])
    figure = plots.heatmaps(frame, title="T\nfacts")
    accuracy = figure.axes[0]
    assert not {"EM", "FedTTA", "FedAvg:plain"} & {label.get_text() for label in accuracy.get_yticklabels()}
    assert "BTGFL" not in [text.get_text() for text in accuracy.texts]
    assert figure.texts[1].get_text() == "facts, not run: BTGFL, EM, FedTTA\nHatched: not run."
    beside = plots.heatmaps(frame.assign(worst=frame["mean"], ece=frame["mean"]), ("worst", "ece"), title="T\nfacts")
    few = "facts, not run, or too few images: BTGFL, EM, FedTTA\nHatched: not run, too few images, or no logits."
    assert beside.texts[1].get_text() == few
    assert "Hatched" not in "".join(text.get_text() for text in plots.heatmaps(CELLS.dropna().iloc[[0, 1, 3, 4]], title="T\nfacts").texts)
