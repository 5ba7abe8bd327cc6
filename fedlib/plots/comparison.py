"""Figures of the comparison of all methods. A ``title`` is used as in ``fedlib.plots.charts``."""

from collections.abc import Sequence

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fedlib.plots.style import PALETTE, SHIFTS, heading, look

HATCHED = {"facecolor": "gainsboro", "edgecolor": "darkgrey", "hatch": "////", "linewidth": 0}


# Value -> name of its scale, colours, limits, text, which ends are open; None: symmetrical limits that the values give.
PANELS = {
    "mean": ("accuracy (%)", "viridis", (0, 100), "{:d}", "neither"),
    "gain": ("gain over no adaptation (points)", "vlag_r", None, "{:+d}", "both"),
    "worst": ("worst client's accuracy (%)", "viridis", (0, 100), "{:d}", "neither"),
    "ece": ("expected calibration error (points)", "viridis_r", (0, 60), "{:d}", "max"),
}


def heatmaps(frame: pd.DataFrame, values: Sequence[str] = ("mean", "gain"), *, title: str = "") -> Figure:
    """``values`` of ``PANELS`` one above the other, methods down, protocols and their test columns across; cells without a value, which
    were not run, are hatched. Gains share a diverging scale with zero in its middle, and are bold where ``verdict`` says that the corrected
    test carries the difference."""
    across = frame[["protocol", "column"]].drop_duplicates()
    methods = list(dict.fromkeys(frame["method"]))
    size = (0.46 * len(across) + 2.2, 2 * (0.2 * len(methods) + 0.75) + 0.9)
    figure, axes = plt.subplots(len(values), 1, figsize=size, layout="constrained", sharex=True)
    for axis, value in zip(axes, values, strict=True):
        name, colours, limits, text, extend = PANELS[value]
        if limits is None:
            limit = max(1.0, frame[value].abs().quantile(0.9)) if frame[value].notna().any() else 1.0
            limits = (-limit, limit)
        scale = mpl.colors.Normalize(*limits)
        sure = _wide(frame, "verdict", methods, across) if value == "gain" and "verdict" in frame else None
        _cells(axis, _wide(frame, value, methods, across), mpl.colormaps[colours], scale, text, sure)
        bar = mpl.cm.ScalarMappable(scale, colours)
        figure.colorbar(bar, ax=axis, label=name, pad=0.01, aspect=30, extend=extend)
    axes[-1].set_xticks(range(len(across)), across["column"], rotation=45, ha="right", rotation_mode="anchor", fontsize=8)
    _headings(axes[0], across)
    axes[-1].legend(
        handles=[Patch(**HATCHED, label="not run" if "gain" in values else "not run, or\ntoo few images")],
        loc="upper left",
        bbox_to_anchor=(1.0, -0.02),
        frameon=False,
    )
    heading(figure, title)
    return figure


def _wide(frame: pd.DataFrame, value: str, methods: list[str], across: pd.DataFrame) -> pd.DataFrame:
    wide = frame.pivot(index="method", columns=["protocol", "column"], values=value)
    return wide.reindex(index=methods, columns=pd.MultiIndex.from_frame(across))


def _cells(
    axis: Axes,
    wide: pd.DataFrame,
    colours: mpl.colors.Colormap,
    scale: mpl.colors.Normalize,
    text: str,
    verdicts: pd.DataFrame | None = None,
) -> None:
    """One coloured, numbered square per value, bold with a verdict; hatched where there is none. Thin white lines between protocols."""
    axis.imshow(wide, cmap=colours, norm=scale, aspect="auto")
    for (down, along), value in np.ndenumerate(wide.to_numpy(dtype=float)):
        if np.isnan(value):
            axis.add_patch(plt.Rectangle((along - 0.5, down - 0.5), 1, 1, **HATCHED))
            continue
        red, green, blue, _ = colours(scale(value))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
        sure = verdicts is not None and verdicts.iloc[down, along] in ("helps", "hurts")
        how = {"color": "white" if dark else "black", "weight": "bold" if sure else "normal"}
        axis.text(along, down, text.format(round(value)), ha="center", va="center", fontsize=6.5, **how)
    axis.set_yticks(range(len(wide)), wide.index, fontsize=8)
    axis.grid(visible=False)
    protocols = wide.columns.get_level_values(0)
    for edge in np.flatnonzero(protocols[1:] != protocols[:-1]):
        axis.axvline(edge + 0.5, color="white", linewidth=3)


