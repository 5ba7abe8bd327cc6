"""Figures of the comparison of all methods. A ``title`` is used as in ``fedlib.plots.charts``."""

from collections.abc import Sequence

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedlib.papers.comparison.answer import SHIFTS
from fedlib.papers.comparison.causes import AS_IT_IS
from fedlib.papers.comparison.ranking import SAME_TEST
from fedlib.papers.comparison.recipes import NONE, PLAIN
from fedlib.papers.comparison.significance import FEW, HELPS, HURTS
from fedlib.plots.charts import SPREAD, said
from fedlib.plots.style import PALETTE, heading, look, luminance, unsigned

NAMES = {PLAIN: f"{NONE}, on FedTTA's network"}
# Protocol and test -> what its images are, in the words of the answer.
MEANT = {place: shift for shift, places in SHIFTS.items() for place in places}
HATCHED = {"facecolor": "gainsboro", "edgecolor": "darkgrey", "hatch": "////", "linewidth": 0}

# Value -> name of its scale, colours, limits, text, which ends are open; None: symmetrical limits that the values give.
PANELS = {
    "mean": ("accuracy (%)", "viridis", (0, 100), "{:.0f}", "neither"),
    "gain": ("gain over no adaptation (points)", "vlag_r", None, "{:+.0f}", "both"),
    "worst": ("worst client's accuracy (%)", "viridis", (0, 100), "{:.0f}", "neither"),
    "ece": ("expected calibration\nerror (points)", "viridis_r", (0, 60), "{:.0f}", "max"),
}

# Blocks of panels of the halves: what the numbers are, and the colours.
HALVES = {
    "mean": ("accuracy (%)", "points over\ncross-entropy alone"),
    "worst": ("worst client (%)", "%"),
    "ece": ("calibration\nerror (points)", "points"),
}


def heatmaps(frame: pd.DataFrame, values: Sequence[str] = ("mean", "gain"), *, title: str = "") -> Figure:
    """``values`` of ``PANELS`` one above the other, methods down, protocols and their tests across, as ``MEANT`` calls them; cells without
    a value, which were not run, are hatched, and methods and protocols without any are named below, except for FedTTA's baseline, which
    comes and goes with it. Gains share a diverging scale with zero in its middle, and are bold where ``verdict`` says that the corrected
    test carries the difference; a dagger is on methods that saw only the first ``images`` of some streams."""
    ran, lacking = frame[frame[list(values)].notna().any(axis=1)], "not run" if "gain" in values else "not run, or too few images"
    if absent := [name for place in ("protocol", "method") for name in frame[place].unique() if name not in {*ran[place], PLAIN}]:
        title += f"{', ' if chr(10) in title else chr(10)}{lacking}: {', '.join(absent)}"
    frame = frame[frame["protocol"].isin(ran["protocol"]) & frame["method"].isin(ran["method"])]
    if "gain" in values:
        cut = _cut(frame)
        title += _bold(frame, "verdict", "no adaptation")
        title += "\n†: accuracy on the first images of each stream; the gain is on the same images." if cut else ""
        frame = frame.replace({"method": {method: f"{method} †" for method in cut}})
    frame = frame.replace({"method": NAMES})
    across = frame[["protocol", "column"]].drop_duplicates()
    methods = list(dict.fromkeys(frame["method"]))
    size = (max(4.6, 0.46 * len(across) + 2.2), 2 * (max(1.9, 0.2 * len(methods)) + 0.75) + 0.9)  # the least holds the scales' names
    figure, axes = plt.subplots(len(values), 1, figsize=size, layout="constrained", sharex=True)
    for axis, value in zip(axes, values, strict=True):
        name, colours, limits, text, extend = PANELS[value]
        if limits is None:
            limit = max(1.0, frame[value].abs().quantile(0.9)) if frame[value].notna().any() else 1.0
            limits = (-limit, limit)
        scale = mpl.colors.Normalize(*limits)
        sure = _wide(frame, "verdict", methods, across) if value == "gain" and "verdict" in frame else None
        wide = _wide(frame, value, methods, across)
        squares(axis, wide, wide, colours, scale, text, sure)
        axis.set_yticks(range(len(wide)), wide.index, fontsize=8)
        for edge in np.flatnonzero(across["protocol"].to_numpy()[1:] != across["protocol"].to_numpy()[:-1]):
            axis.axvline(edge + 0.5, color="white", linewidth=3)
        figure.colorbar(mpl.cm.ScalarMappable(scale, colours), ax=axis, label=name, pad=0.01, aspect=30, extend=extend)
    slanted(axes[-1], [MEANT.get(place, place[1]) for place in across.itertuples(index=False, name=None)])
    _headings(axes[0], across)
    if "worst" in values and (one := [name for name in across["protocol"].unique() if name in SAME_TEST]):
        title += f"\n{', '.join(one)}: all clients have one test, so that without a personal part the worst is the mean."
    if any(_wide(frame, value, methods, across).isna().any(axis=None) for value in values):
        title += f"\nHatched: {'not run' if 'gain' in values else 'not run, too few images, or no logits'}."
    return heading(figure, title)


