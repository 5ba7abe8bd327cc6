"""Figures of BTFL's own kind. A ``title`` is used as in ``fedlib.plots.charts``."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedlib.plots.style import SHIFTS, heading, unsigned


def histograms(frame: pd.DataFrame, *, xlabel: str, title: str = "") -> Figure:
    """One small histogram of ``weight`` (centres of even bins in [0, 1]) per ``column``; heights are proportions."""
    columns = list(dict.fromkeys(frame["column"]))
    figure, axes = plt.subplots(1, len(columns), figsize=(1.75 * len(columns), 2.3), layout="constrained", sharex=True, sharey=True)
    for axis, column in zip(axes, columns, strict=True):
        bars = frame[frame["column"] == column]
        axis.bar(bars["weight"], bars["density"] / len(bars), width=1 / len(bars), color=SHIFTS[column], edgecolor="white", linewidth=0.3)
        axis.set(title="average of\nthe first four" if column == "average" else column, xlim=(0, 1), xticks=[0, 0.5, 1])
        axis.set_xlabel(xlabel, fontsize=7)
        axis.axvline(0.5, color="black", linewidth=0.6, linestyle=":")
    axes[0].set_ylabel("proportion")
    return heading(figure, f"{title}\nDotted: both heads weigh the same.")


def differences(frame: pd.DataFrame, *, base: str, title: str = "") -> Figure:
    """``mean`` of every ``method`` less that of ``base`` in points, methods down, test columns across, as annotated colours."""
    wide = frame.pivot_table(index="method", columns="column", values="mean", sort=False)
    gaps = (wide - wide.loc[base]).drop(index=base)
    limit = max(gaps.abs().max().quantile(0.8), 1.0)
    figure, axis = plt.subplots(figsize=(1.1 * gaps.shape[1] + 2.6, 0.27 * len(gaps) + 1.3), layout="constrained")
    axis.imshow(gaps, cmap="vlag_r", vmin=-limit, vmax=limit, aspect="auto")
    for (down, across), gap in np.ndenumerate(gaps):
        axis.text(across, down, unsigned(f"{gap:+.1f}"), ha="center", va="center", color="white" if abs(gap) > 0.7 * limit else "black")
    axis.set(xticks=range(gaps.shape[1]), xticklabels=gaps.columns, yticks=range(len(gaps)), yticklabels=gaps.index)
    axis.grid(visible=False)
    return heading(figure, title)
