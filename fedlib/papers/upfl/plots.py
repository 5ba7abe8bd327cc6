"""Figures of UPFL's own kind. A ``title`` is used as in ``fedlib.plots.charts``."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedlib.plots import charts
from fedlib.plots.style import BESIDE, BLUE, BROWN, GREEN, GREY, ORANGE, PURPLE, VIOLET, YELLOW, heading, look

# A colour for every method: the fourteen of one figure do not fit the families that share one in the other papers.
COLOURS = {
    **{"FedAvg": GREY, "FedProx": "black", "SCAFFOLD": BLUE, "AFL": "#7fd6ff", "GMA": GREEN, "FedADG": "#7f8f1f", "FedSR": "#9be564"},
    **{"PFL-Sampled": "#6b3a10", "PFL-Ensemble": BROWN, "ODPFL-HN": ORANGE, "Tent": YELLOW},
    **{"FedTTA": VIOLET, "FedTTA-Prox": "#c1121f", "FedTTA++": PURPLE},
}
LABELS = {"accuracy": "accuracy (%)", "loss": "personalisation loss", "entropy": "entropy (bits)"}


def colour_of(method: str) -> str:
    """A method's colour in the figures that show all of them."""
    return COLOURS.get(method) or look(method).colour


def peaked(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of one client of Figure 2: the first whose accuracy peaks inside, else the first. Picked by its test labels, to show what
    the paper shows; no claim rests on it."""
    paths = {client: rows["mean"].to_numpy() for client, rows in frame[frame["column"] == "accuracy"].groupby("client", sort=False)}
    inside = [client for client, path in paths.items() if 0 < path.argmax() < len(path) - 1 and path.max() > path[-1]]
    return frame[frame["client"] == (inside or list(paths))[0]]


def steps(frame: pd.DataFrame, *, title: str = "") -> Figure:
    """``mean`` over adaptation ``step`` of the ``peaked`` client, one panel per ``column``; dotted: the step of least entropy."""
    frame = peaked(frame)
    figure, axes = plt.subplots(1, len(LABELS), figsize=(8.6, 2.7), layout="constrained")
    entropy = frame[frame["column"] == "entropy"].set_index("step")["mean"]
    for axis, (column, name) in zip(axes, LABELS.items(), strict=True):
        line = frame[frame["column"] == column]
        axis.plot(line["step"], line["mean"], color=PURPLE)
        axis.axvline(entropy.idxmin(), color="black", linestyle=":", linewidth=0.9, label="least entropy")
        axis.set(xlabel="adaptation step", ylabel=name)
    axes[0].legend(frameon=False)
    axes[1].set_title(f"new client {frame['client'].iloc[0]}", fontsize=9)
    return heading(figure, title)


def shares(frame: pd.DataFrame, *, title: str = "") -> Figure:
    """``mean`` of the new clients over ``share``, a line per method."""
    return charts.curves(frame.assign(panel="new clients"), "share", "panel", xlabel="share of images", title=title)


def rotated(frame: pd.DataFrame, *, title: str = "") -> Figure:
    """Bars of ``mean`` by ``column``; PFL's, which the paper leaves out for weakness, only where no others were run."""
    others = frame[~frame["method"].str.startswith("PFL")]
    drawn = others if len(others) else frame
    return charts.bars(drawn, x="column", hue="method", title=title, palette={name: colour_of(name) for name in drawn["method"]})


def strengths(frame: pd.DataFrame, *, title: str = "") -> Figure:
    """``mean`` over ``round``: Tent, and HeteroFedTTA in one colour that deepens with its ``strength``."""
    figure, axis = plt.subplots(figsize=(5.6, 3.2), layout="constrained")
    for (method, strength), line in frame.groupby(["method", "strength"], sort=False):
        style = look("Tent") if method == "Tent" else look("FedTTA")
        label = method if method == "Tent" else f"HeteroFedTTA, $\\lambda$ = {strength:g}"
        shade = 1.0 if method == "Tent" else 0.3 + 0.7 * strength
        line = line.sort_values("round")
        width = 1.6 if method == "Tent" or strength == 0.8 else 1.1
        point = {"marker": "o" if len(line) == 1 else "", "linestyle": style.line, "linewidth": width}
        axis.plot(line["round"], line["mean"], color=style.colour, alpha=shade, label=label, **point)
    axis.set(xlabel="round", ylabel="accuracy of new clients (%)")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axis.legend(**BESIDE)
    return heading(figure, title)


def learning(frame: pd.DataFrame, *, title: str = "") -> Figure:
    """``mean`` over ``round`` for every method, with its ``std``: data sets across, validation above, test below."""
    datasets = list(dict.fromkeys(frame["dataset"]))
    size = (2.5 * len(datasets) + 1.6, 4.8)
    figure, axes = plt.subplots(2, len(datasets), figsize=size, layout="constrained", sharex="col", squeeze=False)
    for down, column in enumerate(("validation", "test")):
        for across, dataset in enumerate(datasets):
            axis, part = axes[down][across], frame[(frame["column"] == column) & (frame["dataset"] == dataset)]
            for method, line in part.groupby("method", sort=False):
                style = {"linestyle": look(method).line, "linewidth": 1, "markersize": 4}
                # A line through one point would not be seen.
                style["marker"] = look(method).marker if len(line) == 1 else ""
                axis.plot(line["round"], line["mean"], color=colour_of(method), label=method, **style)
                charts.band(axis, "round", line, colour_of(method))
            axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
            if not down:
                stands_in = ["in place of"] if (part["status"] == "stand-in").any() else []
                axis.set_title("\n".join([*stands_in, *dataset.split(", ")]), fontsize=8)
        axes[down][0].set_ylabel(f"{column} accuracy (%)")
    figure.supxlabel("round", fontsize=9)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=7)
    return heading(figure, title + charts.said(frame, charts.SPREAD))
