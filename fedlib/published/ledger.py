"""The ledger of a paper's claims: what its own print says, what was measured, and on which data."""

from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from fedlib.names import check_name
from fedlib.published import IN_MEMORY, PAPERS, TABLE_COLUMNS
from fedlib.published.claims import CLAIMS, FIGURE_COLUMNS, PROVENANCE
from fedlib.published.evidence import Cells, Verdict, judge

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
    check_name(paper, PAPERS, "paper")
    figures = {n: frame[~frame["method"].isin(own)] if "method" in frame else frame for n, frame in (figures or {}).items()}
    _check(paper, tables, figures)
    printed, measured = Cells(paper), Cells(paper, dict(tables), figures)
    rows = []
    for claim in CLAIMS[paper]:
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
        check_name(name, FIGURE_COLUMNS[paper], f"figure of {paper}")
        absent = [column for column in (*FIGURE_COLUMNS[paper][name], *PROVENANCE) if column not in frame]
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