def _cut(frame: pd.DataFrame) -> list[str]:
    """Methods that saw only the first images of some streams."""
    if "images" not in frame:
        return []
    most = frame.groupby(["protocol", "column"])["images"].transform("max")
    return list(frame.loc[frame["images"] < most, "method"].unique())


def _bold(frame: pd.DataFrame, verdict: str, other: str) -> str:
    """The line that says what is bold, or that nothing is; none without verdicts."""
    if verdict not in frame or frame[verdict].isna().all():
        return ""
    sure = frame[verdict].isin((HELPS, HURTS)).any()
    return f"\nBold: differs from {other} (corrected test)." if sure else f"\nNothing differs from {other} for certain (corrected test)."


def _wide(frame: pd.DataFrame, value: str, methods: list[str], across: pd.DataFrame) -> pd.DataFrame:
    wide = frame.pivot(index="method", columns=["protocol", "column"], values=value)
    return wide.reindex(index=methods, columns=pd.MultiIndex.from_frame(across))


def squares(
    axis: Axes,
    shown: pd.DataFrame,
    coloured: pd.DataFrame,
    colours: str,
    scale: mpl.colors.Normalize,
    text: str = "{:.0f}",
    verdicts: pd.DataFrame | None = None,
) -> None:
    """The numbers of ``shown`` on squares in the colours of another frame, bold with a verdict; hatched where there is none."""
    axis.imshow(coloured, cmap=colours, norm=scale, aspect="auto")
    for (down, along), value in np.ndenumerate(shown.to_numpy(dtype=float)):
        if np.isnan(value):
            axis.add_patch(plt.Rectangle((along - 0.5, down - 0.5), 1, 1, **HATCHED))
            continue
        # White has more contrast than black below this relative luminance.
        dark = luminance(mpl.colormaps[colours](scale(coloured.iloc[down, along]))) < 0.179
        sure = verdicts is not None and verdicts.iloc[down, along] in (HELPS, HURTS)
        how = {"color": "white" if dark else "black", "weight": "bold" if sure else "normal"}
        axis.text(along, down, unsigned(text.format(value)), ha="center", va="center", fontsize=6.5, **how)
    axis.grid(visible=False)


