import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

from fedlib.plots import comparison


@pytest.fixture(autouse=True)
def without_screen():
    mpl.use("Agg")
    yield
    plt.close("all")


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
    figure = comparison.heatmaps(CELLS, title="T\nfacts")
    accuracy, gain = figure.axes[:2]
    texts = [text.get_text() for text in gain.texts]
    assert texts == ["+0", "+0", "+0", "+10", "-20"]
    assert [t.get_text() for t in accuracy.texts if t.get_text().isdigit()] == ["80", "70", "60", "90", "50"]
    assert {"BRFL", "TTPFL label"} < {t.get_text() for t in accuracy.texts}
    for axis in (accuracy, gain):
        hatched = [patch for patch in axis.patches if isinstance(patch, Rectangle) and patch.get_hatch()]
        assert [(patch.get_x() + 0.5, patch.get_y() + 0.5) for patch in hatched] == [(2, 1)]
    scale = gain.images[0].norm
    assert scale.vmin == -scale.vmax


def test_numbers_are_readable_on_their_colour():
    """Light cells have black numbers, dark ones white."""
    figure = comparison.heatmaps(CELLS.assign(mean=[0.0, 100.0, 50.0, 0.0, 100.0, None]))
    colours = {text.get_text(): text.get_color() for text in figure.axes[0].texts}
    assert (colours["0"], colours["100"]) == ("white", "black")


def test_cost_marks_the_other_network():
    frame = pd.DataFrame({"method": ["BTFL", "FedTTA"], "seconds": [0.123, 151.0], "seconds_std": [0.01, 1.0], "gain": [3.0, -2.0]})
    figure = comparison.gain_and_cost(frame.assign(gain_std=[0.5, 1.5], images=[400, 40]), plain=["FedTTA"], few=200)
    axis = figure.axes[0]
    assert axis.get_xscale() == "log"
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["BTFL (0.12 s)", "FedTTA (150 s, 40 images)"]
    filled = [len(points.get_facecolor()) > 0 for points in axis.collections if points.get_label().startswith(("BTFL", "FedTTA"))]
    assert filled == [True, False]
    bars = [(line[0][1], line[1][1]) for points in axis.collections if hasattr(points, "get_segments") for line in points.get_segments()]
    assert {(2.5, 3.5), (-3.5, -0.5)} <= set(bars)


def test_places_put_the_best_first_in_one_panel_per_kind():
    made = []
    for kind, method, value in (("labels", "Tent", 60.0), ("labels", "BTFL", 10.0), ("new", "Tent", 0.0)):
        for over, width in (("clients", 5), ("clients and seeds", 20)):
            row = {"kind": kind, "method": method, "over": over, "place": value, "place_low": value - width, "place_high": value + width}
            made += [row | {"protocol": "mean", "protocols": 2}, row | {"protocol": "BRFL", "place": value + 1, "protocols": 1}]
    figure = comparison.places(pd.DataFrame(made))
    first, second = figure.axes
    assert [label.get_text() for label in first.get_yticklabels()] == ["BTFL", "Tent"]
    assert [axis.get_title() for axis in figure.axes] == ["clients with labels, 2 protocols", "clients that are new, 2 protocols"]
    lines = {tuple(line.get_xdata()): line.get_linewidth() for line in first.lines if len(line.get_xdata())}
    assert lines[5, 15] > lines[-10, 30]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["95 % over clients", "95 % over clients and seeds", "one protocol"]
    assert [label.get_text() for label in second.get_yticklabels()] == ["Tent"]


def test_leak_has_a_panel_per_column():
    frame = pd.DataFrame([(m, c, 70.0, 70.0 + 5 * i) for m in ("FedAvg", "BTFL") for i, c in enumerate(("original", "ooc"))])
    frame = frame.set_axis(["method", "column", "fixed", "resplit"], axis=1).assign(fixed_std=2.0, resplit_std=[1.0, 1.0, 3.0, 3.0])
    figure = comparison.leak(frame)
    assert [axis.get_title() for axis in figure.axes] == ["original", "ooc"]
    fixed, resplit = (points.get_offsets()[:, 0] for points in figure.axes[1].collections if len(points.get_offsets()) == 2)
    spreads = [
        tuple(line[:, 0]) for bars in figure.axes[1].collections[1:] if hasattr(bars, "get_segments") for line in bars.get_segments()
    ]
    assert spreads == [(68, 72), (68, 72), (74, 76), (72, 78)]
    assert fixed.tolist() == [70, 70]
    assert resplit.tolist() == [75, 75]


def test_bold_is_what_a_test_carries():
    frame = CELLS.assign(verdict=[None, None, None, "helps", "undecided", None])
    accuracy, gain = comparison.heatmaps(frame).axes[:2]
    assert {text.get_text(): text.get_weight() for text in gain.texts} == {"+0": "normal", "+10": "bold", "-20": "normal"}
    assert {text.get_weight() for text in accuracy.texts} == {"normal"}


def test_other_values_than_the_mean():
    frame = CELLS.assign(worst=CELLS["mean"] - 20, ece=[5.0, 10.0, 15.0, 20.0, 75.0, None])
    worst, calibration = comparison.heatmaps(frame, ("worst", "ece")).axes[:2]
    assert [t.get_text() for t in worst.texts if t.get_text().isdigit()] == ["60", "50", "40", "70", "30"]
    assert [t.get_text() for t in calibration.texts] == ["5", "10", "15", "20", "75"]


def test_the_curve_has_a_panel_per_network():
    frame = pd.DataFrame({"protocol": ["A", "A", "B", "A", "A"], "run_model": ["cnn"] * 3 + ["mlp"] * 2, "round": [1, 2, 2, 1, 2]})
    figure = comparison.curve(frame.assign(mean=[10.0, 20, 30, 40, 50], std=[1.0, 2, float("nan"), float("nan"), float("nan")]))
    assert [axis.get_title() for axis in figure.axes] == ["cnn", "mlp"]
    assert [line.get_ydata().tolist() for line in figure.axes[0].lines] == [[10, 20], [30]]
    assert len(figure.axes[0].collections) == 1
