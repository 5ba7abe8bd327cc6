"""Pictures of places and ranks. A ``title`` is used as in ``fedlib.plots.charts``."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedlib.plots.style import heading, look

WHO = {"labels": "clients with labels", "new": "clients that are new", "all": "all clients, methods that run everywhere"}


def places(frame: pd.DataFrame, *, title: str = "") -> Figure:
    """``place`` averaged over the protocols (those called ``mean``), best first, one panel per ``kind`` of clients, with the interval of
    every ``over`` (clients: thick; clients and seeds: thin and black); grey points are single protocols."""
    kinds, overs = list(dict.fromkeys(frame["kind"])), list(dict.fromkeys(frame["over"]))
    sizes = [frame[frame["kind"] == kind]["method"].nunique() for kind in kinds]
    figure, axes = plt.subplots(
        len(kinds), 1, figsize=(7.6, 0.23 * sum(sizes) + 0.5 * len(kinds) + 1.0), layout="constrained", sharex=True, squeeze=False,
        height_ratios=[n + 1 for n in sizes],
    )  # fmt: skip
    for axis, kind in zip(axes[:, 0], kinds, strict=True):
        _places_of(axis, frame[frame["kind"] == kind])
    axes[-1, 0].set(xlim=(-3, 103), xlabel="share of the other methods that do better (%)")
    colours = {"clients": "darkgrey"}
    handles = [axis.plot([], [], color=colours.get(o, "black"), linewidth=_width(o), label=f"95 % over {o}")[0] for o in overs]
    if frame.groupby("kind")["protocol"].nunique().max() > 2:  # the mean, and more than one
        handles.append(axis.scatter([], [], s=9, color="silver", label="one protocol"))
    figure.legend(handles=handles, loc="outside right center", frameon=False)
    return heading(figure, title)


def _places_of(axis: Axes, frame: pd.DataFrame) -> None:
    """One kind of clients."""
    mean, single = frame[frame["protocol"] == "mean"], frame[(frame["protocol"] != "mean") & (frame["over"] == "clients")]
    order = mean[mean["over"] == "clients"].sort_values("place", kind="stable")
    for down, row in enumerate(order.itertuples()):
        own, style = single.loc[single["method"] == row.method, "place"], look(row.method)
        axis.scatter(own, [down] * len(own), s=9, color="silver", zorder=2)
        for interval in mean[mean["method"] == row.method].itertuples():
            ends = [interval.place_low, interval.place_high]
            alone = interval.over == "clients"
            axis.plot(ends, [down, down], color=style.colour if alone else "black", linewidth=_width(interval.over), alpha=0.6)
        axis.scatter(row.place, down, s=30, color=style.colour, marker=style.marker, zorder=3)
    axis.set_yticks(range(len(order)), order["method"])
    axis.set(ylim=(len(order) - 0.4, -0.6))
    kind = order["kind"].iloc[0]
    axis.set_title(f"{WHO.get(kind, kind)}: {', '.join(single['protocol'].unique())}", fontsize=9)


def _width(over: str) -> float:
    return 4 if over == "clients" else 1.2


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
    return heading(figure, f"{title}\nBlack bars join methods that the test cannot tell apart. Blocks: what is ranked on its own.")


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
    sure = f"critical difference {first.critical:.1f}" if first.friedman <= 0.05 else "the ranks do not differ (Friedman)"
    axis.set_title(f"{WHO.get(first.kind, first.kind)}: {first.blocks} blocks, p = {first.friedman:.2g}, {sure}", fontsize=8.5)
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
