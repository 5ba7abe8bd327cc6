"""The ledger of a paper's claims: what its own print says, what was measured, and on which data.

Each claim has a check, a function from ``Cells`` to findings, that is run on the printed cells and on measured ones; they lie in the module
``claims`` of the paper's folder. Ids: H FedTHE, U UPFL, A ATP, I FedICON, B BTFL; an id that is a figure's (F3) is a check of what the
paper says about that figure. Claims about figures read the figure's csv file. A claim about numbers that no table or figure of the paper
shows reads a frame filed under the claim's own id (U6, A16).
"""

import math
from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from fedlib.data import is_own
from fedlib.published import IN_MEMORY, TABLE_COLUMNS, claims_of
from fedlib.published.comparisons import FAILS
from fedlib.published.evidence import EXACT, STAND_IN, Cells, Verdict, judge
from fedlib.tools.names import check_name, counted

# Every figure frame is long: what tells a point apart, then the plotted value ``mean`` (accuracy in percent unless the figure plots
# something else); ``std`` over seeds and the paired ``units`` may follow. What is read off the shape of a curve (where it crosses, how it
# spreads) has no margin: it is decided on the means over several seeds, and left open on one. These columns close every frame and say
# what was run, as in the result tables.
PROVENANCE = ("n_seeds", "run_dataset", "run_model", "status")
# Parameters that say how well something is measured, not what: margins know of them, and cut streams refute nothing.
CUTS = ("costly_samples", "side_samples")
PRECISION = ("seeds", *CUTS)


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
    table" or "not run". verdict: ours with the data named.

    It takes more to refute what a paper says than to find its print at odds with it: ours is "fails" where, at the paper's own schedule, on
    the data that it names and on whole streams, a comparison fails beyond chance (``Verdict.refuting``); comparisons on stand-in data, on
    a user's images or on the first images of a stream support, and never refute. Where less than that fails, the claim is "undecided", and
    the verdict says why. One seed refutes by its clients: it speaks of one training. Several must differ over clients and over seeds.
    Raises ValueError for unknown names and absent columns.
    """
    figures = {n: frame[~frame["method"].isin(own)] if "method" in frame else frame for n, frame in (figures or {}).items()}
    _check(paper, tables, figures)
    printed, measured = Cells(paper), Cells(paper, dict(tables), figures)
    able = measured.sound(cut=any(name in CUTS for name in changed))
    rows = []
    for claim in claims_of(paper).CLAIMS:
        theirs, seen, sound = judge(claim, printed), judge(claim, measured), judge(claim, able)
        acted = () if all(name in EXACT for name, _, _ in seen.cells.used) else changed
        refuted = bool(sound.refuting) and all(name in PRECISION for name in acted)
        ours = sound if refuted else seen
        state = "fails" if refuted else "undecided" if seen.state == "fails" else seen.state
        rows.append(
            {
                "claim": claim.id,
                "text": claim.text,
                "published": "no table" if theirs.state == "not run" else theirs.state,
                "ours": state,
                "verdict": _statement(state, ours, acted) + (_short(sound, acted) if state != ours.state else ""),
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


def _short(sound: Verdict, changed: Sequence[str]) -> str:
    """What a claim with comparisons that fail lacks to be refuted."""
    able = [f for f in sound.made if f.state == FAILS] if all(name in PRECISION for name in changed) else []
    if not able:
        return " - not shown, but such a run cannot refute"
    if all(math.isnan(f.chance) for f in able):
        return " - not shown, but nothing tells what fails from chance"
    return f" - not shown, but within chance among {counted(len(sound.made), 'comparison')}"


def _statement(state: str, verdict: Verdict, changed: Sequence[str]) -> str:
    if state == "not run":
        lacking = list(dict.fromkeys(verdict.cells.lacking))
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        return f"not run: lacks {'; '.join(lacking[:3])}{more}"
    used = verdict.cells.used
    names = " + ".join(sorted({name for name, _, _ in used}))
    own = "a user's images, " if any(is_own(name) for name, _, _ in used) else ""
    weak = own + (f"changed: {', '.join(changed)}; " if changed else "")
    if any(status == STAND_IN for _, _, status in used):
        weak = "stand-in, "
    seeds = sorted({seeds for _, seeds, _ in used})
    count = counted(seeds[0], "seed") if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
    part = f", {len(verdict.made)} of {len(verdict.findings)} comparisons run" if len(verdict.made) < len(verdict.findings) else ""
    why = f": {verdict.counts}" if state == "undecided" else ""
    if state == "fails":
        why = f": {len(verdict.refuting)} of {len(verdict.made)} fail{'s' * (len(verdict.refuting) == 1)} beyond chance"
    return f"{state} on {names} ({weak}{count}){part}{why}"
