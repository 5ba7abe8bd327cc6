"""Make one run of several that were made apart: ``fedlib join figures/seed0 figures/seed1 figures/seed2 --out figures/three``.

Seeds or methods of a paper may be run on machines that share no cache. The folder named by ``--out`` has the tables of all of them, with
means and deviations over all seeds, and the claims that read tables, judged on these; its ``run.json`` says of what runs it is made.
Figures are left to the runs, since their files do not hold what clients had, and only cells whose clients are told
(``<table>_clients.csv``) take further seeds.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fedlib.commands.claims import claims
from fedlib.commands.folders import RUN, reader, record, seeds_of, tables
from fedlib.results import write_claims, write_run, write_table
from fedlib.results.record import begin

# Of each run's ``run.json``, what the joined one repeats.
FACTS = ("identity", "seeds", "versions", "commit", "processor", "cpu_threads", "date")


def join(folders: Sequence[str | Path], out: str | Path) -> None:
    """Write the tables, claims and ``run.json`` of all runs together to ``out``.

    Raises as ``fedlib.commands.folders.tables``, FileNotFoundError for a run that did not finish, and ValueError for runs of several
    profiles or devices and where ``out`` holds committed results.
    """
    runs = [record(folder) for folder in folders]
    for name in ("profile", "device"):
        if len(values := {run[name] for run in runs}) > 1:
            raise ValueError(f"the runs do not go together: their {name} is {' and '.join(sorted(values))}")
    frames, judged = tables(folders), claims(*folders)
    parts = [{"folder": Path(folder).name} | {name: run[name] for name in FACTS} for folder, run in zip(folders, runs, strict=True)]
    facts = {"dataset": runs[0]["dataset"], "parameters": _parameters([run["parameters"] for run in runs]), "joined": parts}
    notes = list(dict.fromkeys(note for run in runs for note in run["notes"]))
    begin(Path(out), facts)
    for name, frame in frames.items():
        write_table(frame.astype({"n_seeds": "Int64", "n": "Int64"}), out, name)
    write_claims(judged, out)
    write_run(
        out,
        **{name: runs[0][name] for name in ("profile", "device", "cpu_threads")},
        seeds=seeds_of(folders),
        duration_seconds=sum(run["duration_seconds"] for run in runs),
        cache_hits=sum(run["cache_hits"] for run in runs),
        accounts=[],
        notes=notes,
        **facts,
    )


def _parameters(of_runs: list[dict]) -> dict:
    """Those of the first, and in lists of what was run all that any names."""
    lists = [name for name in RUN if all(isinstance(p.get(name), list) for p in of_runs)]
    return of_runs[0] | {name: list(dict.fromkeys(value for p in of_runs for value in p[name])) for name in lists}


def main(arguments: list[str] | None = None) -> None:
    parser: argparse.ArgumentParser = reader("join", __doc__, "figures/seed0 figures/seed1 --out figures/both", out=Path("joined"))
    options = parser.parse_args(arguments)
    try:
        join(options.folders, options.out)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(options.out)
