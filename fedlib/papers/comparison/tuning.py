"""Fair tuning: the same number of candidates for every method, chosen on the same held-out streams, of which no test has an
image; methods with per-sample gradients see the first images of each stream, as in the tests.

For every protocol, seed and method the candidates of ``candidates.py`` run over the source clients' choosing streams
(``fedlib.protocols.validated``); the one with the highest mean accuracy over these streams (each client and each kind of stream counts the
same) is tested, the first of several that are equal. Tests have no say, and neither have other seeds, whose clients may hold the images.
A candidate whose scores are not finite drops out.
"""

from dataclasses import replace

import pandas as pd

from fedlib.common import average
from fedlib.core import Recipe
from fedlib.paper import Block
from fedlib.papers.comparison.candidates import candidates
from fedlib.papers.comparison.grid import gains, measured, named, provenance
from fedlib.papers.comparison.recipes import CUT, baseline
from fedlib.papers.comparison.settings import Parameters
from fedlib.papers.comparison.significance import images_of, paired_by_seeds, with_mean_column
from fedlib.published.units import different
from fedlib.start import NotHeld
from fedlib.study import Study


def grids(p: Parameters, protocol: str) -> dict[bool, dict[str, dict[str, Recipe]]]:
    """Whether the network is the one without batch norm -> method -> its candidates in words. From a trained federation, methods some of
    whose candidates train in another way are left out: fewer candidates than the others' would be unfair."""
    tables = {False: p.recipes(protocol), True: p.plain_recipes(protocol)}
    found = {plain: {method: candidates(method, recipe) for method, recipe in table.items()} for plain, table in tables.items()}
    return {plain: {method: grid for method, grid in of.items() if grid and _held(p, grid)} for plain, of in found.items()}


def _held(p: Parameters, grid: dict[str, Recipe]) -> bool:
    """Whether every candidate can be trained, or start where nothing is."""
    try:
        if p.trained is not None:
            p.trained.check(grid, p.seeds)
    except NotHeld:
        return False
    return True


def choosing(p: Parameters) -> list[Block]:
    """Every candidate of every method on the choosing streams."""
    found = []
    for protocol, clients in p.clients_of().items():
        for plain, methods in grids(p, protocol).items():
            flat = {f"{method}: {words}": recipe for method, grid in methods.items() for words, recipe in grid.items()}
            # Seed by seed, so that a candidate that diverges in one may be chosen in another.
            for seed in p.seeds:
                found += p.blocks(protocol, flat, plain, replace(clients, choosing=True), seeds=[seed], columns=None)
    return found


