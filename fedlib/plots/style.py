"""One look for all notebooks: size, type, and a fixed colour, line and marker for each method.

Colours are seaborn's colour-blind-safe ten. With more methods than colours, methods of one family share a colour and differ in line and
marker, so that a figure also reads in grey.
"""

import textwrap
import zlib
from typing import NamedTuple

import matplotlib as mpl
import seaborn as sns
from matplotlib.figure import Figure

PALETTE = sns.color_palette("colorblind").as_hex()
BLUE, ORANGE, GREEN, RED, PURPLE, BROWN, _, GREY, _, CYAN = PALETTE
# In place of its pink and its yellow, which are too pale for lines on white.
VIOLET, YELLOW = "#6a3d9a", "#b3a100"
# A legend to the right of its panel.
BESIDE = {"loc": "center left", "bbox_to_anchor": (1.02, 0.5), "frameon": False}


class Look(NamedTuple):
    colour: str
    line: str
    marker: str


_FAMILIES = {
    GREY: ("FedAvg", "NoAdapt", "Local", "GMA", "FedProx", "SCAFFOLD", "AFL", "q-FFL", "FedADG", "FedSR"),
    BROWN: ("FedAvg+FT", "APFL", "Ditto", "FedBN", "FedPer", "PFL-Sampled", "PFL-Ensemble", "ODPFL-HN"),
    CYAN: ("FedRep", "FedRoD", "kNN-Per", "TwoHead", "TSA"),
    ORANGE: ("MEMO-P", "MEMO-G", "MEMO", "TTT", "T3A"),
    YELLOW: ("Tent", "EATA", "BN-Adapt", "SHOT", "Surgical", "EM", "BBSE"),
    BLUE: ("FedTHE+", "FedTHE", "personal head"),
    RED: ("BTFL",),
    GREEN: ("ATP-online", "ATP-batch", "ATP-params", "ATP-stats"),
    VIOLET: ("FedTTA++", "FedTTA-Prox", "FedTTA"),
    PURPLE: ("FedICON", "FedICON-us"),
}
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 2)), (0, (2, 3)), (0, (4, 4)))
_MARKERS = "osD^vP*Xh<"
LOOKS = {method: Look(colour, LINES[i], _MARKERS[i]) for colour, family in _FAMILIES.items() for i, method in enumerate(family)}

# Shifts, in the order in which the papers print them.
SHIFTS = {
    **{"original": BLUE, "corrupted": ORANGE, "ooc": GREEN, "natural": RED, "mixture": PURPLE, "corrupted_ooc": BROWN},
    **{"original_ind": BLUE, "shifted_ind": ORANGE, "original_exd": GREEN, "shifted_exd": BROWN, "synthetical": PURPLE},
    **{"average": GREY, "avg": GREY},
}


# Colours of methods that no paper has, apart from all others.
OWN = ("#000000", "#e6007e", "#7a5200", "#00574a", "#8c0f0f", "#1b2a6b")
_TAKEN: dict[str, int] = {}


def look(method: str) -> Look:
    """Colour, line and marker of a method; a variant ``X:...`` looks like X. An unknown method has a look that its name chooses, or the
    next one where another unknown method of this process has that already."""
    return LOOKS.get(method) or LOOKS.get(method.split(":")[0]) or _own(method)


def _own(method: str) -> Look:
    looks = len(OWN) * len(LINES)
    if method not in _TAKEN:
        first = zlib.crc32(method.encode()) % looks
        free = [i % looks for i in range(first, first + looks) if i % looks not in _TAKEN.values()]
        # Colours first: while one is unused, no two share it.
        used = {i % len(OWN) for i in _TAKEN.values()}
        _TAKEN[method] = next((i for i in free if i % len(OWN) not in used), free[0] if free else first)
    i = _TAKEN[method]
    return Look(OWN[i % len(OWN)], LINES[i // len(OWN)], _MARKERS[i // len(OWN)])


def luminance(colour: object) -> float:
    """Relative luminance of a colour as matplotlib knows them, in [0, 1] (WCAG 2)."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in mpl.colors.to_rgb(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def unsigned(text: str) -> str:
    """A number as text, a zero without its sign."""
    return text if text.strip("+-0.") else text.lstrip("+-")


def use() -> None:
    """Apply the kit's style: paper context, white grid, sizes readable at column width."""
    sns.set_theme(context="paper", style="whitegrid", palette="colorblind")
    mpl.rcParams.update({"figure.dpi": 110, "savefig.bbox": "tight", "axes.titlesize": 10, "legend.fontsize": 8, "svg.fonttype": "none"})


def heading(figure: Figure, title: str) -> Figure:
    """``figure`` with the first line of ``title`` above it and the other lines in small type below, all wrapped to its width."""
    head, _, facts = title.partition("\n")
    # Characters per inch of the two sizes.
    figure.suptitle(textwrap.fill(head, int(13 * figure.get_figwidth())), fontsize=10)
    if facts:
        lines = [textwrap.fill(fact, int(19 * figure.get_figwidth()), break_on_hyphens=False) for fact in facts.splitlines()]
        figure.text(0.5, -0.02, "\n".join(lines), ha="center", va="top", fontsize=7, color="dimgrey")
    return figure