def panels(
    names: Sequence[str], down: Sequence[str], *, across: int = 3, width: float = 2.5, sharex: bool = False
) -> tuple[Figure, list[Axes]]:
    """One panel per name, ``across`` in a row, each with the lines ``down``, the first at the top."""
    columns = min(across, len(names))
    rows = -(-len(names) // columns)
    size = (width * columns + 2.4, rows * (0.18 * len(down) + 0.7) + 0.8)
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", sharex=sharex, sharey=True, squeeze=False)
    for i, axis in enumerate(axes.flat):
        axis.set_visible(i < len(names))
    for axis, name in zip(axes.flat, names, strict=False):
        axis.set_title(name, fontsize=9)
    axes[0][0].set_yticks(range(len(down)), down, fontsize=8)
    axes[0][0].set_ylim(len(down) - 0.4, -0.6)
    return figure, list(axes.flat[: len(names)])


def slanted(axis: Axes, names: Sequence[str], places: Sequence[float] | None = None, *, top: bool = False) -> None:
    """Names of columns at 45 degrees, below the axis or above it."""
    places, side = range(len(names)) if places is None else places, "left" if top else "right"
    if top:
        axis.xaxis.tick_top()
        axis.tick_params(axis="x", length=0)
    axis.set_xticks(places, names, rotation=45, ha=side, rotation_mode="anchor", fontsize=7.5)


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
    """``gain`` (points) over ``seconds`` per 1,000 samples (log) with ``gain_std`` and ``seconds_std``, one panel per ``protocol``, one
    point per ``method`` in its fixed look, the methods named beside; plain: methods on another network, as hollow points. Under ``few``
    test images are told."""
    protocols = frame["protocol"].unique()
    across, down = min(2, len(protocols)), (len(protocols) + 1) // 2
    figure = plt.figure(figsize=(6.6 * across, 3.8 * down), layout="constrained")
    for place, protocol in enumerate(protocols, 1):
        axis = figure.add_subplot(down, across, place)
        for row in frame[frame["protocol"] == protocol].sort_values("seconds").itertuples():
            style = look(row.method)
            face = "none" if row.method in plain else style.colour
            axis.errorbar(row.seconds, row.gain, xerr=row.seconds_std, yerr=row.gain_std, color=style.colour, elinewidth=0.8)
            seen = f", {row.images} images" if row.images < few else ""
            label = f"{NAMES.get(row.method, row.method)} ({float(f'{row.seconds:.2g}'):g} s{seen})"
            axis.scatter(row.seconds, row.gain, s=42, marker=style.marker, color=style.colour, facecolors=face, label=label, zorder=3)
        axis.set(xscale="log", xlabel="seconds per 1,000 samples (log)", ylabel=f"gain on {protocol} (points)")
        axis.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=7.5)
    return heading(figure, f"{title}\nGains: mean of the tests. Bars: one standard deviation, of gains over seeds, of times over repeats.")


def curve(frame: pd.DataFrame, *, title: str = "") -> Figure:
    """``mean`` accuracy of no adaptation over ``round`` with its ``std``, a panel per ``method`` and network, a line per ``protocol``."""
    models = dict(zip(frame["method"], frame["run_model"], strict=True))
    figure, axes = plt.subplots(1, len(models), figsize=(3.2 * len(models) + 1.8, 3.2), layout="constrained", sharey=True, squeeze=False)
    protocols = list(dict.fromkeys(frame["protocol"]))
    for axis, (method, model) in zip(axes[0], models.items(), strict=True):
        for name, line in frame[frame["method"] == method].groupby("protocol", sort=False):
            i = protocols.index(name)
            axis.plot(line["round"], line["mean"], color=PALETTE[i % len(PALETTE)], marker="osD^vP*Xh<"[i % 10], markersize=4, label=name)
            if line["std"].notna().any():
                low, high = line["mean"] - line["std"], line["mean"] + line["std"]
                axis.fill_between(line["round"], low, high, color=PALETTE[i % len(PALETTE)], alpha=0.15, linewidth=0)
        axis.set(title=model if len(set(models.values())) == len(models) else f"{model}\n{NAMES.get(method, method)}", xlabel="round")
        axis.xaxis.get_major_locator().set_params(integer=True)
    axes[0][0].set_ylabel("accuracy without adaptation (%)")
    lines = {line.get_label(): line for axis in axes[0] for line in axis.get_lines()}
    figure.legend(lines.values(), lines, loc="outside right center", frameon=False)
    return heading(figure, title + said(frame, SPREAD))