def chosen(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Protocol, method, seed, candidate, ``choosing`` (accuracy in percent), n (different images of all clients, streams), whether it was
    chosen, what was run."""
    key = ["setting", "method", "seed"]
    found = rows.groupby(key, sort=False)["accuracy"].mean().rename("choosing").to_frame().assign(n=different(rows, key)).reset_index()
    found = found.merge(provenance(rows, key), on=key)
    found[["method", "candidate"]] = found["method"].str.rsplit(": ", n=1, expand=True).to_numpy()
    best = found.groupby(["setting", "seed", "method"], sort=False)["choosing"].idxmax()
    columns = ["setting", "method", "seed", "candidate", "choosing", "n", "run_dataset", "run_model", "status"]
    return found[columns].assign(chosen=found.index.isin(best)).rename(columns={"setting": "protocol"})


def words(study: Study, grid: pd.DataFrame) -> pd.DataFrame:
    """What was chosen: methods down, protocols across; ``all alike`` where no seed's streams tell one of several from another."""
    key = ["method", "protocol"]
    best = grid[grid["chosen"]].groupby(key, sort=False)["candidate"].agg(lambda values: " | ".join(dict.fromkeys(values)))
    several = grid.groupby([*key, "seed"])["choosing"].agg(["nunique", "size"]).groupby(key).max().loc[best.index]
    alike = (several["nunique"] == 1) & (several["size"] > 1)
    return best.mask(alike, best + " (all alike)").unstack().fillna("")


def tested(p: Parameters, grid: pd.DataFrame) -> list[Block]:
    """Every method under what was ``chosen`` for it, on the tests."""
    found = []
    for (protocol, seed), rows in grid[grid["chosen"]].groupby(["protocol", "seed"], sort=False) if len(grid) else ():
        for plain, methods in grids(p, protocol).items():
            table = {row.method: methods[row.method][row.candidate] for row in rows.itertuples() if row.method in methods}
            found += p.blocks(protocol, table, plain, seeds=[seed])
    return found


def tuned(study: Study) -> pd.DataFrame:
    """Untuned and tuned side by side."""
    rows = named(study.rows(tested(study.p, study.numbers("tuning")))[0])
    return beside(measured(study), rows) if len(rows) else rows


def beside(rows: pd.DataFrame, tuned: pd.DataFrame) -> pd.DataFrame:
    """Untuned and tuned side by side, per protocol, test column (and ``mean``, every client's over its columns) and method: mean and n-1
    std over seeds of the gain of both over no adaptation, and of tuned over untuned, with its interval ``low`` to ``high``, ``p_holm`` and
    verdict of a test that is paired by client and corrected for the methods of a column, and those of the tuned gain (``tuned_low`` and so
    on); n_seeds, n (test images), ``images`` (different ones within a seed), ``over`` what intervals and tests are, what was run. rows: of
    the grid; tuned: of ``tested``. Empty where no method ran with both."""
    key, own = ["setting", "column", "method"], tuned["method"].unique()
    unit = [*key, "seed", "client"]
    bases = rows[rows["method"].isin({CUT, *map(baseline, own)})]
    gained = {"untuned": gains(rows), "tuned": gains(pd.concat([bases, tuned], ignore_index=True))}
    for name, frame in gained.items():
        names = {"accuracy": name, "by_image": f"{name}_by_image"}
        gained[name] = frame[frame["method"].isin(own)].rename(columns=names)
    # Both have seen the same images.
    again = gained["tuned"].drop(columns="seen", errors="ignore")
    both = with_mean_column(gained["untuned"].merge(again, on=unit, validate="one_to_one"))
    if both.empty:  # with the published values, all of them diverged
        return both
    both["difference"] = both["tuned"] - both["untuned"]
    if {"tuned_by_image", "untuned_by_image"} <= set(both):
        both["difference_by_image"] = both["tuned_by_image"] - both["untuned_by_image"]
    table = average(with_mean_column(tuned), key)[[*key, "n", "n_seeds"]]
    for name in ("untuned", "tuned", "difference"):
        part = average(both.rename(columns={name: "accuracy"}), key)[[*key, "mean", "std"]]
        table = table.merge(part.rename(columns={"mean": name, "std": f"{name}_std"}), on=key)
    adds = _tests(both, "difference", tuned).drop(columns=["gain", "p"])
    gain = _tests(both, "tuned", tuned)[[*key, "low", "high", "p_holm", "verdict"]]
    gain = gain.rename(columns={name: f"tuned_{name}" for name in gain if name not in key})
    table = table.merge(adds, on=key).merge(gain, on=key).merge(provenance(with_mean_column(tuned), key), on=key)
    return table.rename(columns={"setting": "protocol"})


def _tests(both: pd.DataFrame, name: str, tuned: pd.DataFrame) -> pd.DataFrame:
    """``paired_by_seeds`` of the column ``name`` on every test column; ``tuned``: of ``tested``."""
    each = both.rename(columns={name: "accuracy", f"{name}_by_image": "by_image"})
    parts = each.groupby(["setting", "column"], sort=False)
    found = {(protocol, column): paired_by_seeds(part, protocol, images_of(tuned, protocol, column)) for (protocol, column), part in parts}
    return pd.concat(found, names=["setting", "column"]).reset_index(["setting", "column"])
