"""The result files of one run: tables, figures, claims, and the facts about the run.

Every file is written under a temporary name and renamed. Equal input gives equal bytes (tables and figures carry no date; an SVG's
identifiers come from its name). Only ``run.json`` holds the time. It is written last, lists the files of its run with their digests, and
is removed when a file of its folder is written again: a folder without it is incomplete, a file that it does not list is of another run.
"""

import io
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from PIL import Image, PngImagePlugin

from fedlib.published import IN_MEMORY, TABLE_COLUMNS, is_percent
from fedlib.published.by_client import by_client
from fedlib.published.reading import Note, is_partial, latex, on_cut
from fedlib.results.record import result, strangers, write_run
from fedlib.tools.files import atomic

__all__ = ["check_table", "draw_figure", "gather_claims", "latex", "save_png", "write_claims", "write_figure", "write_run", "write_table"]

DPI = 150  # of the written pictures
CLAIM_COLUMNS = ("claim", "text", "published", "ours", "verdict", "evidence")


def check_table(frame: pd.DataFrame) -> None:
    """Raise ValueError unless ``frame`` keeps the contract: columns ``TABLE_COLUMNS`` in order; status "ok" or "stand-in" with a mean
    (percentages in 0..100, with the number ``n`` of test images behind them), a run data set and at least one seed, or "not run: <reason of
    10 characters or more>" without a mean."""
    if tuple(name for name in frame.columns if name not in IN_MEMORY) != TABLE_COLUMNS:
        raise ValueError(f"a result table has the columns {', '.join(TABLE_COLUMNS)}; got {', '.join(map(str, frame.columns))}")
    run = frame["status"].isin(["ok", "stand-in"])
    mean, seeds = frame["mean"].astype(float), frame["n_seeds"].astype(float)
    faults = {
        "status is neither ok, stand-in nor 'not run: <at least 10 characters>'": ~run
        & ~frame["status"].astype(str).str.fullmatch(r"not run: ?\S.{9,}"),
        "the mean is not a finite number": run & ~np.isfinite(mean),
        "a cell that was not run has a mean": ~run & mean.notna(),
        # A weighted mean of clients who have all of them right may come to 100 and a rounding error.
        "the percentage lies outside 0..100": run & is_percent(frame) & ~mean.between(-1e-9, 100 + 1e-9),
        "the standard deviation is negative or infinite": run & ~frame["std"].astype(float).fillna(0).between(0, np.finfo(float).max),
        "run_dataset is empty": run & frame["run_dataset"].fillna("").eq(""),
        "n_seeds is below 1": run & ~(seeds >= 1),
        "n, the number of test images, is absent or below 1": run & is_percent(frame) & ~(frame["n"].astype(float) >= 1),
    }
    for fault, where in faults.items():
        if where.any():
            row = frame[where].iloc[0]
            cell = " | ".join(str(row[name]) for name in TABLE_COLUMNS[:7])
            raise ValueError(f"{fault} in {int(where.sum())} of {len(frame)} rows, first {cell}: mean {row['mean']}, {row['status']!r}")


def write_table(frame: pd.DataFrame, folder: str | Path, name: str) -> None:
    """``<name>.csv`` (all columns, 4 decimals) and ``<name>.tex`` (see ``fedlib.published.reading.latex``). Raises as check_table.

    ``<name>_clients.csv`` has the accuracy of every client behind the cells (``fedlib.published.by_client``). Where the streams of some
    methods were cut, ``<name>_cut.csv`` and ``<name>_cut.tex`` have all methods on the images that all saw.
    """
    check_table(frame)
    if len(clients := by_client(frame)):
        _write_csv(clients, Path(folder) / f"{name}_clients.csv", result)
    else:
        (Path(folder) / f"{name}_clients.csv").unlink(missing_ok=True)
    tables = {name: frame, f"{name}_cut": on_cut(frame)}
    for file, table in tables.items():
        if table is None:
            # A file of an earlier run that was cut.
            for kind in ("csv", "tex"):
                (Path(folder) / f"{file}.{kind}").unlink(missing_ok=True)
            continue
        check_table(table)
        _write_csv(table, Path(folder) / f"{file}.csv", result)
        with result(Path(folder) / f"{file}.tex") as path:
            path.write_text(latex(table), encoding="utf-8")


def write_figure(figure: Figure, data: pd.DataFrame, folder: str | Path, name: str, caption: str) -> None:
    """``<name>.png`` (150 dpi), ``<name>.svg`` and ``<name>.csv`` (the plotted numbers). The caption is stored in both
    images, which are cut to what they show. What it does not say is added to it and to the picture: the data sets of the numbers, and
    whether they are from the first images of the streams. A notebook shows the written picture, and the figure is closed there.

    Raises ValueError if ``data`` has no row or an infinite value, or the caption is empty.
    """
    if data.empty or not caption.strip():
        raise ValueError(f"figure {name} needs a caption and the plotted numbers; got {len(data)} rows and caption {caption!r}")
    if np.isinf(data.select_dtypes("number").to_numpy(dtype=float, na_value=np.nan)).any():
        raise ValueError(f"figure {name}: the plotted numbers contain infinite values")
    folder = Path(folder)
    ran = data["run_dataset"].dropna().unique() if "run_dataset" in data else ()
    said = [name for name in ran if name.lower() not in caption.lower()]
    if (partial := is_partial(data)).any() and not re.search("images? of (a|each) stream", caption):
        said.append(f"{'all' if partial.all() else 'methods with per-sample gradients'} on the first images of every stream")
    if said:
        caption += f"\nshown: {', '.join(said)}"
        figure.draw_without_rendering()
        below = figure.get_tightbbox().y0 / figure.get_figheight() - 0.01
        figure.text(0.5, below, f"shown: {', '.join(said)}", ha="center", va="top", fontsize=7, color="dimgrey")
    # Layout and frame are settled once, not for every file.
    figure.draw_without_rendering()
    # None, not "none", with which every file would draw the figure twice.
    with mpl.rc_context({"figure.autolayout": False, "figure.constrained_layout.use": False}):
        figure.set_layout_engine(None)
    frame = figure.get_tightbbox().padded(mpl.rcParams["savefig.pad_inches"])
    with result(folder / f"{name}.png") as path:
        save_png(figure, path, caption, frame)
    with result(folder / f"{name}.svg") as path, mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(path, bbox_inches=frame, metadata={"Date": None, "Creator": None, "Description": caption})
    _write_csv(data, folder / f"{name}.csv", result)
    if "inline" in mpl.get_backend():
        _show(figure, folder / f"{name}.png")