def _headings(axis: Axes, across: pd.DataFrame) -> None:
    """The protocols' names above their columns."""
    positions = pd.Series(range(len(across)), index=across["protocol"]).groupby(level=0, sort=False).agg(["min", "max"])
    for name, low, high in positions.itertuples():
        narrow = high == low
        axis.annotate(
            name, ((low + high) / 2, -0.62), ha="left" if narrow else "center", va="bottom", fontsize=8, rotation=45 if narrow else 0,
            rotation_mode="anchor", annotation_clip=False,
        )  # fmt: skip


def gain_and_cost(frame: pd.DataFrame, *, plain: Sequence[str] = (), few: int = 0, title: str = "") -> Figure:
    """``gain`` (points) over ``seconds`` per 1,000 samples (log) with ``gain_std`` and ``seconds_std``, one point per ``method`` in its
    fixed look, the methods named beside; plain: methods on another network, as hollow points. Under ``few`` test images are told."""
    figure, axis = plt.subplots(figsize=(6.6, 3.8), layout="constrained")
    for row in frame.sort_values("seconds").itertuples():
        style = look(row.method)
        face = "none" if row.method in plain else style.colour
        axis.errorbar(row.seconds, row.gain, xerr=row.seconds_std, yerr=row.gain_std, color=style.colour, elinewidth=0.8)
        seen = f", {row.images} images" if row.images < few else ""
        label = f"{row.method} ({float(f'{row.seconds:.2g}'):g} s{seen})"
        axis.scatter(row.seconds, row.gain, s=42, marker=style.marker, color=style.colour, facecolors=face, label=label, zorder=3)
    axis.set(xscale="log", xlabel="seconds per 1,000 samples (log)", ylabel="gain on BRFL, mean of its tests (points)")
    axis.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=7.5)
    heading(figure, title)
    return figure


def places(frame: pd.DataFrame, *, title: str = "") -> Figure:
    """``place`` averaged over the protocols (those called ``mean``), best first, one panel per ``kind`` of clients, with the interval of
    every ``over`` (clients: thick; clients and seeds: thin); grey points are single protocols."""
    kinds, overs = list(dict.fromkeys(frame["kind"])), list(dict.fromkeys(frame["over"]))
    sizes = [frame[frame["kind"] == kind]["method"].nunique() for kind in kinds]
    figure, axes = plt.subplots(
        len(kinds), 1, figsize=(7.6, 0.23 * sum(sizes) + 0.5 * len(kinds) + 1.0), layout="constrained", sharex=True, squeeze=False,
        height_ratios=[n + 1 for n in sizes],
    )  # fmt: skip
    for axis, kind in zip(axes[:, 0], kinds, strict=True):
        _places_of(axis, frame[frame["kind"] == kind])
    axes[-1, 0].set(xlim=(-3, 103), xlabel="share of the other methods that do better (%)")
    handles = [axis.plot([], [], color="dimgrey", linewidth=_width(over), label=f"95 % over {over}")[0] for over in overs]
    handles.append(axis.scatter([], [], s=9, color="silver", label="one protocol"))
    figure.legend(handles=handles, loc="outside right center", frameon=False)
    heading(figure, title)
    return figure


