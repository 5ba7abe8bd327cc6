"""The results of runs read back from their folders."""

import argparse
import dataclasses
import importlib
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from fedlib.data import known
from fedlib.paper import Paper, paper_in
from fedlib.plots import style
from fedlib.published import KEY, claims_of, know
from fedlib.published.by_client import RAN, with_units
from fedlib.published.ledger import CUTS
from fedlib.published.units import has_units, joined
from fedlib.results import save_png
from fedlib.tools.files import atomic
from fedlib.tools.parameters import PROJECT

# Parameters in which runs may differ that are read together: what was run.
RUN = ("methods", "tables", "alphas", "seeds", "extra", "start")


def reader(name: str, about: str, example: str, *, out: Path | None = None) -> argparse.ArgumentParser:
    """The parser of a command that reads the folders of runs, and writes what it makes of them to ``out``, or its rows where asked to."""
    texts = {"prog": f"fedlib {name}", "description": about, "epilog": f"example: fedlib {name} {example}"}
    parser = argparse.ArgumentParser(**texts, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="folder", help="results of a run; of several, the first counts")
    parser.add_argument("--out", type=Path, default=out, metavar="FILE", help=f"default: {out}" if out else "write the rows as CSV as well")
    return parser


def of_papers(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """``parser`` with ``--paper``, which makes a paper outside the package known."""
    parser.add_argument("--paper", type=_known, metavar="FOLDER", help="of runs of a paper in a folder of its own: that folder")
    return parser


def _known(folder: str) -> Paper:
    try:
        paper = paper_in(folder)
        know(paper.name, paper.package)
        return paper
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def read_and_write(read: Callable[[], pd.DataFrame], out: Path | None) -> pd.DataFrame:
    """What ``read`` finds, written to ``out`` where that is given; what it cannot read ends the command."""
    try:
        found = read()
        if out:
            with atomic(out) as path:
                found.to_csv(path, index=False, lineterminator="\n")
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    return found


def make(out: Path, write: Callable[[Path], object]) -> None:
    """The file of a command, which ``write`` writes to the path that it is given; what it cannot read or write ends the command."""
    try:
        with atomic(out) as path:
            write(path)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(out)


def make_picture(out: Path, draw: Callable[[], Figure]) -> None:
    """The same with a figure in the kit's style, in the form that the name of ``out`` tells: PNG without one."""
    style.use()
    form = out.suffix[1:] or "png"
    make(out, lambda path: save_png(draw(), path) if form == "png" else draw().savefig(path, format=form))


def result_tables(folder: str | Path) -> dict[str, pd.DataFrame]:
    """The tables of a folder by name, and those on the first images of the streams. Raises FileNotFoundError where there are none."""
    frames = {path.stem: pd.read_csv(path) for path in sorted(existing(folder).glob("[!.]*.csv"))}
    frames = {name: frame for name, frame in frames.items() if {*KEY, "table", "mean", "status"} <= {*frame.columns}}
    if not frames:
        raise FileNotFoundError(
            f"{folder} holds no result table with printed cells: give the folder of one paper's run, such as figures/smoke/fedthe "
            "(the comparison's numbers are in its tests.csv; fedlib pairs needs its accuracies.csv, too)"
        )
    return frames


def tables(folders: Sequence[str | Path]) -> dict[str, pd.DataFrame]:
    """The result tables of one or several runs of a paper, with the paired ``units`` of the cells whose clients are told. A cell that
    several runs have, with other seeds, has those of all (``n`` then counts the images that they share each time); of a seed that several
    have, the first's, as of cells without clients; of one that none has, the first's reason.

    Raises FileNotFoundError for a folder without tables; ValueError for runs of several papers, and for runs whose clients, images or
    training differ, so that a client's number is not the same client in both.
    """
    found: dict[str, list[pd.DataFrame]] = {}
    for folder in folders:
        for name, frame in result_tables(folder).items():
            if name.endswith("_cut"):
                continue
            clients = here(folder) / f"{name}_clients.csv"
            read = with_units(frame, pd.read_csv(clients)) if clients.exists() else frame.assign(units=None)
            found.setdefault(name, []).append(read)
    papers = sorted({paper for frames in found.values() for frame in frames for paper in frame["paper"].unique()})
    if len(papers) > 1:
        raise ValueError(f"the folders are of several papers: {', '.join(papers)}")
    if len(folders) > 1:
        check_alike(folders)
    cells = {name: _with_all_seeds(pd.concat(frames, ignore_index=True)) for name, frames in found.items()}
    return {name: first_run(frame, KEY, frame["mean"].isna()) for name, frame in cells.items()}


def _with_all_seeds(frame: pd.DataFrame) -> pd.DataFrame:
    """``frame``, in which the first row of each cell that was run has the seeds of those after it that are of the same kind."""
    for _, rows in frame[has_units(frame)].groupby(list(KEY), sort=False):
        first, *others = rows.to_dict("records")
        units, n = first["units"], first["n"]
        for row in others:
            if _same_kind(row, first) and (more := joined(units, row["units"])) is not units:
                new = (len(more.keys) - len(units.keys)) / len(row["units"].keys)  # not of seeds that are there already
                units, n = more, n + round(new * row["n"])
        if units is not first["units"]:
            numbers = {"mean": units.mean, "std": units.std, "n_seeds": len(units.seeds), "n": n}
            frame.loc[rows.index[0], list(numbers)] = list(numbers.values())
            frame.at[rows.index[0], "units"] = units
    return frame


def _same_kind(row: dict, other: dict) -> bool:
    """Whether two cells are of the same images and network, and both or neither on whole streams, or with the first images apart."""
    a, b = row["units"], other["units"]
    return all(row[name] == other[name] for name in RAN) and a.partial == b.partial and (a.cut is None) == (b.cut is None)


def here(folder: str | Path) -> Path:
    """The folder from here, or else from the project: notebooks run in a folder of their own."""
    return next((place for place in (Path(folder), PROJECT / folder) if place.is_dir()), Path(folder))


def existing(folder: str | Path) -> Path:
    """The same. Raises FileNotFoundError where there is none."""
    if not here(folder).is_dir():
        raise FileNotFoundError(f"no folder {folder}, neither here nor in the project")
    return here(folder)


def check_alike(folders: Sequence[str | Path], apart: Sequence[str] = ()) -> None:
    """Raise ValueError where runs differ in more than what was run and how precisely, and the parameters ``apart``."""
    runs = [(folder, parameters(folder)) for folder in folders]
    for (first, ours), (folder, theirs) in itertools.combinations(runs, 2):
        own, others = (run.get("extra") or {} for run in (ours, theirs))
        if changed_since := [name for name in own if name in others and own[name] != others[name]]:
            raise ValueError(f"{first} and {folder} do not go together: their method {changed_since[0]!r} is not the same")
        for name in sorted({*ours} & {*theirs} - {*RUN, *apart}):
            # A stream that is cut at two lengths has no first images that both know; one that is not cut has them all.
            if ours[name] != theirs[name] and not (name in CUTS and not (ours[name] and theirs[name])):
                raise ValueError(f"{first} and {folder} do not go together: their parameter {name} is {ours[name]!r} and {theirs[name]!r}")


def first_run(frame: pd.DataFrame, key: Sequence[str], absent: pd.Series) -> pd.DataFrame:
    """Of the rows of each key the first that is not absent, else the first; the keys as they first appear."""
    frame = frame.assign(_key=frame.groupby(list(key), sort=False).ngroup(), _absent=absent)
    frame = frame.sort_values(["_key", "_absent"], kind="stable").drop_duplicates("_key")
    return frame.drop(columns=["_key", "_absent"]).reset_index(drop=True)


def record(folder: str | Path) -> dict:
    """The folder's ``run.json``. Raises FileNotFoundError where the run did not finish."""
    path = here(folder) / "run.json"
    if not path.exists():
        raise FileNotFoundError(f"{folder} has no run.json: its run did not finish, or a file was written anew. Run its notebook again")
    return json.loads(path.read_text(encoding="utf-8"))


def seeds_of(folders: Sequence[str | Path], frames: Iterable[pd.DataFrame]) -> list[int]:
    """The seeds of all runs together, if every cell of their tables has that many; else those of the run with the fewest."""
    runs = [record(folder)["seeds"] for folder in folders]
    seeds = sorted({seed for run in runs for seed in run})
    return seeds if all(frame["n_seeds"].dropna().eq(len(seeds)).all() for frame in frames) else min(runs, key=len)


def parameters(folder: str | Path) -> dict:
    """The parameters of the run in ``folder``; some older runs have them on the top level of their record."""
    run = record(folder)
    return run.get("parameters", run)


def changed(folder: str | Path, paper: Paper, seeds: Sequence[int]) -> list[str]:
    """The numbers of the paper's own profile that the run in ``folder`` did not keep, ``seeds`` among them (``Common.changed``)."""
    run, names = record(folder), {field.name for field in dataclasses.fields(paper.parameters)}
    ran = parameters(folder)
    numbers = {name: value for name, value in ran.items() if name in names and _is_number(value)}
    # Some data sets are a part of the printed one.
    images = {"dataset": ran["dataset"]} if known(ran.get("dataset") or "") else {}
    return paper.parameters(**numbers | images | {"profile": run["profile"], "seeds": list(seeds)}).changed(paper.profiles)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) or (isinstance(value, list) and all(isinstance(v, int | float) for v in value))


def paper_of(found: dict[str, pd.DataFrame]) -> Paper:
    """The paper whose tables these are."""
    name = next(iter(found.values()))["paper"].iloc[0].lower()
    return importlib.import_module(claims_of(name).__package__).PAPER
