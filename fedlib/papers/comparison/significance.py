"""Which differences are more than luck: tests of every cell against no adaptation, and critical differences of average ranks.

*Cells.* The gain of a method on one test column is paired: every client's accuracy less that of no adaptation on the same images. Its
interval and its p-value come from the same bootstrap over clients and seeds as the places (``ranking``), with Student's t for the few that
are drawn. All methods on one column are one family, corrected by Holm. Only what stands on ``LEAST`` different images is tested.
*Probability of improvement*: the share of clients (of all seeds) that a method serves better than no adaptation does, ties half.

*Ranks* (Demšar, JMLR 2006): a block is a group of clients with one seed's trainings, BRFL with BTGFL and TTPFL's three together, since they
share clients; in each the methods are ranked by their mean gain. Friedman's test says whether the average ranks differ at all, Nemenyi's
critical difference which of them do. Blocks of different seeds share test images where clients are not drawn anew, so that they say more of
trainings than of images.
"""

import numpy as np
import pandas as pd
from scipy.stats import friedmanchisquare, rankdata, studentized_range, t

from fedlib.papers.comparison.grid import gains, provenance
from fedlib.papers.comparison.ranking import (
    LEAST,
    LEVEL,
    MEAN,
    TOGETHER,
    distinct,
    overs,
    ranked,
    ranks,
    repeats_of,
    replicated,
    scores_of,
    shared_images,
)
from fedlib.papers.comparison.recipes import CUT, NONE, PLAIN
from fedlib.papers.comparison.settings import PROTOCOLS
from fedlib.published.pairs import holm
from fedlib.published.units import different

LOG_LEAST = np.log(1e-30)  # of p-values, which are not told apart below
BASELINES = (NONE, CUT, PLAIN)
# Verdicts of a cell.
HELPS, HURTS, UNDECIDED, FEW = "helps", "hurts", "undecided", "too few images"


def places(rows: pd.DataFrame) -> pd.DataFrame:
    """``ranking.ranks`` of all methods but those that only serve as baselines; no rows where nothing can be ranked."""
    groups = groups_of(rows)
    return ranks(gains(rows), groups) if groups else pd.DataFrame()


def unranked(rows: pd.DataFrame) -> pd.DataFrame:
    """What is not ranked for want of images: setting, method, images (in the worst column)."""
    if rows.empty:
        return pd.DataFrame(columns=["setting", "method", "images"])
    images = distinct(_methods(rows))
    return images[images < LEAST].rename("images").reset_index()


def groups_of(rows: pd.DataFrame) -> dict[str, tuple[list[str], list[str]]]:
    """See ``ranking.ranked``."""
    images = distinct(_methods(rows))
    # Where the baseline of a method did not run, it has no gains.
    gained = pd.MultiIndex.from_frame(gains(rows)[["setting", "method"]])
    return ranked(images[images.index.isin(gained)], PROTOCOLS, NONE)