def _places_of(axis: Axes, frame: pd.DataFrame) -> None:
    """One kind of clients."""
    mean, single = frame[frame["protocol"] == "mean"], frame[(frame["protocol"] != "mean") & (frame["over"] == "clients")]
    order = mean[mean["over"] == "clients"].sort_values("place", kind="stable")
    for down, row in enumerate(order.itertuples()):
        own, style = single.loc[single["method"] == row.method, "place"], look(row.method)
        axis.scatter(own, [down] * len(own), s=9, color="silver", zorder=2)
        for interval in mean[mean["method"] == row.method].itertuples():
            ends = [interval.place_low, interval.place_high]
            axis.plot(ends, [down, down], color=style.colour, linewidth=_width(interval.over), alpha=0.6)
        axis.scatter(row.place, down, s=30, color=style.colour, marker=style.marker, zorder=3)
    count = int(order["protocols"].iloc[0])
    axis.set_yticks(range(len(order)), order["method"])
    axis.set(ylim=(len(order) - 0.4, -0.6))
    axis.set_title(
        f"clients with {order['kind'].iloc[0]}, {count} protocol{'s' * (count > 1)}".replace("with new", "that are new"), fontsize=9
    )


def _width(over: str) -> float:
    return 4 if over == "clients" else 1.2


def leak(frame: pd.DataFrame, *, title: str = "") -> Figure:
    """Dumbbells from ``fixed`` to ``resplit`` (accuracy, %) with their ``_std``, methods down, one panel per test ``column``."""
    columns, methods = list(dict.fromkeys(frame["column"])), list(dict.fromkeys(frame["method"]))
    size = (1.55 * len(columns) + 1.2, 0.22 * len(methods) + 1.3)
    figure, axes = plt.subplots(1, len(columns), figsize=size, layout="constrained", sharey=True, squeeze=False)
    for axis, column in zip(axes[0], columns, strict=True):
        rows = frame[frame["column"] == column].set_index("method").reindex(methods)
        axis.hlines(range(len(methods)), rows["fixed"], rows["resplit"], color="darkgrey", linewidth=1.5, zorder=1)
        for name, marker in (("fixed", "o"), ("resplit", "D")):
            colour = SHIFTS["original"] if name == "fixed" else SHIFTS["corrupted"]
            axis.errorbar(rows[name], range(len(methods)), xerr=rows[f"{name}_std"], fmt="none", ecolor=colour, elinewidth=0.8)
            axis.scatter(rows[name], range(len(methods)), s=22, color=colour, marker=marker, label=name, zorder=2)
        axis.set(title=column, xlim=(0, 102), xticks=(0, 50, 100))
    axes[0][0].set_yticks(range(len(methods)), methods)
    axes[0][0].invert_yaxis()
    axes[0][len(columns) // 2].set_xlabel("accuracy (%)")
    labels = ("fixed split", "split drawn anew\nat every use (leaks)")
    figure.legend(axes[0][0].get_legend_handles_labels()[0], labels, loc="outside right center", frameon=False)
    heading(figure, title)
    return figure


def curve(frame: pd.DataFrame, *, title: str = "") -> Figure:
    """``mean`` accuracy of no adaptation over ``round``, one panel per ``run_model``, one line per ``protocol``, with its ``std``."""
    models = list(dict.fromkeys(frame["run_model"]))
    figure, axes = plt.subplots(1, len(models), figsize=(3.2 * len(models) + 1.8, 3.2), layout="constrained", sharey=True, squeeze=False)
    protocols = list(dict.fromkeys(frame["protocol"]))
    for axis, model in zip(axes[0], models, strict=True):
        for name, line in frame[frame["run_model"] == model].groupby("protocol", sort=False):
            i = protocols.index(name)
            axis.plot(line["round"], line["mean"], color=PALETTE[i % len(PALETTE)], marker="osD^vP*Xh<"[i % 10], markersize=4, label=name)
            if line["std"].notna().any():
                low, high = line["mean"] - line["std"], line["mean"] + line["std"]
                axis.fill_between(line["round"], low, high, color=PALETTE[i % len(PALETTE)], alpha=0.15, linewidth=0)
        axis.set(title=model, xlabel="round")
    axes[0][0].set_ylabel("accuracy without adaptation (%)")
    lines = {line.get_label(): line for axis in axes[0] for line in axis.get_lines()}
    figure.legend(lines.values(), lines, loc="outside right center", frameon=False)
    heading(figure, title)
    return figure
