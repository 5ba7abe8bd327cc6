"""Figures from tables. Every function takes a tidy frame and returns a Figure; none computes a result.

The first line of a ``title`` goes above the figure, the rest, if any, in small type below it.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from fedlib.core import Benchmark
from fedlib.plots.style import BESIDE, LINES, SHIFTS, heading, look

SPREAD = "standard deviation over seeds"


def clients_and_shifts(benchmark: Benchmark) -> Figure:
    """Left: training samples per class (area) and client that has any. Right: the first test images of the first client that is tested,
    one row per test column."""
    counts = benchmark.report()
    without = int((counts.sum(axis=1) == 0).sum())
    counts = counts[counts.sum(axis=1) > 0]
    figure = plt.figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1.1, 1])
    axes = left.subplots()
    across, down = np.meshgrid(counts.index, range(counts.shape[1]), indexing="ij")
    largest = counts.to_numpy().max()
    axes.scatter(across, down, s=160 * counts.to_numpy() / largest, color=SHIFTS["original"])
    others = f" ({without} more have none)" if without else ""
    axes.set(xlabel=f"client{others}", ylabel="class", title=f"training samples per client, largest dot {largest}")
    axes.set_yticks(range(counts.shape[1]), counts.columns)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    holder = next(client for client in benchmark.clients if client.tests)
    grid = right.subplots(len(holder.tests), 1)
    for axis, (column, draws) in zip(np.atleast_1d(grid), holder.tests.items(), strict=True):
        strip(axis, draws[0].images[:6])
        axis.set_ylabel(column, rotation=0, ha="right", va="center")
    right.suptitle(f"test streams of client {holder.id}", fontsize=10)
    return figure


def strip(axis: Axes, images: Tensor) -> None:
    """``images`` uint8 [n, C, H, W] side by side, without ticks."""
    row = np.concatenate(list(images.cpu().permute(0, 2, 3, 1).numpy()), axis=1).squeeze()
    axis.imshow(row, cmap="gray", vmin=0, vmax=255)
    axis.set(xticks=[], yticks=[])
    axis.grid(visible=False)


def said(frame: pd.DataFrame, spread: str, shown: str = "Bands and error bars") -> str:
    """The line of a caption that says what the ``std`` of a frame is, where it has any, and how it is shown."""
    return f"\n{shown}: one {spread}." if "std" in frame and frame["std"].notna().any() else ""


def band(axis: Axes, x: str, line: pd.DataFrame, colour: str) -> None:
    """The ``std`` of a line, where it has any: a band over a range of numbers, otherwise error bars."""
    if "std" not in line or line["std"].isna().all():
        return
    if len(line) > 1 and pd.api.types.is_numeric_dtype(line[x]):
        low, high = line["mean"] - line["std"], line["mean"] + line["std"]
        axis.fill_between(line[x], low, high, color=colour, alpha=0.12, linewidth=0)
    else:
        axis.errorbar(line[x], line["mean"], line["std"], fmt="none", ecolor=colour, elinewidth=0.8, capsize=1.5)


def curves(
    frame: pd.DataFrame,
    x: str,
    panels: str,
    *,
    xlabel: str,
    ylabel: str = "accuracy (%)",
    title: str = "",
    scale: str = "linear",
    spread: str = SPREAD,
) -> Figure:
    """One line per ``method`` over ``x``, with its ``std`` where there is one, one panel per value of ``panels``, in the methods' fixed
    looks; a method with one point is its marker alone, hollow, here and in the legend. scale: of the x axis; spread: what ``std`` is."""
    values = list(dict.fromkeys(frame[panels]))
    width = (3.4 if len(values) < 3 else 2.7) * len(values) + 1.6
    figure, axes = plt.subplots(1, len(values), figsize=(width, 3.2), layout="constrained", sharex=True, squeeze=False)
    for axis, value in zip(axes[0], values, strict=True):
        for method, line in frame[frame[panels] == value].groupby("method", sort=False):
            style = look(method)
            dot = {"linestyle": "none", "markerfacecolor": "none", "markersize": 6} if len(line) == 1 else {"linestyle": style.line}
            axis.plot(line[x], line["mean"], **{"color": style.colour, "marker": style.marker, "markersize": 4, "label": method} | dot)
            band(axis, x, line, style.colour)
        axis.set(xlabel=xlabel, title=str(value))
        # A scale that is set takes the names of categories away.
        if scale != "linear":
            axis.set_xscale(scale)
        elif pd.api.types.is_integer_dtype(frame[x]):
            axis.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    axes[0][0].set_ylabel(ylabel)
    lines = {line.get_label(): line for axis in axes[0] for line in axis.get_lines() if line.get_label()[0] != "_"}
    axes[0][-1].legend(lines.values(), lines, **BESIDE)
    return heading(figure, title + said(frame, spread))


def densities(frame: pd.DataFrame, *, xlabel: str, panels: str = "", title: str = "") -> Figure:
    """``density`` over even bins of ``weight`` in [0, 1], one step line per test ``column`` in the shifts' fixed colours, one panel per
    value of ``panels`` ("": one in all)."""
    values = list(dict.fromkeys(frame[panels])) if panels else [""]
    figure, axes = plt.subplots(1, len(values), figsize=(3.4 * len(values) + 1.8, 3.2), layout="constrained", sharey=True, squeeze=False)
    for axis, value in zip(axes[0], values, strict=True):
        for column, line in (frame[frame[panels] == value] if panels else frame).groupby("column", sort=False):
            how = {"color": SHIFTS[column], "linestyle": LINES[list(SHIFTS).index(column) % len(LINES)], "linewidth": 1.6, "label": column}
            axis.stairs(line["density"], np.linspace(0, 1, len(line) + 1), **how)
        axis.set(xlabel=xlabel, title=value, xlim=(0, 1))
    axes[0][0].set_ylabel("density")
    axes[0][-1].legend(**BESIDE)
    return heading(figure, title)


def bars(
    frame: pd.DataFrame,
    *,
    x: str,
    hue: str,
    xlabel: str = "",
    ylabel: str = "accuracy (%)",
    title: str = "",
    palette: dict[str, str] | None = None,
    spread: str = SPREAD,
) -> Figure:
    """Grouped bars of ``mean``, with ``std`` (what ``spread`` says) as error bars where there is one; hue = method takes the methods'
    colours (other words: ``palette``) and a hatch per repeated colour."""
    hues = list(dict.fromkeys(frame.loc[frame["mean"].notna(), hue]))
    palette = palette or {h: SHIFTS.get(h) or look(h).colour for h in hues}
    # Names of groups side by side, and the legend, need their room; a character takes about 0.08 inches.
    lengths = frame[x].astype(str).drop_duplicates().str.len()
    names = 0.08 * (len(lengths) * (lengths.max() + 2) + max(len(str(h)) for h in hues)) + 1.3
    figure, axis = plt.subplots(figsize=(max(4.5, 0.16 * len(frame) + 1.8, min(names, 12)), 3.2), layout="constrained")
    how = {"palette": palette, "saturation": 1, "edgecolor": "white", "linewidth": 0.5}
    sns.barplot(frame, x=x, y="mean", hue=hue, hue_order=hues, errorbar=None, ax=axis, **how)
    seen: dict[str, int] = {}
    groups = list(axis.containers)
    for container, name in zip(groups, hues, strict=False):
        rank = seen.setdefault(palette[name], 0)
        seen[palette[name]] += 1
        for bar in container:
            bar.set_hatch(["", "//", "..", "xx", "\\\\", "++"][rank % 6])
        if "std" in frame and frame["std"].notna().any():
            std = frame[frame[hue] == name].set_index(x)["std"].reindex(list(dict.fromkeys(frame[x]))).to_numpy()
            centres = [bar.get_x() + bar.get_width() / 2 for bar in container]
            # Groups stand at whole numbers, and one that was not run has no bar.
            std, heights = std[np.round(centres).astype(int)], [bar.get_height() for bar in container]
            axis.errorbar(centres, heights, std, fmt="none", ecolor="black", elinewidth=0.8, capsize=1.5)
    axis.set(xlabel=xlabel, ylabel=ylabel)
    if (frame["mean"].dropna() >= 0).all():
        axis.set_ylim(bottom=0)
    axis.legend(groups, hues, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return heading(figure, title + said(frame, spread, "Error bars"))
