"""The ledger of a paper's claims: what its own print says, what was measured, and on which data.

Each claim has a check, a function from ``Cells`` to findings, that is run on the printed cells and on measured ones; they lie in the module
``claims`` of the paper's folder. Ids: H FedTHE, U UPFL, A ATP, I FedICON, B BTFL; an id that is a figure's (F3) is a check of what the
paper says about that figure. Claims about figures read the figure's csv file. A claim about numbers that no table or figure of the paper
shows reads a frame filed under the claim's own id (U6, A16).
"""

from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from fedlib.published import IN_MEMORY, TABLE_COLUMNS, claims_of
from fedlib.published.evidence import Cells, Verdict, judge
from fedlib.tools.names import check_name

# Every figure frame is long: what tells a point apart, then the plotted value ``mean`` (accuracy in percent unless the figure plots
# something else); ``std`` over seeds and the paired ``units`` may follow. What is read off the shape of a curve (where it crosses, how it
# spreads) has no margin: it is decided on the means over several seeds, and left open on one. These columns close every frame and say
# what was run, as in the result tables.
PROVENANCE = ("n_seeds", "run_dataset", "run_model", "status")
# Numbers drawn from a model, on which no parameter of a run acts.
EXACT = ("toy problem",)


def ledger(
    paper: str,
    tables: Mapping[str, pd.DataFrame],
    figures: Mapping[str, pd.DataFrame] | None = None,
    *,
    changed: Sequence[str] = (),
    own: Collection[str] = (),
) -> pd.DataFrame:
    """One row per claim: ``claim, text, published, ours, verdict, evidence``.

    tables: table -> frame of the result-file contract (``TABLE_COLUMNS``); figures: figure -> frame with ``FIGURE_COLUMNS`` and
    ``PROVENANCE``; changed: which numbers of the paper's profile were not kept (``Common.changed``); own: methods that no paper has, of
    which its claims say nothing. published, on the printed cells, and ours, on the measured ones: "holds", "fails", "undecided", and "no
    table" or "not run". Results on stand-in data or with changed numbers never refute a claim: there "fails" becomes "undecided", and the
    verdict says so. verdict: ours with the data named.
    Raises ValueError for unknown names and absent columns.
    """
    figures = {n: frame[~frame["method"].isin(own)] if "method" in frame else frame for n, frame in (figures or {}).items()}
    _check(paper, tables, figures)
    printed, measured = Cells(paper), Cells(paper, dict(tables), figures)
    rows = []
    for claim in claims_of(paper).CLAIMS:
        theirs, ours = judge(claim, printed), judge(claim, measured)
        acted = () if all(name in EXACT for name, _, _ in ours.cells.used) else changed
        weak = _weak(ours, acted)
        state = "undecided" if ours.state == "fails" and weak else ours.state
        rows.append(
            {
                "claim": claim.id,
                "text": claim.text,
                "published": "no table" if theirs.state == "not run" else theirs.state,
                "ours": state,
                "verdict": _statement(state, ours, weak),
                "evidence": f"paper: {theirs.evidence} | ours: {ours.evidence}",
            }
        )
    return pd.DataFrame(rows)


def _check(paper: str, tables: Mapping[str, pd.DataFrame], figures: Mapping[str, pd.DataFrame]) -> None:
    for name, frame in tables.items():
        if tuple(name for name in frame.columns if name not in IN_MEMORY) != TABLE_COLUMNS:
            raise ValueError(f"{paper} {name}: expected the columns {', '.join(TABLE_COLUMNS)}; got {', '.join(frame.columns)}")
    for name, frame in figures.items():
        check_name(name, claims_of(paper).FIGURE_COLUMNS, f"figure of {paper}")
        absent = [column for column in (*claims_of(paper).FIGURE_COLUMNS[name], *PROVENANCE) if column not in frame]
        if absent:
            raise ValueError(f"{paper} {name} lacks the columns {', '.join(absent)}")


def _weak(verdict: Verdict, changed: Sequence[str]) -> str:
    """Why a run cannot refute what the paper says of its own data and schedule; "" where it can."""
    if any(status == "stand-in" for _, _, status in verdict.cells.used):
        return "stand-in"
    return f"changed: {', '.join(changed)}" if changed else ""


def _statement(state: str, verdict: Verdict, weak: str) -> str:
    if state == "not run":
        lacking = list(dict.fromkeys(verdict.cells.lacking))
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        return f"not run: lacks {'; '.join(lacking[:3])}{more}"
    names = " + ".join(sorted({name for name, _, _ in verdict.cells.used}))
    seeds = sorted({seeds for _, seeds, _ in verdict.cells.used})
    count = f"{seeds[0]} seed{'s' if seeds[0] > 1 else ''}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
    part = f", {len(verdict.made)} of {len(verdict.findings)} comparisons run" if len(verdict.made) < len(verdict.findings) else ""
    why = f": {verdict.counts}" if state == "undecided" else ""
    why += " - not shown, but such a run cannot refute" if state != verdict.state else ""
    separator = "; " if weak.startswith("changed") else ", "
    return f"{state} on {names} ({weak + separator if weak else ''}{count}){part}{why}"