def _methods(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[~rows["method"].isin([CUT, PLAIN])]


def two_sided(means: np.ndarray, errors: np.ndarray, df: np.ndarray) -> np.ndarray:
    """P-values of ``means`` [methods] whose ``errors`` [parts, methods] have ``df`` degrees of freedom [parts]: the level at which
    mean +- sqrt(sum (t error)^2), with a Student's t for every part, ends at zero. From three seeds on this is close to where the interval
    of ``ranking.replicated`` ends, which draws the parts. 1 for a mean of nothing without any spread, NaN without an error and for what
    all units gain alike: of a few small ones that says nothing.

    Degrees of freedom of the sum (Satterthwaite's) would follow the estimated parts: two or three seeds that happen to lie close together
    would then count as many, and call nothing something several times too often.
    """
    low, high = np.full(means.shape, LOG_LEAST), np.zeros(means.shape)  # of the logarithm
    while (high - low).max(initial=0) > 1e-9:
        middle = (low + high) / 2
        reach = np.sqrt(np.square(t.isf(np.exp(middle) / 2, df[:, None]) * errors).sum(0))
        low, high = np.where(reach > np.abs(means), middle, low), np.where(reach > np.abs(means), high, middle)
    alike = (errors <= 1e-12 * np.abs(means)).all(0)
    p = np.where(alike, np.where(means == 0, 1.0, np.nan), np.exp(high))
    return np.where(np.isnan(errors).any(0), np.nan, p)


def cells(rows: pd.DataFrame, *, draws: int = 1000) -> pd.DataFrame:
    """One row per protocol, test column (and ``mean``, every client's over its columns) and method: gain with ``low`` and ``high``, ``p``,
    ``p_holm`` and verdict, probability of improvement ``better`` with its own interval (none where all clients share their test), numbers
    of clients (per seed), different ``images`` (within one seed), of test images in all (``n``) and seeds, ``over`` what interval and test
    are, what was run. Methods that serve as baselines are left out."""
    own = rows[~rows["method"].isin(BASELINES)]
    if own.empty:
        return pd.DataFrame()
    each, parts, over = with_mean_column(gains(rows)), [], overs(rows)[-1]
    for (name, column), part in each[~each["method"].isin(BASELINES)].groupby(["setting", "column"], sort=False):
        frame = paired(part, name, over, images_of(own, name, column), draws=draws)
        scores = scores_of(part, list(frame["method"])).round(9)  # where the gains of several tests cancel, a client is even
        better = replicated(np.sign(scores) / 2 + 0.5, name, over, draws=draws, repeats=repeats_of(part))[0]
        low, high = interval_of(better)
        frame["better"], frame["better_low"], frame["better_high"] = better[0], np.clip(low, 0, 1), np.clip(high, 0, 1)
        frame = frame.assign(clients=scores.shape[1], n_seeds=scores.shape[0], over=over)
        parts.append(pd.DataFrame({"setting": name, "column": column}, index=frame.index).join(frame))
    if not parts:  # no method has its baseline
        return pd.DataFrame()
    key, all_rows = ["setting", "column", "method"], with_mean_column(own)
    counted = different(all_rows, key).rename("n").reset_index()
    found = pd.concat(parts, ignore_index=True).merge(counted, on=key).merge(provenance(all_rows, key), on=key)
    return found.rename(columns={"setting": "protocol"})


def with_mean_column(rows: pd.DataFrame) -> pd.DataFrame:
    """``rows``, and those of protocols with several test columns once more as one column ``mean``: of every client over its tests."""
    parts = [rows.iloc[:0]]
    for _, own in rows.groupby("setting", sort=False):
        parts += [own, own.assign(column=MEAN)] if own["column"].nunique() > 1 else [own]
    return pd.concat(parts, ignore_index=True)


def images_of(rows: pd.DataFrame, protocol: str, column: str) -> pd.Series:
    """Different test images that each method has seen of a test column; ``mean``: of the worst."""
    return distinct(rows[(rows["setting"] == protocol) & (rows["column"].eq(column) | (column == MEAN))]).loc[protocol]


def paired(each: pd.DataFrame, protocol: str, over: str, images: pd.Series, *, draws: int = 1000) -> pd.DataFrame:
    """Paired differences of the methods on one protocol, a client's averaged over its tests: ``gain`` with ``low`` and ``high``, ``p`` and,
    with the methods as one family, ``p_holm``; verdict; ``images``. each: rows as of ``grid.gains``; images: see ``images_of``."""
    methods = list(dict.fromkeys(each["method"]))
    shared = {"images": shared_images(each, methods), "repeats": repeats_of(each)}
    replicates, errors, df = replicated(scores_of(each, methods), protocol, over, draws=draws, **shared)
    frame = pd.DataFrame({"method": methods, "images": images[methods].to_numpy(), "gain": replicates[0]})
    frame["low"], frame["high"] = interval_of(replicates)
    frame["p"] = np.where(frame["images"] < LEAST, np.nan, two_sided(replicates[0], errors, df))
    frame["p_holm"] = holm(frame["p"].to_numpy())
    return frame.assign(verdict=[verdict(row) for row in frame.itertuples()])


def paired_by_seeds(each: pd.DataFrame, protocol: str, images: pd.Series) -> pd.DataFrame:
    """``paired``, methods that lack a seed (where they diverged) on the others that they have, all of them as one family; ``over`` what
    interval and test are."""
    seeds = each["method"].map(each.groupby("method")["seed"].agg(lambda own: tuple(sorted(own.unique()))))
    parts = [(part, overs(part)[-1]) for _, part in each.groupby(seeds, sort=False)]
    family = pd.concat([paired(part, protocol, over, images).assign(over=over) for part, over in parts], ignore_index=True)
    family["p_holm"] = holm(family["p"].to_numpy())
    return family.assign(verdict=[verdict(row) for row in family.itertuples()])


def interval_of(replicates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the interval of every method; replicates [1 + draws, methods], the estimate first."""
    return tuple(np.quantile(replicates[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0))


def verdict(row) -> str:
    """Of a row with ``images``, ``p_holm`` and ``gain``: no word for a difference that its corrected test does not carry."""
    if row.images < LEAST:
        return FEW
    if not row.p_holm <= 1 - LEVEL:
        return UNDECIDED
    return HELPS if row.gain > 0 else HURTS


def differences(rows: pd.DataFrame) -> pd.DataFrame:
    """Average ranks (1 is best) with the critical difference: ``kind`` of clients ("all" for methods that all kinds have), method, rank,
    number of blocks and methods, ``friedman`` (p-value) and ``critical`` (difference at 5 %). Kinds with fewer than two blocks or three
    methods are left out."""
    groups, each, frames = groups_of(rows), gains(rows), []
    if len(groups) > 1:
        shared = [method for method in next(iter(groups.values()))[1] if all(method in methods for _, methods in groups.values())]
        groups = groups | {"all": ([name for protocols, _ in groups.values() for name in protocols], shared)}
    for kind, (protocols, methods) in groups.items():
        own = each[each["setting"].isin(protocols) & each["method"].isin(methods)]
        own = own.assign(group=own["setting"].map(lambda name: TOGETHER.get(name, name)))
        # A client's tests, then clients, then the protocols of a group.
        levels = ["group", "seed", "method", "setting", "client"]
        means = own.groupby(levels, sort=False)["accuracy"].mean()
        for depth in (4, 3):
            means = means.groupby(levels[:depth], sort=False).mean()
        blocks = means.unstack("method")[methods].to_numpy() if len(own) else np.empty((0, 0))
        if len(blocks) < 2 or len(methods) < 3:
            continue
        frame = pd.DataFrame({"kind": kind, "method": methods, "rank": average_ranks(blocks)})
        frame = frame.assign(blocks=len(blocks), n_methods=len(methods), n_seeds=own["seed"].nunique())
        frames.append(frame.assign(friedman=friedmanchisquare(*blocks.T).pvalue, critical=critical_difference(*blocks.shape)))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def average_ranks(blocks: np.ndarray) -> np.ndarray:
    """Average over blocks [n, methods] of the rank within each, 1 for the highest value, ties shared."""
    return rankdata(-blocks, axis=1).mean(0)


def critical_difference(n_blocks: int, n_methods: int) -> float:
    """Nemenyi's: two average ranks further apart than this differ, all pairs taken together."""
    return studentized_range.ppf(LEVEL, n_methods, np.inf) / np.sqrt(2) * np.sqrt(n_methods * (n_methods + 1) / (6 * n_blocks))
