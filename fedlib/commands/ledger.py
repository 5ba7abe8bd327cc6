"""All claims of the papers on one page, with what each run says: ``fedlib ledger figures/mine/fedthe figures/mine/btfl --out claims.md``.

Of a claim that several runs have judged, the first's verdict counts: give the runs that are worth most first. Verdicts on tables whose
clients are told are made anew, by this version's rules; others are those of the run.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fedlib.commands.claims import claims
from fedlib.commands.folders import result_tables
from fedlib.published import claims_of
from fedlib.published.ledger import ledger as judge
from fedlib.tools.files import atomic

NOT_RUN = "not run"
PLURAL = {"holds": "hold", "fails": "fail", "no table": "without a table"}
ABOUT = """What each paper claims, on its own printed numbers and on ours. *Fails*, in print: at least one comparison fails by more than its
margin; of ours it takes the paper's schedule and data, and a failure beyond chance. A verdict on ours names the data, the seeds, and what
is a stand-in or was changed. *Not shown*: a run of an earlier version, where a claim failed that the run could not refute. Each run's file
lists the comparisons behind its verdicts; where every client's accuracy is in a file as well, they were judged anew for this page."""


def ledger(folders: Sequence[str | Path]) -> pd.DataFrame:
    """One row per claim of the folders' papers: ``paper, claim, text, published, ours, verdict`` (``fedlib.published.ledger``) and
    ``folder``, of the run that judged it ("" where none did). Raises FileNotFoundError for a folder without tables or claims."""
    judged = pd.concat([_judged(Path(folder)) for folder in folders], ignore_index=True)
    judged["folder"] = judged["folder"].where(judged["ours"] != NOT_RUN, "")
    judged = judged.assign(_order=judged.groupby(["paper", "claim"], sort=False).ngroup(), _not_run=judged["folder"] == "")
    judged = judged.sort_values(["_order", "_not_run"], kind="stable").drop_duplicates("_order")
    return judged.drop(columns=["_order", "_not_run"]).reset_index(drop=True)


def page(frame: pd.DataFrame, place: Path) -> str:
    """``ledger`` in Markdown, a table for each paper, for a file in the folder ``place``."""
    reads = {(paper, c.id): ", ".join(c.reads) for paper in frame["paper"].unique() for c in claims_of(paper.lower()).CLAIMS}
    lines = ["# The papers' claims", "", ABOUT, ""]
    for paper, rows in frame.groupby("paper", sort=False):
        lines += [f"## {paper}", "", f"{len(rows)} claims. In print: {_counts(rows['published'])}. Ours: {_counts(rows['ours'])}.", ""]
        lines += ["| | claim | in print | ours | run |", "|---" * 5 + "|"]
        for row in rows.itertuples():
            folder = os.path.relpath(row.folder, place) if row.folder else ""
            run = f"[{folder}]({folder}/claims.csv)" if folder else ""
            ours = row.verdict if folder else f"not run (reads {reads[row.paper, row.claim]})"
            lines.append(f"| {row.claim} | {row.text} | {row.published} | {ours} | {run} |")
        lines.append("")
    return "\n".join(lines)


def _counts(states: pd.Series) -> str:
    counts = states.value_counts().items()
    return ", ".join(f"{n} {state if n == 1 else PLURAL.get(state, state)}" for state, n in counts)


def _judged(folder: Path) -> pd.DataFrame:
    path = folder / "claims.csv"
    if not path.exists():
        raise FileNotFoundError(f"{folder} has no claims.csv: its run did not finish, or is no paper's. Run its notebook again")
    (paper,) = {name for table in result_tables(folder).values() for name in table["paper"]}
    frame = judge(paper.lower(), {}).set_index("claim")[["text", "published"]]
    ours = pd.read_csv(path).set_index("claim")[["ours", "verdict"]]
    if [*folder.glob("*_clients.csv")]:
        ours.update(claims(folder).set_index("claim"))
    # An older run did not know of every claim.
    frame = frame.join(ours).fillna({"ours": NOT_RUN, "verdict": NOT_RUN})
    return frame.reset_index().assign(paper=paper, folder=str(folder))


def main(arguments: list[str] | None = None) -> None:
    texts = {"prog": "fedlib ledger", "description": __doc__, "epilog": "example: fedlib ledger figures/mine/fedthe --out claims.md"}
    parser = argparse.ArgumentParser(**texts, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="folder", help="results of a run; those that are worth most first")
    parser.add_argument("--out", type=Path, default=Path("claims.md"), metavar="FILE", help="the page, in Markdown (default: claims.md)")
    options = parser.parse_args(arguments)
    try:
        frame = ledger(options.folders)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    with atomic(options.out) as path:
        path.write_text(page(frame, options.out.parent), encoding="utf-8")
    print(options.out)


if __name__ == "__main__":
    main()
