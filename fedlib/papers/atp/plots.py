"""Figures that only ATP's notebook has: table in, Figure out."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from fedlib.core import Benchmark
from fedlib.plots.charts import SPREAD, band, said, strip
from fedlib.plots.style import BESIDE, PALETTE, SHIFTS, heading, look

FRAME = 20
CROSS = "the model without adaptation"
# A colour and a shape for each of up to twelve things in one picture.
DISTINCT = ("black", *PALETTE, "#4b0082")
SHAPES = "osD^vP*X<>hp"
COLOURS = dict(zip(("feature shift", "label shift", "hybrid shift"), PALETTE, strict=False))


def clients(frame: pd.DataFrame, *, benchmarks: Mapping[str, Benchmark], title: str) -> Figure:
    """One column per shift: samples per client and class (dots by area, target clients in orange), below images of some clients. They are
    taken from the ``benchmarks``, whose training samples ``frame`` counts."""
    figure = plt.figure(figsize=(4 * len(benchmarks), 5.2), layout="constrained")
    heading(figure, title)
    most = max(_per_class(c, benchmark).max() for benchmark in benchmarks.values() for c in benchmark.clients)
    for part, (label, benchmark) in zip(figure.subfigures(1, len(benchmarks), squeeze=False)[0], benchmarks.items(), strict=True):
        targets = [client for client in benchmark.clients if not client.source]
        sources = [client for client in benchmark.clients if client.source]
        holders = [*sources[:3], *targets[:3]]
        top, *strips = part.subplots(1 + len(holders), 1, height_ratios=[4.5] + [1] * len(holders))
        for group, colour in ((sources, SHIFTS["original"]), (targets, SHIFTS["corrupted"])):
            counts = np.stack([_per_class(c, benchmark) for c in group])
            across, down = np.meshgrid([c.id for c in group], range(benchmark.n_classes), indexing="ij")
            top.scatter(across, down, s=50 * counts / most, color=colour)
        top.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        top.set(title=label, xlabel=f"client (orange: target; largest dot: {most})", ylabel="class")
        for axis, client in zip(strips, holders, strict=True):
            strip(axis, _samples(client)[0][:8])
            axis.set_ylabel(f"{client.id}: {client.about or 'clean'}", rotation=0, ha="right", va="center", fontsize=7)
    return figure


def _per_class(client, benchmark: Benchmark) -> np.ndarray:
    return np.bincount(_samples(client)[1], minlength=benchmark.n_classes)


def _samples(client) -> tuple[Tensor, Tensor]:
    """Images and labels that a client holds, on the CPU."""
    held = client.train if client.source else next(iter(client.tests.values()))[0]
    return held.images.cpu(), held.labels.cpu()


def trade_off(frame: pd.DataFrame, title: str) -> Figure:
    """Accuracy under label shift against accuracy under feature shift, one point per ``method``; lines through NoAdapt. Colours are this
    figure's own, since methods that share one elsewhere lie side by side here; of points at one place the later is the smaller."""
    wide = frame.pivot_table(index="method", columns="setting", values="mean", sort=False).dropna()
    figure, axis = plt.subplots(figsize=(6.2, 4.2), layout="constrained")
    extent = (wide.max() - wide.min()).clip(lower=1e-9)
    for i, (method, row) in enumerate(wide.iterrows()):
        colour, marker = DISTINCT[i % len(DISTINCT)], SHAPES[i % len(SHAPES)]
        covered = (((wide.iloc[:i] - row).abs() / extent) < 0.02).all(axis=1).sum()
        size = 9 * 0.7**covered
        style = {"color": colour, "markersize": size, "linestyle": "none", "markeredgecolor": "white", "markeredgewidth": 0.6}
        axis.plot(row["feature shift"], row["label shift"], marker, label=method, zorder=3 + i, **style)
    if "NoAdapt" in wide.index:
        _cross(axis, wide.loc["NoAdapt"])
    axis.margins(0.08)
    axis.set(xlabel="accuracy under feature shift (%)", ylabel="accuracy under label shift (%)")
    axis.legend(**BESIDE)
    return heading(figure, f"{title}\nDashed: {CROSS}.")


