"""Tables and claims laid out for readers: in notebooks and exported pages, and in LaTeX."""

import html
from collections.abc import Sequence

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

from fedlib.data import is_own
from fedlib.published import cells, claims_of, is_percent
from fedlib.published.compare import beyond_noise, rows_of
from fedlib.published.comparisons import SURE, Quantity, chance_of
from fedlib.published.pairs import pairs
from fedlib.published.units import Units, has_units
from fedlib.tools.names import counted

DAGGER = "†"
STATES = {"holds": "#d7efd9", "fails": "#f6d5d2", "undecided": "#f4ecc8"}
BETTER, WORSE, NEUTRAL = "#1a7f37", "#b3261e", "#666666"
_STYLE = [
    {"selector": "th, td", "props": "text-align: left; vertical-align: top; white-space: nowrap; padding: 2px 8px"},
    {"selector": "th", "props": "background: #ffffff"},
    {"selector": "caption", "props": "caption-side: bottom; text-align: left; color: #666666; font-size: 85%; padding-top: 4px"},
]


class Note(str):
    """A sentence that a notebook shows as text, not as a Python string."""

    def _repr_html_(self) -> str:
        return "<p>" + html.escape(self).replace("\n", "<br>") + "</p>"


def readable(frame: pd.DataFrame) -> Styler:
    """All of a frame for the eye: two decimals, three where nothing reaches 1, a dash for nothing, "yes" for true, no row or word cut."""
    shown = {name: "{:.2f}" if frame[name].abs().max() >= 1 else "{:.3f}" for name in frame.select_dtypes("float")}
    shown |= {name: lambda true: "yes" if true else "–" for name in frame.select_dtypes("bool")}
    style = frame.style.set_table_styles(_STYLE).format(shown, na_rep="–", escape="html")
    return style.hide(axis="index") if isinstance(frame.index, pd.RangeIndex) else style


class Page:
    """What a notebook shows for a table or the claims; ``parts`` hold the pieces, in order. A frame is shown as ``readable`` lays it out,
    and a page within a page as its parts."""

    def __init__(self, *parts: "Styler | pd.DataFrame | Note | Page"):
        self.parts = tuple(piece for part in parts for piece in (part.parts if isinstance(part, Page) else (part,)))

    def _repr_html_(self) -> str:
        inner = "\n".join((readable(part) if isinstance(part, pd.DataFrame) else part)._repr_html_() for part in self.parts)
        return f'<div style="overflow-x: auto; max-width: 100%">{inner}</div>'


class Folded:
    """A table that unfolds at a click."""

    def __init__(self, title: str, table: Styler):
        self.title, self.table = title, table

    def _repr_html_(self) -> str:
        return f"<details><summary>{html.escape(self.title)}</summary>{self.table._repr_html_()}</details>"


def is_partial(frame: pd.DataFrame) -> pd.Series:
    """Which cells saw only the first images of their streams."""
    units = frame["units"] if "units" in frame else pd.Series(None, frame.index, dtype=object)
    return units.map(lambda u: isinstance(u, Units) and u.partial).astype(bool)


def marked(frame: pd.DataFrame) -> pd.Series:
    """The partial cells where others are whole: those that a dagger tells apart."""
    partial = is_partial(frame)
    return partial & (not partial[frame["mean"].notna()].all())


def on_cut(frame: pd.DataFrame) -> pd.DataFrame | None:
    """The table on the images that all its methods saw: the first ones of every stream. None where nothing was cut, or everything was."""
    partial, ran = is_partial(frame), frame["mean"].notna()
    if not partial.any() or partial[ran].all():
        return None
    there = has_units(frame)
    units = frame["units"].where(there).map(lambda u: u.on_cut(), na_action="ignore")
    frame = frame.assign(units=units)
    for name, value in {"mean": lambda u: u.mean, "std": lambda u: u.std, "n": lambda u: u.images}.items():
        frame[name] = units.map(value, na_action="ignore").astype(frame[name].dtype)
    frame["n_seeds"] = frame["n_seeds"].where(there)
    frame.loc[ran & ~there, "status"] = "not run: no number on the first images of the streams alone"
    return frame


