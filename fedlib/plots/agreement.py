"""Printed and measured accuracies against each other: a point on the diagonal is a number that came back."""

import itertools
from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedlib.plots.style import PALETTE, SHIFTS, heading

PANELS = 4  # side by side, at most
MARGIN = 3  # points around the cells


def agreement(panels: Mapping[str, pd.DataFrame], *, close: float, title: str = "") -> Figure:
    """One panel per entry: its cells at (printed, ours), in percent, and the diagonal with ``close`` points around it.

    panels: a heading, and in small type below it what follows its first line break -> one row per cell: published_mean, mean, test (its
    colour, in the legend), own (a star: a method of the paper itself), stand_in (hollow: on other data or another network than the
    print's).
    """
    rows = -(-len(panels) // PANELS)
    columns = -(-len(panels) // rows)
    figure, axes = plt.subplots(rows, columns, figsize=(3.5 * columns, 3.9 * rows), layout="constrained", squeeze=False)
    for axis, (name, cells) in zip(axes.flat, panels.items(), strict=False):
        values = cells[["published_mean", "mean"]].to_numpy()
        ends = np.array([values.min() - MARGIN, values.max() + MARGIN])
        axis.fill_between(ends, ends - close, ends + close, color="0.85", linewidth=0)
        axis.plot(ends, ends, color="0.5", linewidth=0.8)
        _points(axis, cells)
        head, _, facts = name.partition("\n")
        axis.set_title(head, pad=16)
        axis.text(0.5, 1.02, facts, transform=axis.transAxes, ha="center", fontsize=7, color="dimgrey")
        axis.set(xlim=ends, ylim=ends, xlabel="printed (%)", ylabel="ours (%)", aspect="equal")
        # Where it hides the fewest points.
        axis.legend(loc="best", fontsize=7, handletextpad=0.1, borderpad=0.3)
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    return heading(figure, title)


def _points(axis: Axes, cells: pd.DataFrame) -> None:
    tests = cells["test"].unique()
    spare = itertools.cycle([colour for colour in PALETTE if colour not in [SHIFTS.get(test) for test in tests]] or PALETTE)
    for test in tests:
        colour = SHIFTS.get(test) or next(spare)
        axis.scatter([], [], s=22, color=colour, label=test)
        for (own, stand_in), some in cells[cells["test"] == test].groupby(["own", "stand_in"]):
            look = {"marker": "*", "s": 90} if own else {"marker": "o", "s": 22}
            face = "none" if stand_in else colour
            axis.scatter(some["published_mean"], some["mean"], facecolors=face, edgecolors=colour, linewidths=0.9, zorder=3, **look)