def module_sets(frame: pd.DataFrame, title: str) -> Figure:
    """The same axes for fixed rates of module sets: left types, right blocks; a set's rates are joined, the marker's size grows with the
    rate. A point more than ``FRAME`` points below the model without adaptation is drawn on the frame's edge, as a cross."""
    names = ["grouping", "modules", "rate"]
    wide = frame.pivot_table(index=names, columns="setting", values="mean", sort=False).reset_index()
    origin, axes = wide[wide["grouping"] == "none"].iloc[0], ["feature shift", "label shift"]
    floor = origin[axes].astype(float) - FRAME
    figure, panels = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for axis, grouping in zip(panels, ("type", "block"), strict=True):
        groups = wide[wide["grouping"] == grouping].groupby("modules", sort=False)
        for i, (name, points) in enumerate(groups):
            points = points.sort_values("rate")
            beyond = (points[axes] < floor).any(axis=1)
            x, y = (points[side].clip(lower=floor[side]) for side in axes)
            colour, marker = DISTINCT[i % len(DISTINCT)], SHAPES[i % len(SHAPES)]
            sizes = 8 + 60 * points["rate"].abs() / points["rate"].abs().max()
            axis.plot(x, y, color=colour, linewidth=0.7)
            up, down = (points["rate"] > 0) & ~beyond, (points["rate"] <= 0) & ~beyond
            axis.scatter(x[up], y[up], sizes[up], color=colour, marker=marker, label=name)
            axis.scatter(x[down], y[down], sizes[down], marker=marker, facecolor="none", edgecolor=colour)
            axis.scatter(x[beyond], y[beyond], 30, color=colour, marker="x", clip_on=False, zorder=4)
        _cross(axis, origin)
        axis.set(xlabel="accuracy under feature shift (%)", ylabel="accuracy under label shift (%)", title=f"one {grouping} at a time")
        axis.set_xlim(left=max(axis.get_xlim()[0], floor["feature shift"]))
        axis.set_ylim(bottom=max(axis.get_ylim()[0], floor["label shift"]))
        axis.legend(**BESIDE)
    notes = f"hollow: negative rate; size: its absolute value; dashed: {CROSS}; x on the edge: more than {FRAME} points below it"
    return heading(figure, f"{title}\n{notes}")


def _cross(axis, origin: pd.Series) -> None:
    """Lines through the accuracies without adaptation."""
    # Above the grid, which would hide them.
    axis.axvline(origin["feature shift"], color="dimgrey", linewidth=1, linestyle="--", zorder=2)
    axis.axhline(origin["label shift"], color="dimgrey", linewidth=1, linestyle="--", zorder=2)


def rates(frame: pd.DataFrame, members: pd.DataFrame, title: str) -> Figure:
    """Learned rates of three shifts: bars for the mean of each block (left) and type (right), dots for single modules.

    members: columns name, block, type of every module.
    """
    figure, panels = plt.subplots(1, 2, figsize=(12, 3.6), layout="constrained", width_ratios=[1, 1.6])
    single = frame[frame["grouping"] == "module"].merge(members, left_on="modules", right_on="name")
    for axis, grouping in zip(panels, ("block", "type"), strict=True):
        groups = list(members[grouping].unique())
        for k, (setting, colour) in enumerate(COLOURS.items()):
            bars = frame[(frame["setting"] == setting) & (frame["grouping"] == grouping)].set_index("modules")["mean"].reindex(groups)
            place = np.arange(len(groups)) + 0.27 * (k - 1)
            axis.bar(place, bars, 0.25, color=colour, label=setting)
            dots = single[single["setting"] == setting]
            axis.plot([place[groups.index(g)] for g in dots[grouping]], dots["mean"], ".", color="black", markersize=3, alpha=0.6)
        axis.axhline(0, color="black", linewidth=0.6)
        axis.set_xticks(range(len(groups)), groups, rotation=30, ha="right")
        axis.set(ylabel="adaptation rate", title=f"by {grouping}")
    panels[0].legend(frameon=False)
    return heading(figure, f"{title}\nDots: single modules.")


