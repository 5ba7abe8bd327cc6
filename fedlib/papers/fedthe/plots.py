"""Figures of FedTHE's own kind. A ``title`` is used as in ``fedlib.plots.charts``."""

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from fedlib.papers.fedthe.figures import gaps
from fedlib.plots import charts
from fedlib.plots.style import BESIDE, heading, look


def heatmaps(frame: pd.DataFrame, *, x: str, y: str, title: str = "") -> Figure:
    """``mean`` over ``x`` and ``y`` as annotated colours, one panel with a scale of its own per test ``column``."""
    columns = list(dict.fromkeys(frame["column"]))
    figure, axes = plt.subplots(1, len(columns), figsize=(2.4 * len(columns), 2.1), layout="constrained", sharey=True, squeeze=False)
    for axis, column in zip(axes[0], columns, strict=True):
        wide = frame[frame["column"] == column].pivot(index=y, columns=x, values="mean")
        sns.heatmap(wide, annot=True, fmt=".1f", cmap="viridis", cbar=False, annot_kws={"size": 7}, ax=axis)
        axis.set(title=column, xlabel=x, ylabel=y if axis is axes[0][0] else "")
    return heading(figure, f"{title}\nAccuracy (%); colours from the lowest to the highest of each test.")


def interpolation(frame: pd.DataFrame, *, xlabel: str, title: str = "") -> Figure:
    """``mean`` of method ``shared`` over ``weight``, and the other methods as horizontal lines; one panel per ``setting``."""
    settings = list(dict.fromkeys(frame["setting"]))
    figure, axes = plt.subplots(1, len(settings), figsize=(3.2 * len(settings) + 1.5, 3), layout="constrained", sharey=True, squeeze=False)
    for axis, setting in zip(axes[0], settings, strict=True):
        panel = frame[frame["setting"] == setting]
        shared = panel[panel["method"] == "shared"]
        axis.plot(shared["weight"], shared["mean"], color="black", marker="o", markersize=3.5, label="one weight for all")
        for row in panel[panel["method"] != "shared"].itertuples():
            style = look(row.method)
            colour, line, label = style.colour, style.line, row.method
            if row.method == "oracle":
                colour, line, label = "dimgrey", ":", "best weight per client (oracle)"
            axis.axhline(row.mean, color=colour, linestyle=line, linewidth=1.6, label=label)
        axis.set(xlabel=xlabel, title=setting)
    axes[0][0].set_ylabel("mixture accuracy (%)")
    axes[0][-1].legend(**BESIDE)
    return heading(figure, title)


def leak(frame: pd.DataFrame, *, title: str = "") -> Figure:
    """What the leak adds to the ``mean`` accuracy of every ``method`` on every test ``column``, from means with either split."""
    added = gaps(frame).reset_index().assign(mean=lambda rows: rows["gap"])
    return charts.bars(added, x="column", hue="method", ylabel="redrawn - fixed split (points)", title=title)


def embedding(frame: pd.DataFrame, *, title: str = "") -> Figure:
    """Points ``x``, ``y`` coloured by ``label``, one panel per ``method``; axes without scale, since t-SNE's have none."""
    methods = list(dict.fromkeys(frame["method"]))
    figure, axes = plt.subplots(1, len(methods), figsize=(3 * len(methods) + 0.8, 3), layout="constrained", squeeze=False)
    labels = sorted(frame["label"].unique())
    palette = dict(zip(labels, sns.color_palette("tab10" if len(labels) <= 10 else "husl", len(labels)), strict=True))
    for axis, method in zip(axes[0], methods, strict=True):
        for label, points in frame[frame["method"] == method].groupby("label"):
            axis.scatter(points["x"], points["y"], s=14, color=palette[label], marker="os^Dv"[label % 5], label=str(label), linewidths=0)
        axis.set(title=method, xticks=[], yticks=[])
    axes[0][-1].legend(title="class", **BESIDE)
    return heading(figure, title)
