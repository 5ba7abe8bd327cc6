"""Figures of what the comparison concludes: tests, ranks, tuning, trainings by adaptations, and the answer. A ``title`` is used as in
``fedlib.plots.charts``."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fedlib.plots.comparison import HATCHED
from fedlib.plots.style import heading, look


def gains(frame: pd.DataFrame, *, title: str = "") -> Figure:
    """``gain`` (points) with its interval ``low`` to ``high``, methods down, one panel per ``protocol`` (of its ``mean`` column, or its
    only one). Filled points: the corrected test carries the difference (``verdict``); hollow ones: it does not; crosses: too few images."""
    shown = frame[(frame["column"] == "mean") | ~frame["protocol"].isin(frame.loc[frame["column"] == "mean", "protocol"])]
    protocols, methods = list(dict.fromkeys(shown["protocol"])), list(dict.fromkeys(shown["method"]))
    across = min(3, len(protocols))
    down = -(-len(protocols) // across)
    size = (2.5 * across + 2.4, down * (0.17 * len(methods) + 0.6) + 0.8)
    figure, axes = plt.subplots(down, across, figsize=size, layout="constrained", sharey=True, squeeze=False)
    for axis, protocol in zip(axes.flat, protocols, strict=False):
        for row in shown[shown["protocol"] == protocol].itertuples():
            y, colour, sure = methods.index(row.method), look(row.method).colour, row.verdict in ("helps", "hurts")
            axis.plot([row.low, row.high], [y, y], color=colour, linewidth=1.3, alpha=0.7)
            marker = {"marker": "x"} if row.verdict == "too few images" else {"marker": "o", "facecolors": colour if sure else "white"}
            axis.scatter(row.gain, y, s=22, color=colour, zorder=3, **marker)
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_title(protocol, fontsize=9)
    for axis in axes.flat[len(protocols) :]:
        axis.set_visible(False)
    axes[0][0].set_yticks(range(len(methods)), methods, fontsize=8)
    axes[0][0].set_ylim(len(methods) - 0.4, -0.6)
    figure.supxlabel("gain over no adaptation (points)", fontsize=9)
    handles = [
        plt.Line2D([], [], color="dimgrey", marker="o", linestyle="-", label="differs\n(corrected test)"),
        plt.Line2D([], [], color="dimgrey", marker="o", markerfacecolor="white", linestyle="-", label="undecided"),
        plt.Line2D([], [], color="dimgrey", marker="x", linestyle="-", label="too few images\nto test"),
    ]
    figure.legend(handles=handles, loc="outside right upper", frameon=False)
    heading(figure, title)
    return figure


def critical_differences(frame: pd.DataFrame, *, title: str = "") -> Figure:
    """Demšar's diagram, one panel per ``kind``: average ``rank`` (1 at the right is best), and bars over methods whose ranks lie within the
    ``critical`` difference of each other. Where Friedman's test does not reject at 5 % one bar spans all."""
    kinds = list(dict.fromkeys(frame["kind"]))
    sizes = [len(frame[frame["kind"] == kind]) for kind in kinds]
    heights = [0.5 + 0.19 * -(-n // 2) + 0.14 * len(_cliques(frame[frame["kind"] == k])) for n, k in zip(sizes, kinds, strict=True)]
    figure, axes = plt.subplots(
        len(kinds), 1, figsize=(7.4, sum(heights) + 0.6), height_ratios=heights, layout="constrained", squeeze=False
    )
    for axis, kind in zip(axes[:, 0], kinds, strict=True):
        _critical(axis, frame[frame["kind"] == kind].sort_values("rank", kind="stable"))
    heading(figure, title)
    return figure


def _critical(axis: Axes, frame: pd.DataFrame) -> None:
    first, n, ranks = frame.iloc[0], len(frame), frame["rank"].to_numpy()
    cliques = _cliques(frame)
    half, depth = -(-n // 2), -0.5 * len(cliques) - 0.3
    axis.plot([1, n], [0, 0], color="black", linewidth=1)
    for tick in range(1, n + 1):
        axis.plot([tick, tick], [0, 0.15], color="black", linewidth=0.8)
        axis.text(tick, 0.25, tick, ha="center", va="bottom", fontsize=7)
    for i, row in enumerate(frame.itertuples()):
        best = i < half
        y = depth - 0.75 * (i if best else n - 1 - i)
        x, side = (0.6, "left") if best else (n + 0.4, "right")
        style = look(row.method)
        axis.plot([row.rank, row.rank, x], [0, y, y], color=style.colour, linewidth=0.9)
        axis.scatter(row.rank, 0, s=16, color=style.colour, marker=style.marker, zorder=3)
        axis.text(x - 0.1 if best else x + 0.1, y, f"{row.method} ({row.rank:.1f})", ha=side, va="center", fontsize=7.5)
    for level, (low, high) in enumerate(cliques):
        y = -0.35 - 0.5 * level
        axis.plot([ranks[low] - 0.06, ranks[high] + 0.06], [y, y], color="black", linewidth=3, solid_capstyle="butt")
    who = {"labels": "clients with labels", "new": "clients that are new", "all": "all clients, methods that run everywhere"}.get(
        first.kind, first.kind
    )
    sure = f"critical difference {first.critical:.1f}" if first.friedman <= 0.05 else "the ranks do not differ (Friedman)"
    axis.set_title(f"{who}: {first.blocks} blocks, p = {first.friedman:.2g}, {sure}", fontsize=8.5)
    # Best at the right.
    axis.set(xlim=(n + 3.2, -2.2), ylim=(depth - 0.75 * half, 1.1))
    axis.axis("off")


def _cliques(frame: pd.DataFrame) -> list[tuple[int, int]]:
    """Longest runs (first, last) of the sorted methods within the critical difference; all of them where Friedman does not reject."""
    ranks, reach = np.sort(frame["rank"].to_numpy()), frame["critical"].iloc[0]
    if frame["friedman"].iloc[0] > 0.05:
        return [(0, len(ranks) - 1)]
    runs = [(i, int(np.searchsorted(ranks, rank + reach, side="right")) - 1) for i, rank in enumerate(ranks)]
    return [run for i, run in enumerate(runs) if run[1] > run[0] and (i == 0 or run[1] > runs[i - 1][1])]


def answer(frame: pd.DataFrame, cost: pd.DataFrame, needs: pd.DataFrame, *, title: str = "") -> Figure:
    """Left: methods down, shifts across, the mean gain on a cell coloured by ``verdict`` (blue with ▲ helps, orange with ▼ hurts). Right:
    what a method costs (seconds per 1,000 images and MiB) and what it needs."""
    methods = [m for m in dict.fromkeys([*needs["method"], *frame["method"]]) if m in set(frame["method"])]
    shifts = list(dict.fromkeys(frame["shift"]))
    asked = needs.set_index("method").reindex(methods)
    priced = cost.set_index("method").reindex(methods) if len(cost) else pd.DataFrame(index=methods, columns=["seconds", "memory"])
    columns = ("s per 1,000", "MiB", "labels", "own training", "batch norm", "needs together")
    size = (0.62 * len(shifts) + 0.62 * len(columns) + 5.4, 0.23 * len(methods) + 2.0)
    figure, axis = plt.subplots(figsize=size, layout="constrained")
    colours = {"helps": "#0173b2", "hurts": "#de8f05", "mixed": "#cc78bc", "undecided": "whitesmoke", "too few images": "white"}
    marks = {"helps": "▲", "hurts": "▼", "mixed": "◆"}
    for row in frame.itertuples():
        x, y = shifts.index(row.shift), methods.index(row.method)
        axis.add_patch(plt.Rectangle((x - 0.47, y - 0.45), 0.94, 0.9, facecolor=colours[row.verdict], edgecolor="lightgrey", linewidth=0.5))
        dark = row.verdict == "helps"
        text = f"{marks.get(row.verdict, '')}{row.gain:+.1f}" if row.verdict != "too few images" else "few"
        axis.text(x, y, text, ha="center", va="center", fontsize=6.5, color="white" if dark else "black")
    number = lambda value: "" if pd.isna(value) else f"{float(f'{value:.2g}'):g}"  # noqa: E731
    for i, method in enumerate(methods):
        own, price = asked.loc[method], priced.loc[method]
        training = f"yes, x {own['passes']:g}" if own["training"] and own["passes"] > 1 else "yes" if own["training"] else ""
        together = {"one": "", "batch": "a batch", "stream": "all"}.get(own["together"], "")
        words = [number(price["seconds"]), number(price["memory"]), own["labels"], training, "yes" if own["batch_norm"] else "", together]
        for j, word in enumerate(words):
            axis.text(len(shifts) + j + 0.1, i, word, ha="center", va="center", fontsize=6.5)
        axis.text(len(shifts) + len(words) - 0.3, i, own["sent"], ha="left", va="center", fontsize=6.5)
    axis.axvline(len(shifts) - 0.42, color="dimgrey", linewidth=0.8)
    axis.set_xticks(
        range(len(shifts) + len(columns) + 1),
        [*shifts, *columns, "sent beside the model"],
        rotation=45,
        ha="right",
        rotation_mode="anchor",
        fontsize=7.5,
    )
    axis.set_yticks(range(len(methods)), methods, fontsize=8)
    axis.set(xlim=(-0.6, len(shifts) + len(columns) + 2.2), ylim=(len(methods) - 0.4, -0.6))
    axis.grid(visible=False)
    words = {"helps": "▲ helps", "hurts": "▼ hurts", "mixed": "◆ helps on one test,\nhurts on another", "undecided": "undecided"}
    handles = [Patch(facecolor=colours[name], edgecolor="lightgrey", label=text) for name, text in words.items()]
    figure.legend(handles=handles, loc="outside right upper", frameon=False)
    heading(figure, title)
    return figure


def halves(frame: pd.DataFrame, *, title: str = "") -> Figure:
    """``mean`` accuracy (%), trainings across and adaptations down, one panel per ``protocol`` and ``network``; hatched where the two do
    not fit. Colours: ``total``, the points over cross-entropy without adaptation on the same network."""
    panels = list(dict.fromkeys(zip(frame["protocol"], frame["network"], strict=True)))
    steps, trainings = list(dict.fromkeys(frame["adaptation"])), list(dict.fromkeys(frame["training"]))
    across = min(4, len(panels))
    down = -(-len(panels) // across)
    size = (1.9 * across + 2.0, down * (0.22 * len(steps) + 1.0) + 0.9)
    figure, axes = plt.subplots(down, across, figsize=size, layout="constrained", sharex=True, sharey=True, squeeze=False)
    limit = max(1.0, frame["total"].abs().quantile(0.9))
    scale = mpl.colors.Normalize(-limit, limit)
    for axis, (protocol, network) in zip(axes.flat, panels, strict=False):
        own = frame[(frame["protocol"] == protocol) & (frame["network"] == network)]
        wide = {
            value: own.pivot(index="adaptation", columns="training", values=value).reindex(index=steps, columns=trainings)
            for value in ("mean", "total")
        }
        axis.imshow(wide["total"], cmap="vlag_r", norm=scale, aspect="auto")
        for (i, j), value in np.ndenumerate(wide["mean"].to_numpy(dtype=float)):
            if np.isnan(value):
                axis.add_patch(plt.Rectangle((j - 0.5, i - 0.5), 1, 1, **HATCHED))
            else:
                red, green, blue, _ = mpl.colormaps["vlag_r"](scale(wide["total"].iloc[i, j]))
                dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
                axis.text(j, i, f"{value:.0f}", ha="center", va="center", fontsize=7, color="white" if dark else "black")
        axis.set_title(f"{protocol}\n{network}", fontsize=8)
        axis.set_xticks(range(len(trainings)), trainings, rotation=45, ha="right", rotation_mode="anchor", fontsize=7.5)
        axis.grid(visible=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    axes[0][0].set_yticks(range(len(steps)), steps, fontsize=8)
    figure.colorbar(mpl.cm.ScalarMappable(scale, "vlag_r"), ax=axes, label="over cross-entropy alone (points)", extend="both", aspect=30)
    heading(figure, title)
    return figure


def tuning(frame: pd.DataFrame, *, title: str = "") -> Figure:
    """Dumbbells from the gain ``untuned`` to the gain ``tuned`` (points, mean over a protocol's tests), methods down, one panel per
    ``protocol``."""
    means = frame.groupby(["protocol", "method"], sort=False)[["untuned", "tuned"]].mean().reset_index()
    protocols, methods = list(dict.fromkeys(means["protocol"])), list(dict.fromkeys(means["method"]))
    across = min(3, len(protocols))
    down = -(-len(protocols) // across)
    size = (2.4 * across + 2.6, down * (0.18 * len(methods) + 0.6) + 0.8)
    figure, axes = plt.subplots(down, across, figsize=size, layout="constrained", sharey=True, squeeze=False)
    for axis, protocol in zip(axes.flat, protocols, strict=False):
        rows = means[means["protocol"] == protocol].set_index("method").reindex(methods)
        axis.hlines(range(len(methods)), rows["untuned"], rows["tuned"], color="darkgrey", linewidth=1.5, zorder=1)
        for name, marker, colour in (("untuned", "o", "white"), ("tuned", "D", None)):
            shades = [look(method).colour for method in methods]
            axis.scatter(
                rows[name], range(len(methods)), s=20, marker=marker, facecolors=colour or shades, edgecolors=shades, label=name, zorder=2
            )
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_title(protocol, fontsize=9)
    for axis in axes.flat[len(protocols) :]:
        axis.set_visible(False)
    axes[0][0].set_yticks(range(len(methods)), methods, fontsize=8)
    axes[0][0].invert_yaxis()
    figure.supxlabel("gain over no adaptation (points)", fontsize=9)
    handles = [
        plt.Line2D([], [], color="dimgrey", linestyle="", marker=m, markerfacecolor=f, label=n)
        for n, m, f in (("the papers' values", "o", "white"), ("tuned on source clients", "D", "dimgrey"))
    ]
    figure.legend(handles=handles, loc="outside right upper", frameon=False)
    heading(figure, title)
    return figure


def causes(frame: pd.DataFrame, *, title: str = "") -> Figure:
    """``gain`` over no adaptation with its interval for every ``change``, one panel per ``method`` and ``protocol``; filled where the
    corrected test (``p_holm``) carries it, and a dotted line at what is changed."""
    studies = list(dict.fromkeys(zip(frame["method"], frame["protocol"], strict=True)))
    counts = [((frame["method"] == method) & (frame["protocol"] == protocol)).sum() for method, protocol in studies]
    size = (6.6, 0.2 * sum(counts) + 0.55 * len(studies) + 0.8)
    figure, axes = plt.subplots(len(studies), 1, figsize=size, height_ratios=counts, layout="constrained", sharex=True, squeeze=False)
    for axis, (method, protocol) in zip(axes[:, 0], studies, strict=True):
        own, colour = frame[(frame["method"] == method) & (frame["protocol"] == protocol)], look(method).colour
        for y, row in enumerate(own.itertuples()):
            axis.plot([row.low, row.high], [y, y], color=colour, linewidth=1.3, alpha=0.7)
            axis.scatter(row.gain, y, s=24, color=colour, facecolors=colour if row.p_holm <= 0.05 else "white", zorder=3)
        axis.axvline(own["gain"].iloc[0], color="dimgrey", linewidth=0.8, linestyle=":")
        axis.axvline(0, color="black", linewidth=0.8)
        words = [f"{row.change} ({row.mean:.0f} against {row.without:.0f})" for row in own.itertuples()]
        axis.set_yticks(range(len(own)), words, fontsize=7.5)
        axis.set_ylim(len(own) - 0.4, -0.6)
        axis.set_title(f"{method} on {protocol}", fontsize=9)
    axes[-1][0].set_xlabel("gain over no adaptation (points)")
    heading(figure, title)
    return figure