def sizes(frame: pd.DataFrame, title: str) -> Figure:
    """Accuracy over the cohort of the rates' training (left) and over the test batch size (right)."""
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained", sharey=True)
    for axis, column in zip(panels, ("cohort", "batch"), strict=True):
        for method, line in frame[frame["column"] == column].groupby("method", sort=False):
            style, line = look(method), line.sort_values("size")
            options = {"color": style.colour, "linestyle": style.line, "marker": style.marker, "markersize": 4, "label": method}
            axis.plot(line["size"], line["mean"], **options)
            band(axis, "size", line, style.colour)
        ticks = sorted(frame.loc[frame["column"] == column, "size"].unique())
        axis.set(xscale="log", xlabel=f"{column} size", ylabel="accuracy (%)" if column == "cohort" else "")
        axis.set_xticks(ticks, [str(t) for t in ticks])
        axis.minorticks_off()
    panels[1].legend(**BESIDE)
    return heading(figure, title + said(frame, SPREAD))


def losses(frame: pd.DataFrame, title: str) -> Figure:
    """Cross-entropy over the rounds of learning the rates, one panel per cohort: source clients (training) and target clients (test)."""
    cohorts = sorted(frame["cohort"].unique(), reverse=True)
    figure, panels = plt.subplots(1, len(cohorts), figsize=(2.4 * len(cohorts) + 1, 2.8), layout="constrained", sharey=True, squeeze=False)
    for axis, cohort in zip(panels[0], cohorts, strict=True):
        for column, colour in (("train", SHIFTS["original"]), ("test", SHIFTS["corrupted"])):
            line = frame[(frame["cohort"] == cohort) & (frame["column"] == column)].sort_values("round")
            axis.plot(line["round"], line["mean"], color=colour, linewidth=1.2, label=column)
            band(axis, "round", line, colour)
        axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axis.set(xlabel="round", title=f"cohort {cohort}")
    panels[0][0].set_ylabel("cross-entropy")
    panels[0][-1].legend(**BESIDE)
    return heading(figure, title + said(frame, SPREAD))


def corruptions(frame: pd.DataFrame, *, pictures: Mapping[str, np.ndarray], split: int, title: str) -> Figure:
    """One picture under every kind (rows: severities 1 to 5), whose changes ``frame`` has. pictures: kind -> uint8 [5, C, H, W]; the first
    ``split`` kinds are those of the source clients."""
    names = list(pictures)
    figure, axes = plt.subplots(2, 1, figsize=(14, 7.2), layout="constrained", height_ratios=[1, 1])
    for axis, group, label in zip(axes, (names[:split], names[split:]), ("(a) source clients", "(b) target clients"), strict=True):
        framed = {name: np.pad(pictures[name], ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=255) for name in group}
        columns = [np.concatenate(list(framed[name].transpose(0, 2, 3, 1)), axis=0) for name in group]
        blank = np.full((columns[0].shape[0], columns[0].shape[1] * (split - len(group)), columns[0].shape[2]), 255, np.uint8)
        axis.imshow(np.concatenate([*columns, blank], axis=1).squeeze(), cmap="gray", vmin=0, vmax=255)
        width, height = columns[0].shape[1], columns[0].shape[0] / 5
        axis.set_xticks([width * (i + 0.5) for i in range(len(group))], [n.replace("_", "\n") for n in group], fontsize=7)
        axis.set_yticks([height * (s + 0.5) for s in range(5)], range(1, 6))
        axis.set(ylabel="severity", title=label, frame_on=False)
        axis.grid(visible=False)
    return heading(figure, title)


def toy(frame: pd.DataFrame, title: str) -> Figure:
    """Histograms of z by class: training, then one panel per rate; the dashed line is the decision threshold."""
    panels = list(frame.groupby(["panel", "alpha"], sort=False))
    figure, axes = plt.subplots(1, len(panels), figsize=(2.6 * len(panels), 2.8), layout="constrained", sharey=True)
    for axis, ((panel, alpha), rows), letter in zip(axes, panels, "abcdefgh", strict=False):
        for label, colour in ((-1, SHIFTS["corrupted"]), (1, SHIFTS["original"])):
            line = rows[rows["label"] == label]
            axis.fill_between(line["z"], line["density"], step="mid", color=colour, alpha=0.6, label=f"y = {label:+d}")
        axis.axvline(0, color="black", linestyle="--", linewidth=0.8)
        what = "training" if panel == "train" else f"test, rate {alpha:g}"
        axis.set(title=f"({letter}) {what}: {rows['accuracy'].iloc[0]:.1f} %", xlabel="z")
    axes[0].set_ylabel("density")
    axes[0].legend(frameon=False)
    return heading(figure, title)