def gains(frame: pd.DataFrame, *, title: str = "") -> Figure:
    """``gain`` (points; see ``over_tests``) with its interval ``low`` to ``high``, methods down, one panel per ``protocol``. Filled points:
    the corrected test carries the difference (``verdict``); hollow ones: it does not; crosses: too few images."""
    shown = over_tests(frame)
    protocols, methods = list(dict.fromkeys(shown["protocol"])), list(dict.fromkeys(shown["method"]))
    figure, axes = panels(protocols, methods)
    for axis, protocol in zip(axes, protocols, strict=True):
        for row in shown[shown["protocol"] == protocol].itertuples():
            y, colour, sure = methods.index(row.method), look(row.method).colour, row.verdict in (HELPS, HURTS)
            axis.plot([row.low, row.high], [y, y], color=colour, linewidth=1.3, alpha=0.7)
            marker = {"marker": "x"} if row.verdict == FEW else {"marker": "o", "facecolors": colour if sure else "white"}
            axis.scatter(row.gain, y, s=22, color=colour, zorder=3, **marker)
        axis.axvline(0, color="black", linewidth=0.8)
    besides = "".join(f" ({name}: and images)" for name in SAME_TEST if name in protocols)
    interval = f"95 % over {frame['over'].iloc[0]}{besides}, not corrected for the number of tests"
    figure.supxlabel(f"gain over no adaptation, mean of a protocol's tests (points)\n{interval}", fontsize=9)
    sure, few = shown["verdict"].isin((HELPS, HURTS)), shown["verdict"] == FEW
    marks = {"differs\n(corrected test)": (sure, {"marker": "o"}), "undecided": (~sure & ~few, {"marker": "o", "markerfacecolor": "white"})}
    marks["too few images\nto test"] = few, {"marker": "x"}
    handles = [plt.Line2D([], [], color="dimgrey", label=name, **mark) for name, (met, mark) in marks.items() if met.any()]
    figure.legend(handles=handles, loc="outside right center", frameon=False)
    return heading(figure, title)


def halves(frame: pd.DataFrame, *, title: str = "") -> Figure:
    """Trainings across and adaptations down: a block of panels for ``mean`` and, where they have values, for ``worst`` and ``ece``, in each
    one panel for every ``protocol`` and ``network``; hatched where the two do not fit or nothing is told. Colours of the mean: ``total``,
    the points over cross-entropy without adaptation on the same network; bold where ``total_verdict`` says that the corrected test carries
    them."""
    places = list(dict.fromkeys(zip(frame["protocol"], frame["network"], strict=True)))
    steps, trainings = list(dict.fromkeys(frame["adaptation"])), list(dict.fromkeys(frame["training"]))
    values = [value for value in HALVES if value == "mean" or (value in frame and frame[value].notna().any())]
    across = min(4, len(places))
    names = ["\n".join(place) for place in places] + [""] * (-len(places) % across)
    figure, axes = panels(names * len(values), steps, across=across, width=1.9, sharex=True)
    limit = max(1.0, frame["total"].abs().quantile(0.9))
    for value, block in zip(values, np.reshape(axes, (len(values), -1)), strict=True):
        row, spare = block[: len(places)], block[len(places) :]
        for axis in spare:
            axis.set_visible(False)
        _, colours, limits, _, extend = PANELS[value]
        if value == "mean":
            colours, limits, extend = "vlag_r", (-limit, limit), "both"
        scale = mpl.colors.Normalize(*limits)
        for axis, (protocol, network) in zip(row, places, strict=True):
            own = frame[(frame["protocol"] == protocol) & (frame["network"] == network)]
            wide = own.pivot(index="adaptation", columns="training").reindex(index=steps)
            shown, total, sure = (wide[column].reindex(columns=trainings) for column in (value, "total", "total_verdict"))
            squares(axis, shown, total if value == "mean" else shown, colours, scale, verdicts=sure if value == "mean" else None)
            slanted(axis, trainings)
        shown, coloured = HALVES[value]
        row[0].set_ylabel(shown, fontsize=8)
        figure.colorbar(mpl.cm.ScalarMappable(scale, colours), ax=list(row), extend=extend, aspect=20).set_label(coloured, fontsize=8)
    for axis in row[-across:]:  # the lowest of each column, where no panel is below
        axis.tick_params(labelbottom=True)
    hatched = any(patch.get_hatch() for axis in axes for patch in axis.patches)
    hatching = "\nHatched: the two do not fit, or their scores are no logits, or a test has too few images." if hatched else ""
    return heading(figure, title + _bold(frame, "total_verdict", "cross-entropy alone") + hatching)