def same_images(frame: pd.DataFrame) -> pd.DataFrame:
    """``frame`` with all methods on the images that all saw, for a picture that sets them side by side."""
    cut = on_cut(frame) if "units" in frame else None
    return frame if cut is None else cut


def leaders(frame: pd.DataFrame) -> pd.Series:
    """Which cells lead their block and column: ahead of every other method's, as a two-sided t-test of the paired differences says."""
    found = pd.Series(False, frame.index)
    for _, group in _comparable(frame).groupby(["dataset", "model", "setting", "column"], sort=False):
        cells = [Quantity(u.mean, units=u) for u in group["units"]]
        mixed = len({cell.units.partial for cell in cells}) > 1
        means = [(cell.on_cut() if mixed else cell).mean for cell in cells]
        top = int(np.argmax(means))
        rest = [cell for i, cell in enumerate(cells) if i != top]
        ahead = [cells[top] - cell for cell in rest]
        found[group.index[top]] = bool(rest) and all(2 * chance_of(-d.mean, d) <= SURE for d in ahead)
    return found


def _comparable(frame: pd.DataFrame) -> pd.DataFrame:
    """The cells that are percentages and whose clients are known."""
    return frame[has_units(frame) & frame["mean"].notna() & is_percent(frame)]


def own_names(frame: pd.DataFrame) -> pd.DataFrame:
    """On a user's images the rows of which any cell ran, under the names of what ran, of several blocks with the same numbers the first;
    else the frame."""
    if not alone(frame):
        return frame
    blocks = {}
    for (dataset, model), block in frame.groupby(["dataset", "model"], sort=False):
        ran = block.loc[block["mean"].notna(), ["run_dataset", "run_model"]]
        name = tuple("/".join(ran[column].unique()) for column in ran)
        numbers = block.set_index(["setting", "method", "column"])["mean"]
        twins = [other for (*known, _, _), (other, _) in blocks.items() if tuple(known) == name]
        if ran.empty or any(numbers.equals(other) for other in twins):
            continue
        shown = f"{name[0]} (as {dataset})" if twins else name[0]
        # What was left out by parameters is a gap of the print's, not of theirs.
        ran = block["mean"].notna().groupby([block["setting"], block["method"]], sort=False).transform("any")
        blocks[(*name, dataset, model)] = numbers, block[ran].assign(dataset=shown, model=name[1])
    return pd.concat([block for _, block in blocks.values()])


def wide(frame: pd.DataFrame, text: pd.Series) -> pd.DataFrame:
    """One text per cell: (blocks and) methods down in the order of the print, tests across."""
    rows = rows_of(frame)
    table = frame.assign(text=text).pivot(index=list(rows.names), columns="column", values="text").fillna("")
    return table.reindex(index=rows, columns=frame["column"].unique())


def summary(frame: pd.DataFrame) -> Page:
    """A contract frame for a notebook: one cell per method and test, ours above, and below it the print with our gap to it, green or red
    where seeds do not explain it. Where streams of costly methods are cut, the same on the images of all follows."""
    cut = on_cut(frame)
    if cut is None:
        return Page(_styled(frame))
    return Page(_styled(frame), Note("The same methods on the same images, the first of every stream:"), _styled(cut))


