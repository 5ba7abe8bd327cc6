"""Make one run of several that were made apart: ``fedlib join figures/seed0 figures/seed1 figures/seed2 --out figures/three``.

Seeds or methods of a paper may be run on machines that share no cache. The new folder has the tables of all of them, with means and
deviations over all seeds, and the claims that read tables, judged on these; its ``run.json`` says of what runs it is made. Figures are left
to the runs. Cells whose clients are not told (``<table>_clients.csv``), such as ranks and times, stay as the first run has them. The number
of test images behind a cell counts those that runs have in common each time.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from fedlib.commands.claims import claims
from fedlib.commands.folders import RUN, existing, of_papers, reader, record, tables
from fedlib.published.ledger import CUTS
from fedlib.results import write_claims, write_run, write_table
from fedlib.tools.names import counted

# Of each run's ``run.json``, what the joined one repeats.
FACTS = ("identity", "seeds", "date", "versions", "commit", "processor", "cpu_threads")
ALIKE = ("profile", "device", "cpu_threads")


def join(folders: Sequence[str | Path], out: str | Path) -> dict[str, str]:
    """Write the tables, claims and ``run.json`` of all runs together to the new folder ``out``. Returns, by table, over how many seeds its
    cells are.

    Raises as ``fedlib.commands.folders.tables``, FileNotFoundError for a run that did not finish, and ValueError for a run given twice, for
    runs of several profiles, devices, versions or lengths of cut streams, and where ``out`` holds files.
    """
    out, runs = Path(out), [record(existing(folder)) for folder in folders]
    if out.is_dir() and any(out.iterdir()):
        raise ValueError(f"{out} holds files: name a new folder")
    for folder, run in zip(folders, runs, strict=True):
        if absent := [name for name in (*FACTS, "parameters") if name not in run]:
            raise ValueError(f"{folder} is of an older version, whose run.json has no {', '.join(absent)}: run it again")
    _check_alike(runs)
    frames, judged = tables(folders), claims(*folders)
    if any(run["parameters"].get(name) != runs[0]["parameters"].get(name) for run in runs for name in CUTS):
        _check_cuts(folders, frames)
    for name, frame in frames.items():
        write_table(frame.astype({"n_seeds": "Int64", "n": "Int64"}), out, name)
    write_claims(judged, out)
    write_run(
        out,
        **{name: runs[0][name] for name in ALIKE},
        seeds=sorted({seed for run in runs for seed in run["seeds"]}),
        duration_seconds=sum(run["duration_seconds"] for run in runs),
        cache_hits=sum(run["cache_hits"] for run in runs),
        accounts=[],
        # Those of the runs, where this is written from elsewhere.
        **{name: " + ".join(dict.fromkeys(run[name] for run in runs if run[name])) or None for name in ("commit", "processor")},
        dataset=runs[0]["dataset"],
        notes=list(dict.fromkeys(note for run in runs for note in run["notes"])),
        parameters=_parameters([run["parameters"] for run in runs]),
        joined=[_part(folder, run) for folder, run in zip(folders, runs, strict=True)],
    )
    counts = {name: sorted(frame["n_seeds"].dropna().astype(int).unique()) for name, frame in frames.items()}
    return {name: f"{counted(' or '.join(map(str, seeds)), 'seed')} a cell" if seeds else "not run" for name, seeds in counts.items()}


def _part(folder: str | Path, run: dict) -> dict:
    return {"folder": str(folder), "start": run["parameters"].get("start")} | {name: run[name] for name in FACTS}


def _check_alike(runs: list[dict]) -> None:
    """Raise ValueError for runs whose tables cannot be one."""
    told = {name: [run[name] for run in runs] for name in ALIKE} | {"version": [run["versions"]["fedlib"] for run in runs]}
    for name, values in told.items():
        if len(different := dict.fromkeys(values)) > 1:
            raise ValueError(f"the runs do not go together: their {name} is {' and '.join(map(str, different))}")
    if len({run["identity"] for run in runs}) < len(runs):
        raise ValueError("two of the folders hold the same run")


def _check_cuts(folders: Sequence[str | Path], names: Iterable[str]) -> None:
    """Raise ValueError where a table's streams were cut at several lengths: its methods then have no first images in common.
    (``fedlib pairs`` compares what there is.)"""
    for name in names:
        files = [path for folder in folders if (path := existing(folder) / f"{name}_clients.csv").exists()]
        lengths = {pd.read_csv(path)["cut_n"].fillna(0).max() for path in files}
        if len(lengths) > 1:
            raise ValueError(
                f"the runs do not go together: the streams of {name} were cut at {' and '.join(f'{n:g}' for n in sorted(lengths))}"
            )


def _parameters(of_runs: list[dict]) -> dict:
    """Those of the first; of what was run all that any names, and nothing where they differ otherwise."""
    told = dict(of_runs[0])
    for name in RUN:
        values = [parameters.get(name) for parameters in of_runs]
        if any(value != values[0] for value in values):
            told[name] = list(dict.fromkeys(v for value in values for v in value)) if all(isinstance(v, list) for v in values) else None
    # Some may have seen whole streams, others the first images.
    lengths = {name: {parameters.get(name) for parameters in of_runs} for name in CUTS if name in told}
    told |= {name: max(each or 0 for each in found) for name, found in lengths.items() if len(found) > 1}
    own = {name: words for parameters in of_runs for name, words in (parameters.get("extra") or {}).items()}
    return told | {"extra": own or None}


def main(arguments: list[str] | None = None) -> None:
    parser = of_papers(reader("join", __doc__, "figures/seed0 figures/seed1 --out figures/both", out=Path("joined")))
    options = parser.parse_args(arguments)
    try:
        counts = join(options.folders, options.out)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(options.out)
    for name, seeds in counts.items():
        print(f"  {name}: {seeds}")
