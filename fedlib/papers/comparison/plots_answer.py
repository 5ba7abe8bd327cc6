"""The comparison's answer in one picture. A ``title`` is used as in ``fedlib.plots.charts``."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from fedlib.papers.comparison.answer import MIXED
from fedlib.papers.comparison.plots import slanted
from fedlib.papers.comparison.ranking import MEAN
from fedlib.papers.comparison.significance import FEW, HELPS, HURTS, UNDECIDED
from fedlib.plots.style import BLUE, ORANGE, PURPLE, heading, unsigned

COLOURS = {HELPS: BLUE, HURTS: ORANGE, MIXED: PURPLE, UNDECIDED: "whitesmoke", FEW: "white"}
MARKS = {HELPS: "▲", HURTS: "▼", MIXED: "◆"}
# Of the legend, in its order.
WORDS = {
    HELPS: "▲ helps",
    HURTS: "▼ hurts",
    MIXED: "◆ helps on one test, hurts on another",
    UNDECIDED: "undecided",
    FEW: "few: too few images to test",
}
RANKS = {"labels": "rank, with labels", "new": "rank, new clients"}
PRICE = ("s per 1,000 images", "memory (MiB)")
TAKEN = ("client's labels", "held-out labels", "own training (x passes)", "own head", "batch norm", "needs together", "class shift only")
# What is known of the tested client's labels -> what is told.
LABELS = {"must": "required", "used": "if any", "": ""}
# What is kept and sent is told in words. Column -> width in other columns.
TOLD = {"kept from training": 3.3, "sent beside the model": 2.4}
CELL = (0.5, 0.22)  # inches


def answer(
    frame: pd.DataFrame, cost: pd.DataFrame, needs: pd.DataFrame, ranks: pd.DataFrame, places: pd.DataFrame, *, title: str = ""
) -> Figure:
    """Above: methods down, shifts across, the mean gain on a cell coloured by ``verdict`` (blue with ▲ helps, orange with ▼ hurts), a star
    at shifts whose tests rest on stand-ins (``status``). Below: average ranks (1 is best) by kind of clients, what a method costs (seconds
    per 1,000 images and MiB), where these were measured, and what it takes for granted (``fedlib.papers.comparison.needs``).
    cost, ranks, places: of ``cost.cost``, ``significance.differences`` and ``significance.places``, or empty; the last tells over which
    protocols the ranks are."""
    methods = [m for m in dict.fromkeys([*needs["method"], *frame["method"]]) if m in set(frame["method"])]
    cut = set(frame.loc[frame["n"] < frame.groupby("shift")["n"].transform("max"), "method"])
    shifts = list(dict.fromkeys(frame["shift"]))
    told = _ranks(ranks, methods) | _prices(cost, methods) | _taken(needs, methods)
    widths = {name: TOLD.get(name, 1.0) for name in told}
    width, height = CELL[0] * max(len(shifts), sum(widths.values())) + 1.7, 2 * CELL[1] * len(methods) + 3.4
    figure, (above, below) = plt.subplots(2, 1, figsize=(width, height), layout="constrained")
    for row in frame.itertuples():
        x, y = shifts.index(row.shift), methods.index(row.method)
        above.add_patch(Rectangle((x - 0.47, y - 0.45), 0.94, 0.9, facecolor=COLOURS[row.verdict], edgecolor="lightgrey", linewidth=0.5))
        text = f"{MARKS.get(row.verdict, '')}{unsigned(f'{row.gain:+.1f}')}" if row.verdict != FEW else "few"
        above.text(x, y, text, ha="center", va="center", fontsize=7, color="white" if row.verdict == HELPS else "black")
    held = set(frame.loc[frame["status"].str.contains("stand-in"), "shift"])
    slanted(above, [f"{shift} *" if shift in held else shift for shift in shifts], top=True)
    edges = np.cumsum([-0.5, *widths.values()])
    for (name, words), edge in zip(told.items(), edges[:-1], strict=True):
        place, side = (edge + 0.1, "left") if name in TOLD else (edge + 0.5, "center")
        for y, word in enumerate(words):
            below.text(place, y, word, ha=side, va="center", fontsize=7)
    slanted(below, list(told), edges[:-1] + 0.5, top=True)
    below.hlines(np.arange(1, len(methods)) - 0.5, edges[0], edges[-1], color="gainsboro", linewidth=0.5)
    for axis, right in ((above, max(len(shifts), 8) - 0.5), (below, edges[-1])):
        axis.set_yticks(range(len(methods)), [f"{m} †" if m in cut else m for m in methods], fontsize=8)
        axis.set(xlim=(-0.6, right), ylim=(len(methods) - 0.4, -0.6))
        axis.grid(visible=False)
        axis.spines[:].set_visible(False)
    met = [name for name in WORDS if name in set(frame["verdict"]) | {HELPS, HURTS}]
    handles = [Patch(facecolor=COLOURS[name], edgecolor="lightgrey", label=WORDS[name]) for name in met]
    handles += [Patch(alpha=0, label="* on stand-ins, in whole or in part")] if held else []
    handles += [Patch(alpha=0, label="† fewer images than others")] if cut else []
    above.legend(handles=handles, loc="upper left", bbox_to_anchor=(0, 0), ncols=len(handles), frameon=False, fontsize=7.5)
    head, _, facts = title.partition("\n")
    told = f"Numbers on squares: mean gain over no adaptation in points; no square: not run, or impossible there.{_ranked(ranks, places)}"
    told += " Of the times, each is the first run's here that has it." if len(cost) else ""
    return heading(figure, f"{head}\n{told}\n{facts}".rstrip())


def _ranks(ranks: pd.DataFrame, methods: list[str]) -> dict[str, list[str]]:
    """The texts of the columns ``RANKS``, named with the difference that is more than luck; none of a kind of clients on which nothing was
    ranked."""
    kinds = dict(iter(ranks.groupby("kind"))) if len(ranks) else {}
    there = {kind: f"{name} (critical {kinds[kind]['critical'].iloc[0]:.0f})" for kind, name in RANKS.items() if kind in kinds}
    return {name: _numbers(kinds[kind], "rank", methods) for kind, name in there.items()}


def _ranked(ranks: pd.DataFrame, places: pd.DataFrame) -> str:
    """Over which protocols the ranks of each kind of clients are, of those that are shown."""
    if ranks.empty or places.empty:
        return ""
    shown = places[(places["protocol"] != MEAN) & places["kind"].isin(ranks["kind"])]
    kinds = {kind: own["protocol"].unique() for kind, own in shown.groupby("kind")}
    told = "".join(f" {name.capitalize()}: over {', '.join(kinds[kind])}." for kind, name in RANKS.items() if kind in kinds)
    return f"{told} Ranks that differ by less than the critical difference may do so by chance."


def _prices(cost: pd.DataFrame, methods: list[str]) -> dict[str, list[str]]:
    """The texts of the columns ``PRICE``, on the first protocol on which a method was timed; none where nothing was measured."""
    cost = cost.drop_duplicates("method") if len(cost) else cost
    return {name: _numbers(cost, column, methods) for name, column in zip(PRICE, ("seconds", "memory"), strict=True)} if len(cost) else {}


def _numbers(frame: pd.DataFrame, column: str, methods: list[str]) -> list[str]:
    """Two digits of each method's number, nothing where it has none."""
    return ["" if pd.isna(value) else f"{float(f'{value:.2g}'):g}" for value in frame.set_index("method")[column].reindex(methods)]


def _taken(needs: pd.DataFrame, methods: list[str]) -> dict[str, list[str]]:
    """The texts of the columns ``TAKEN`` and ``TOLD``."""
    rows = []
    known = needs.set_index("method")
    for method in methods:
        if method not in known.index:  # one's own, in a run that is read back
            rows.append(["?"] * len((*TAKEN, *TOLD)))
            continue
        own = known.loc[method]
        training = f"yes, x {own['passes']:g}" if own["training"] and own["passes"] > 1 else "yes" if own["training"] else ""
        together = {"one": "", "batch": "a batch", "stream": "all"}.get(own["together"], "")
        source, head, norm, shares = ("yes" if own[name] else "" for name in ("validation", "head", "batch_norm", "shares"))
        rows.append([LABELS[own["labels"]], source, training, head, norm, together, shares, own["kept"], own["sent"]])
    return dict(zip((*TAKEN, *TOLD), map(list, zip(*rows, strict=True)), strict=True))