def apart(frame: pd.DataFrame) -> Page:
    """How far all methods of a contract frame are from the paper's own (``fedlib.published.pairs``), folded; nothing where no clients are
    known, or no other method."""
    frame, ours = _comparable(own_names(frame)), claims_of(frame["paper"].iloc[0].lower()).OURS
    own = [method for method in frame["method"].unique() if method.startswith(ours)]
    if not own:
        return Page()
    against = ours[0] if ours[0] in own else own[0]
    rows = pairs(frame, against)
    if rows.empty:
        return Page()
    text = []
    for row in rows.itertuples():
        words = f"{row.difference:+.2f}" + ("" if pd.isna(row.margin) else f" ± {row.margin:.2f}") + DAGGER * row.cut
        text.append(f"<b>{words}</b>" if row.p_holm <= SURE else words)
    cut = f"; {DAGGER} on the first images of each stream" if rows["cut"].any() else ""
    legend = (
        f"Points ± one standard error over clients and, with several seeds, over these; bold: p of at most {SURE:g} in a two-sided t-test, "
        f"corrected by Holm for the methods of the column{cut}; {_seeds(rows['seeds'])}."
    )
    table = wide(rows, pd.Series(text, rows.index)).rename_axis(columns=None).style.set_table_styles(_STYLE).set_caption(legend)
    return Page(Folded(f"Ahead of {against} on the same clients and images, in points", table))


def _seeds(values: pd.Series) -> str:
    return counted("/".join(map(str, sorted(values.unique()))), "seed")


def _span(counts: pd.Series) -> str:
    least, most = counts.min(), counts.max()
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def alone(frame: pd.DataFrame) -> bool:
    """Whether all that was run are a user's images, beside which no print stands."""
    ran = frame.loc[frame["mean"].notna(), "run_dataset"]
    return len(ran) > 0 and all(map(is_own, ran))


def _styled(frame: pd.DataFrame) -> Styler:
    frame = own_names(frame)
    partial, by_itself = marked(frame), alone(frame)
    beyond, gap = beyond_noise(frame), frame["mean"] - frame["published_mean"]
    lead = leaders(frame)
    texts = []
    for i, row in enumerate(frame.itertuples()):
        ours = "–" if pd.isna(row.mean) else f"{row.mean:.2f}"
        ours += f" ± {row.std:.2f}" if not pd.isna(row.mean) and not pd.isna(row.std) else ""
        ours = f"<b>{ours}</b>" if lead.iloc[i] else ours
        print_ = "–" if pd.isna(row.published_mean) else f"{row.published_mean:.2f}"
        colour = NEUTRAL if beyond.iloc[i] != "yes" else BETTER if gap.iloc[i] > 0 else WORSE
        print_ += "" if pd.isna(gap.iloc[i]) else f", {gap.iloc[i]:+.2f}"
        below = "" if by_itself else f'<br><small style="color: {colour}">{print_}</small>'
        texts.append(f"{ours}{DAGGER * bool(partial.iloc[i])}{below}")
    table = wide(frame, pd.Series(texts, frame.index)).rename_axis(columns=None)
    styler = table.style.set_table_styles(_STYLE).set_caption(legend(frame, partial))
    if table.index.nlevels == 1:
        return styler.set_sticky(axis="index")
    # Of several levels the method stays in sight; its column then has a fixed width, which the longest name must fit.
    width = 9 * int(frame["method"].str.len().max()) + 16
    return styler.set_sticky(axis="index", levels=[table.index.nlevels - 1], pixel_size=width)


