"""Execute the notebooks in one profile: ``python -m fedlib.reproduce --profile smoke [--paper fedthe] [-p name value ...]``.

A paper is one of ``notebooks/``, or a folder with a notebook and its ``PAPER``: ``--paper path/to/folder``. Each notebook runs in a kernel
of its own; its executed copy goes as an HTML page beside its results, and the claims of all papers to ``claims.csv`` of their profile. A
run of all begins with the quickstart. Several notebooks run at once, each with its share of the processes. Stages that the cache holds are
read from it, so a second run is short. Parameters given with -p are YAML values; their names and values, and the data files that they name,
are checked for all notebooks before the first one starts. A run of profile smoke or small without parameters of its own drops from the
cache what takes space and is not read again (``fedlib.cache.trim``).
"""

import argparse
import faulthandler
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedlib.cache.trim import LIMITS, trim
from fedlib.common import SETS
from fedlib.data import known
from fedlib.paper import Paper, paper_in, paper_of
from fedlib.ready import check_run
from fedlib.results import gather_claims
from fedlib.results.pages import write_index, write_indices
from fedlib.results.record import check_free
from fedlib.tools.batch import Run, execute_all
from fedlib.tools.names import check_name
from fedlib.tools.parameters import NOTEBOOKS, PROFILES, PROJECT, declared, from_here, output_folder
from fedlib.tools.values import read_value

# The package's, in an order in which two processes end together; the comparison reads what others cached.
ORDER = ("fedthe", "upfl", "btfl", "fedicon", "atp", "comparison")
CONTINUES = "what was computed is cached, and the same command continues"
QUICKSTART = "quickstart"  # takes no profile, and shows a first table within a minute
SECONDS_TO_END = 10


def names() -> list[str]:
    """Papers that have a notebook, in the order in which they start: new ones first."""
    stems = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb") if path.stem != QUICKSTART)
    return sorted(stems, key=lambda name: ORDER.index(name) if name in ORDER else -1)


def located(name: str) -> tuple[Path, Paper | None]:
    """The notebook of a paper, by its name or folder, and the paper unless there is a notebook alone. Raises ValueError without one."""
    if name in (*names(), QUICKSTART) or not ("/" in name or Path(name).is_dir()):
        return NOTEBOOKS / f"{check_name(name, (*names(), QUICKSTART), 'paper')}.ipynb", paper_of(name) if name in ORDER else None
    paper = paper_in(name)
    if not paper.notebook.is_file():
        raise ValueError(f"paper {paper.name} has no notebook: {Path(name, paper.name)}.ipynb is not there")
    return paper.notebook, paper


def prepared(paper: str, given: Mapping, name: str = "") -> Run:
    """The run of the notebook of a paper, by name or folder, with the parameters ``given``, called ``name`` (default: the paper's).

    Raises ValueError for a parameter that the notebook does not declare, naming the closest one it does, for a value that its parameters
    refuse, for data files that cannot be what they are taken for, and for what would stop the run before its end.
    """
    path, its = located(paper)
    known = declared(path)
    for parameter in given:
        check_name(parameter, known, f"parameter of {path.stem}")
    if its is None:
        folder = output_folder(given.get("output"), given.get("profile", "smoke"), path.stem)
    else:
        p = its.read(known | given)
        check_run(its, p)
        folder = its.folder(p)
    return Run(name or path.stem, path, dict(given), folder)


def given_values(pairs: list[tuple[str, str]]) -> dict:
    """The values of ``-p name value``. Raises ValueError for anything that is not a YAML value, and for a name given twice."""
    values = {}
    for name, text in pairs:
        if name in values:
            raise ValueError(f"parameter {name} is given twice")
        values[name] = _from_here(name, read_value(name, text))
    return values


def _from_here(name: str, value: Any) -> Any:
    """A folder to write to, and a path that leads somewhere from the current folder, as a whole path: notebooks run elsewhere, where it may
    lead to another one."""
    if name in ("output", "cache") and isinstance(value, str) and value and Path.cwd() != PROJECT:
        return str(Path(value).expanduser().resolve())
    if name not in (*SETS, "data_root", "extra", "start") or not isinstance(value, str) or known(value):
        return value
    place, colon, rest = value.rpartition(":") if name == "extra" else (value, "", "")
    return f"{Path(place).resolve()}{colon}{rest}" if place and Path.cwd() != PROJECT and Path(place).exists() else value


