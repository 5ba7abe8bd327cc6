"""All claims of the papers on one page, with what each run says: ``fedlib ledger figures/mine/fedthe figures/mine/btfl --out claims.md``.

Of a claim that several runs have judged, the first's verdict counts: give the runs that are worth most first. Verdicts on tables whose
clients are told are made anew, by this version's rules; others are those of the run, unless several seeds leave the claim undecided today.
"""

import contextlib
import functools
import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fedlib.commands.claims import claims
from fedlib.commands.folders import first_run, here, make, of_papers, reader, record, result_tables
from fedlib.published import claims_of
from fedlib.published.ledger import ledger as judge

NOT_RUN = "not run"
PLURAL = {"holds": "hold", "fails": "fail", "no table": "without a table"}
ABOUT = """What each paper claims, on its own printed numbers and on ours. In print, a claim *fails* if at least one comparison fails by
more than its margin; to fail on ours it takes the paper's schedule and data, and a failure beyond chance, else it is *undecided*; where
some comparison does fail, *not shown* says why this does not refute. A verdict on ours names the data and the seeds; *stand-in*, or
without one *changed*, is what differs from the paper's run, and *n of m comparisons run* means that the others lack data. `fedlib claims`
lists the comparisons behind verdicts on tables whose clients' accuracies are in a file, as judged for this page; the file of each run, to
which the link leads, has all of them as that run judged them, by the rules of its time."""


def ledger(folders: Sequence[str | Path]) -> pd.DataFrame:
    """One row per claim of the folders' papers: ``paper, claim, text, published, ours, verdict`` (``fedlib.published.ledger``) and
    ``folder``, of the run that judged it ("" where none did). Folders without claims, such as a comparison's, are left out.

    Raises FileNotFoundError for a folder that is absent or without tables, and for a run that did not finish; ValueError where none has
    claims."""
    absent = [str(folder) for folder in folders if not here(folder).is_dir()]
    if absent:
        raise FileNotFoundError(f"no folder {', '.join(absent)}")
    claimed = [Path(folder) for folder in folders if (here(folder) / "claims.csv").exists()]
    if not claimed:
        raise ValueError(f"none of {', '.join(map(str, folders))} has a claims.csv: give finished runs of papers")
    judged = pd.concat([_judged(folder) for folder in claimed], ignore_index=True)
    judged["folder"] = judged["folder"].where(judged["ours"] != NOT_RUN, "")
    return first_run(judged, ["paper", "claim"], judged["folder"] == "")


def page(frame: pd.DataFrame, place: Path) -> str:
    """``ledger`` in Markdown, a table for each paper, for a file in the folder ``place``."""
    reads = {(paper, c.id): c.reads for paper in frame["paper"].unique() for c in claims_of(paper.lower()).CLAIMS}
    lines = ["# The papers' claims", "", ABOUT, ""]
    for paper, rows in frame.groupby("paper", sort=False):
        lines += [f"## {paper}", "", f"{len(rows)} claims. In print: {_counts(rows['published'])}. Ours: {_counts(rows['ours'])}.", ""]
        lines += ["| | claim | in print | ours | run |", "|---" * 5 + "|"]
        for row in rows.itertuples():
            folder = os.path.relpath(row.folder, place) if row.folder else ""
            run = f"[{folder}](<{folder}/claims.csv>)" if folder else ""
            sources = [name for name in reads[row.paper, row.claim] if name != row.claim]
            ours = row.verdict if folder else f"{NOT_RUN} (reads {', '.join(sources)})" if sources else NOT_RUN
            lines.append(f"| {row.claim} | {row.text} | {row.published} | {ours} | {run} |")
        lines.append("")
    return "\n".join(lines)


def _counts(states: pd.Series) -> str:
    counts = states.value_counts().items()
    return ", ".join(f"{n} {state if n == 1 else PLURAL.get(state, state)}" for state, n in counts)


def _judged(folder: Path) -> pd.DataFrame:
    seeds = record(folder)["seeds"]  # of a run that finished
    (paper,) = {name for table in result_tables(folder).values() for name in table["paper"]}
    ours = pd.read_csv(here(folder) / "claims.csv").set_index("claim")[["ours", "verdict"]]
    with contextlib.suppress(ValueError):  # tables of version 0.1.0
        today = claims(folder).set_index("claim")[["ours", "verdict"]]
        if not [*here(folder).glob("*_clients.csv")]:
            # Margins over seeds alone are too narrow to hold or to refute anything, and one seed has none.
            today = today[(today["ours"] == "undecided") & (len(seeds) > 1)]
        ours = today.combine_first(ours)
    # An older run did not know of every claim.
    frame = _printed(paper).join(ours).fillna({"ours": NOT_RUN, "verdict": NOT_RUN})
    return frame.reset_index().assign(paper=paper, folder=str(here(folder)))


@functools.cache
def _printed(paper: str) -> pd.DataFrame:
    return judge(paper.lower(), {}).set_index("claim")[["text", "published"]]


def main(arguments: list[str] | None = None) -> None:
    parser = of_papers(reader("ledger", __doc__, "figures/mine/fedthe figures/mine/btfl", out=Path("claims.md")))
    options = parser.parse_args(arguments)
    make(options.out, lambda path: path.write_text(page(ledger(options.folders), options.out.parent), encoding="utf-8"))