def tuning(frame: pd.DataFrame, *, title: str = "") -> Figure:
    """The gain ``tuned`` with the interval of its difference (``low`` to ``high``) from the gain ``untuned``, a stroke (points; see
    ``over_tests``), methods down, one panel per ``protocol``. Filled diamonds: the corrected test carries the difference (``verdict``)."""
    shown = over_tests(frame)
    protocols, methods = list(dict.fromkeys(shown["protocol"])), list(dict.fromkeys(shown["method"]))
    figure, axes = panels(protocols, methods, width=3.2)
    for axis, protocol in zip(axes, protocols, strict=True):
        for row in shown[shown["protocol"] == protocol].itertuples():
            y, colour = methods.index(row.method), look(row.method).colour
            axis.hlines(y, row.untuned + row.low, row.untuned + row.high, color=colour, linewidth=1.3, alpha=0.7, zorder=1)
            axis.scatter(row.untuned, y, s=26, marker="|", color="black", zorder=2)
            face = colour if row.verdict in (HELPS, HURTS) else "white"
            axis.scatter(row.tuned, y, s=22, marker="D", facecolors=face, edgecolors=colour, zorder=3)
        axis.axvline(0, color="black", linewidth=0.8)
    interval = f"with the 95 % interval of what tuning adds, over {frame['over'].iloc[0]}, not corrected for the number of tests"
    figure.supxlabel(f"gain over no adaptation, mean of a protocol's tests (points)\n{interval}", fontsize=9)
    differs, sure = "tuned on source clients: differs\nfrom values as set (corrected test)", shown["verdict"].isin((HELPS, HURTS))
    marks = [("values as set", "|", "black"), (differs, "D", "dimgrey"), ("tuned: undecided", "D", "white")]
    marks = [mark for mark, met in zip(marks, (True, sure.any(), not sure.all()), strict=True) if met]
    handles = [plt.Line2D([], [], color="dimgrey", linestyle="", marker=m, markerfacecolor=f, label=n) for n, m, f in marks]
    figure.legend(handles=handles, loc="outside right center", frameon=False)
    return heading(figure, title)


def over_tests(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of every protocol's ``mean`` column, or of its only one."""
    return frame[(frame["column"] == "mean") | ~frame["protocol"].isin(frame.loc[frame["column"] == "mean", "protocol"])]


def causes(frame: pd.DataFrame, *, title: str = "") -> Figure:
    """``gain`` over no adaptation with its interval for every ``change``, one panel with its own scale per ``method`` and ``protocol``;
    filled where the corrected test (``p_holm``) carries it, a cross where too few images were tested, a dotted line at what is changed."""
    studies = list(dict.fromkeys(zip(frame["method"], frame["protocol"], strict=True)))
    counts = [((frame["method"] == method) & (frame["protocol"] == protocol)).sum() for method, protocol in studies]
    panels = {"figsize": (6.6, 0.2 * sum(counts) + 0.75 * len(studies) + 0.7), "height_ratios": counts}
    figure, axes = plt.subplots(len(studies), 1, **panels, layout="constrained", squeeze=False)
    for axis, (method, protocol) in zip(axes[:, 0], studies, strict=True):
        own, colour = frame[(frame["method"] == method) & (frame["protocol"] == protocol)], look(method).colour
        for y, row in enumerate(own.itertuples()):
            axis.plot([row.low, row.high], [y, y], color=colour, linewidth=1.3, alpha=0.7)
            marker = {"marker": "x"} if np.isnan(row.p_holm) else {"facecolors": colour if row.p_holm <= 0.05 else "white"}
            axis.scatter(row.gain, y, s=24, color=colour, zorder=3, **marker)
        for gain in own.loc[own["change"] == AS_IT_IS.name, "gain"]:  # none where it diverged
            axis.axvline(gain, color="dimgrey", linewidth=0.8, linestyle=":")
        axis.axvline(0, color="black", linewidth=0.8)
        words = [f"{row.change} ({row.mean:.0f} %, without adaptation {row.without:.0f} %)" for row in own.itertuples()]
        axis.set_yticks(range(len(own)), words, fontsize=7.5)
        axis.set_ylim(len(own) - 0.4, -0.6)
        axis.set_title(f"{method} on {protocol}", fontsize=9)
    marks = "filled: differs from none (corrected test)"
    marks += "; cross: too few images to test" * bool(frame["p_holm"].isna().any()) + "; dotted: as it is"
    figure.supxlabel(f"gain over no adaptation (points) with 95 % interval, not corrected\n{marks}", fontsize=9)
    return heading(figure, title)