def save_png(figure: Figure, path: Path, description: str = "", frame: Bbox | str = "tight") -> None:
    """A PNG of 150 dpi, cut to ``frame`` in inches or to what it shows, with 256 colours, which take a third of the space."""
    with io.BytesIO() as drawn:
        figure.savefig(drawn, dpi=DPI, bbox_inches=frame)
        about = PngImagePlugin.PngInfo()
        about.add_itxt("Description", description)
        # The median cut alone merges colours that are alike, such as pale ends of a scale or translucent bands; k-means moves them back.
        image = Image.open(drawn).convert("RGB").quantize(256, method=Image.Quantize.MEDIANCUT, kmeans=1)
        image.save(path, "PNG", optimize=True, dpi=(DPI, DPI), pnginfo=about)


def _show(figure: Figure, picture: Path) -> None:
    """Show the written picture in a notebook, at the size of the figure, whose kernel would lay it out and draw it twice more."""
    # Whoever writes a figure from here works in IPython.
    from IPython.display import Image as Shown
    from IPython.display import display

    with Image.open(picture) as image:
        width = round(image.width * figure.dpi / DPI)
    display(Shown(data=picture.read_bytes(), format="png", width=width))
    plt.close(figure)


def write_numbers(frame: pd.DataFrame, folder: str | Path, name: str) -> None:
    """``<name>.csv``: numbers beside the printed tables, in any columns."""
    _write_csv(frame, Path(folder) / f"{name}.csv", result)


def draw_figure(
    draw: Callable[..., Figure], data: pd.DataFrame, folder: str | Path, name: str, caption: str, *, compares: str = "", **options
) -> Note:
    """Draw and write a figure. Returns the caption, or what is lacking: one that ``compares`` the values of a column has nothing to show
    with fewer than two of them, so nothing is drawn and files of an earlier run are removed. options: of ``draw``."""
    values = list(dict.fromkeys(data[compares])) if compares in data else []
    if not compares or len(values) > 1:
        write_figure(draw(data, title=caption, **options), data, folder, name, caption)
        return Note(caption)
    for kind in ("png", "svg", "csv"):
        (Path(folder) / f"{name}.{kind}").unlink(missing_ok=True)
    what = f"only {compares} {values[0]} was run" if values else "nothing of it was run"
    return Note(f"{caption.splitlines()[0]}: not drawn, since it compares several values of {compares} and {what}.")


def write_claims(frame: pd.DataFrame, folder: str | Path) -> None:
    """``claims.csv``. Raises ValueError unless ``frame`` has the columns ``CLAIM_COLUMNS``, all filled and each claim once."""
    if tuple(frame.columns) != CLAIM_COLUMNS:
        raise ValueError(f"a claims table has the columns {', '.join(CLAIM_COLUMNS)}; got {', '.join(map(str, frame.columns))}")
    if frame["claim"].duplicated().any() or frame.isna().any(axis=None) or frame.eq("").any(axis=None):
        raise ValueError("a claims table has one row for each claim and no empty field")
    _write_csv(frame, Path(folder) / "claims.csv", result)


def gather_claims(folder: str | Path) -> pd.DataFrame:
    """``claims.csv`` of a profile's ``folder``: the claims of all papers whose run in it is complete, with the paper before them.

    Warns of claims that are left out, since they are not of the run that their folder's ``run.json`` describes.
    """
    found = sorted(Path(folder).glob("*/claims.csv"))
    foreign = {path for path in found if path.name in strangers(path.parent)}
    if foreign:
        papers = ", ".join(sorted(path.parent.name for path in foreign))
        warnings.warn(f"claims of {papers} are left out: their run is not complete, or they belong to another one", stacklevel=2)
    parts = {path.parent.name: pd.read_csv(path) for path in found if path not in foreign}
    frame = pd.concat(parts, names=["paper", None]).reset_index(level="paper") if parts else pd.DataFrame(columns=["paper", *CLAIM_COLUMNS])
    _write_csv(frame, Path(folder) / "claims.csv")
    return frame


def _write_csv(frame: pd.DataFrame, path: Path, writing=atomic) -> None:
    """Numbers with four decimals, and with seven in columns of numbers that are all below 1, such as rates."""
    frame = frame.drop(columns=list(IN_MEMORY), errors="ignore")
    digits = {name: 7 if frame[name].abs().max() < 1 else 4 for name in frame.select_dtypes("float").columns}
    with writing(path) as temporary:
        frame.round(digits).to_csv(temporary, index=False, lineterminator="\n", encoding="utf-8")