def legend(
    frame: pd.DataFrame, partial: Sequence[bool] | pd.Series, printed: str = "with the printed value and our gap to it below"
) -> str:
    """What a cell shows, in one sentence for all; printed: beside ours, in words."""
    ran, by_itself = frame[frame["mean"].notna()], alone(frame)
    said = ["Ours (± standard deviation over seeds)" + ("" if by_itself else f", {printed}")]
    if len(ran):
        sources = ran[["run_dataset", "status"]].drop_duplicates().itertuples(index=False)
        data = ", ".join(name if by_itself else f"{name} ({status})" for name, status in sources)
        said.append(f"{data}; {_seeds(ran['n_seeds'].astype(int))}")
        counts = ran["n"].dropna().astype(int)
        if len(counts):
            said.append(f"{_span(counts)} test images per cell")
        if "units" in frame:
            said.append(f"bold: ahead of all others on the same images (p of at most {SURE:g} in two-sided paired t-tests)")
    theirs = set(cells(frame["paper"].iloc[0].lower(), frame["table"].iloc[0])["method"])
    further = [name for name in frame["method"].unique() if name not in theirs]
    if further and not by_itself:
        said.append(f"not printed in the paper: {', '.join(further)}")
    if np.any(partial):
        images = _span(frame.loc[partial, "n"].dropna().astype(int))
        said.append(f"{DAGGER} on the first images of each stream only, {images} in all")
    elif len(ran) and is_partial(ran).all():
        said.append("on the first images of each stream")
    return "; ".join(said) + "."


def claims_page(ledger: pd.DataFrame) -> Page:
    """Claims with their verdicts; the evidence unfolds at a click."""
    table = ledger.set_index("claim")
    lines = table["evidence"].str.replace(" | ours: ", "\nours: ").str.replace("; ", ";\n")
    evidence = lines.map(lambda text: html.escape(text).replace("\n", "<br>"))
    folded = "<details><summary>numbers</summary><div>" + evidence + "</div></details>"
    shown = table[["text", "published", "ours", "verdict"]].map(html.escape).assign(evidence=folded)
    wrap = [{"selector": "td", "props": "white-space: normal; max-width: 32em"}]
    styler = shown.style.set_table_styles(_STYLE + wrap).map(
        lambda state: f"background: {STATES.get(state, '#ffffff')}", ["published", "ours"]
    )
    counts = ", ".join(f"{n} {state}" for state, n in table["ours"].value_counts().items())
    return Page(Note(f"Our verdicts on {len(table)} claims: {counts}."), styler)


_LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "\\": "\\textbackslash{}",
    DAGGER: "$^\\dagger$",
}
_MARK = _LATEX[DAGGER]


def escaped(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in text)


def latex(frame: pd.DataFrame) -> str:
    """A contract frame as a booktabs table with caption: blocks and methods down, tests across, in each cell ours with its deviation over
    seeds (--- if not run), the published mean in brackets (--- if none is printed), and the number of test images behind ours. Bold:
    ahead of all other methods, as for ``leaders``; a dagger marks cells of cut streams."""
    frame = own_names(frame)
    partial, lead, by_itself, texts = marked(frame), leaders(frame), alone(frame), []
    for i, row in enumerate(frame.itertuples()):
        ours = "---" if pd.isna(row.mean) else f"{row.mean:.2f}"
        ours += f" $\\pm$ {row.std:.2f}" if not pd.isna(row.mean) and not pd.isna(row.std) else ""
        ours = f"\\textbf{{{ours}}}" if lead.iloc[i] else ours
        print_ = "---" if pd.isna(row.published_mean) else f"{row.published_mean:.2f}"
        images = "" if pd.isna(row.n) or pd.isna(row.mean) else f" (n={row.n:d})"
        texts.append(f"{ours}{_MARK * bool(partial.iloc[i])}" + ("" if by_itself else f" [{print_}]") + images)
    rows = rows_of(frame)
    table = wide(frame, pd.Series(texts, frame.index)).reset_index()
    table[list(rows.names)] = table[list(rows.names)].map(escaped)
    table.columns = [escaped(str(name)) for name in table.columns]
    body = table.to_latex(index=False, escape=False, column_format="l" * rows.nlevels + "r" * (table.shape[1] - rows.nlevels))
    paper, name = frame[["paper", "table"]].iloc[0]
    caption = escaped(f"{paper} {name}. {legend(frame, partial, 'printed values in brackets')}").replace("±", "$\\pm$")
    return f"\\begin{{table}}\n\\centering\n\\caption{{{caption}}}\n{body}\\end{{table}}\n"