def end_on_signals() -> None:
    """Let SIGTERM and a closed terminal end this program as Ctrl-C does, with its temporary files removed; if that takes longer than
    ``SECONDS_TO_END``, say where it hangs and end without. What the program was told to ignore (``nohup``) is still ignored."""

    def end(number: int, frame: Any) -> None:
        # Threads that still run notebooks hold sockets, on which the clean-up of their kernels may wait for ever.
        faulthandler.dump_traceback_later(SECONDS_TO_END, exit=True)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        os.write(2, f"stopped; {CONTINUES}\n".encode())  # print may be what was interrupted
        sys.exit(128 + number)

    for number in (getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)):  # Windows has no SIGHUP
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)


def options_of(parser: argparse.ArgumentParser, arguments: list[str] | None, profile: str) -> argparse.Namespace:
    """The options of a command that executes notebooks: its own, the profile (by default ``profile``), parameters, and how much of a
    failure is shown."""
    parser.add_argument("--profile", default=profile, help=f"one of {', '.join(PROFILES)} (default {profile})")
    listed = f"a notebook parameter, YAML value; papermill --help-notebook {NOTEBOOKS / 'fedthe.ipynb'} lists those of one notebook"
    parser.add_argument("-p", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"), help=listed)
    parser.add_argument("--verbose", action="store_true", help="show the whole traceback of a notebook that fails")
    # One thread per process: two busy threads on a shared machine cost several times what they gain.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="fedlib run", description=__doc__.splitlines()[0], epilog="example: fedlib run --paper fedthe -p rounds 40 -p seeds '[0, 1]'"
    )
    parser.add_argument("--paper", action="append", help="one notebook, or a paper's own folder; may be repeated (default all)")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count(), help="processes in all, with one thread each (default: one per core)"
    )
    parser.add_argument("--keep-rounds", action="store_true", help="keep the states of all rounds in the cache (smoke and small drop them)")
    options = options_of(parser, arguments, "smoke")
    try:
        profile, given = check_name(options.profile, PROFILES, "profile"), given_values(options.p)
        papers = {located(paper)[0]: paper for paper in options.paper or names()}
        # A GPU serves one notebook at a time.
        at_once = 1 if str(given.get("device", "cpu")).startswith("cuda") else min(max(1, options.processes), len(papers))
        if "output" in given and len(papers) > 1:
            raise ValueError(f"parameter output is one folder, but {len(papers)} notebooks would write to it: give one --paper with it")
        if options.processes < 1:
            raise ValueError(f"--processes must be at least 1, got {options.processes}")
        each = {"profile": profile, "jobs": max(1, options.processes // at_once)}
        runs = [prepared(paper, {n: v for n, v in each.items() if n in declared(path)} | given) for path, paper in papers.items()]
        for run in runs:
            check_free(run.folder)
        first = NOTEBOOKS / f"{QUICKSTART}.ipynb"
        if not options.paper and first.is_file():
            # A table and a picture within the first minute of a run that takes many.
            runs.insert(0, Run(QUICKSTART, first, {}, output_folder(None, options.profile, QUICKSTART)))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    started = time.time()
    try:
        failed = execute_all(runs, at_once, verbose=options.verbose)
    except KeyboardInterrupt:
        sys.exit(f"\nstopped; {CONTINUES}")
    if "output" in given:
        for folder in {run.folder for run in runs if (run.folder / "run.json").is_file()}:
            write_index(folder)
    else:
        for folder in sorted({run.folder.parent for run in runs}):
            claims = gather_claims(folder)
            counts = ", ".join(f"{count} {verdict}" for verdict, count in claims["ours"].value_counts().items())
            print(f"claims of all papers in this folder: {counts or 'none'}, see {from_here(folder / 'claims.csv')}")
            write_indices(folder)
            print(f"everything: {from_here(folder / 'index.html')}")
    if failed:
        stopped = ", ".join(run.name for run in failed)
        sys.exit(f"error: {stopped} stopped, see above; {CONTINUES}")
    if not options.keep_rounds:
        _trim({"profile": profile} | given, started)


def _trim(given: Mapping, started: float) -> None:
    """Drop what a run of a small profile need not leave. One with parameters of its own is being worked on, and keeps everything."""
    limit, cache = LIMITS.get(given["profile"]), given.get("cache", "cache")
    if limit is None or cache is None or given.keys() - {"profile", "cache", "output", "jobs", "device", "data_root"}:
        return
    if freed := trim(PROJECT / Path(cache).expanduser(), started, limit):
        print(f"cache: {freed / 1e6:.0f} MB of states that a repeated run does not read were dropped (--keep-rounds keeps them)")


if __name__ == "__main__":
    end_on_signals()
    main()
