"""Who leads in the comparison: gains over no adaptation and places among the methods, with intervals.

Only what can be compared is ranked. A method takes part among clients of a kind (what they bring: labels, or nothing) if it has run on
every protocol of that kind and on ``LEAST`` different test images of each, so that mean places of one kind are over the same protocols for
all. BRFL and BTGFL have the same clients and trainings and count as one protocol between them.

Intervals are percentiles of a bootstrap whose replicates are first set off further from the estimate: with few clients or seeds they
lie too close to it (``stretch``). Places are those of the set-off replicates. rliable's stratified bootstrap would not do: it draws
runs within tasks, has no clients within a run, and does nothing for few.
"""

import numpy as np
import pandas as pd
from scipy.stats import norm, rankdata, t

from fedlib.published.units import different, units_of, widening
from fedlib.tools.seeding import numpy_generator

LEVEL = 0.95  # of every interval and test
LEAST = 200
# Protocols whose clients are others with every seed.
REDRAWN = ("BRFL", "BTGFL", "FedICON attribute")
# Protocols with the same clients, which are drawn together: a client that is hard in one is hard in the other.
TOGETHER = {"BTGFL": "BRFL", "TTPFL feature": "TTPFL", "TTPFL label": "TTPFL", "TTPFL hybrid": "TTPFL"}
# Protocols that share one vote.
VOTE = {"BTGFL": "BRFL"}
SAME_TEST = ("FedICON domain",)  # all clients are tested on the same images
MEAN = "mean"
OVER = ("clients", "clients and seeds")


def distinct(rows: pd.DataFrame) -> pd.Series:
    """Different test images behind the worst column of every (setting, method), within one seed."""
    return different(rows, ["setting", "method", "column", "seed"]).groupby(["setting", "method"], sort=False).min()


def ranked(images: pd.Series, kinds: dict[str, str], none: str) -> dict[str, tuple[list[str], list[str]]]:
    """Kind of clients -> protocols and methods that are ranked there. images: see ``distinct``; none: the method without adaptation,
    which decides whether a protocol has enough images at all."""
    table = images.unstack(fill_value=0)
    found = {}
    for kind in dict.fromkeys(kinds[name] for name in table.index):
        own = table[[kinds[name] == kind for name in table.index]]
        own = own[own.max(axis=1) >= LEAST] if none not in own else own[own[none] >= LEAST]
        methods = [name for name in own if len(own) and (own[name] >= LEAST).all()]
        if methods:
            found[kind] = list(own.index), methods
    return found


def resampled(scores: np.ndarray, draws: int, rng: np.random.Generator, *, seeds: bool = False, redrawn: bool = True) -> np.ndarray:
    """Bootstrap replicates [draws, methods] of the mean over seeds of the mean over clients; scores [seeds, clients, methods].

    Clients are drawn with replacement, the same for all methods; redrawn: every seed has clients of its own, which are drawn anew for it
    (otherwise one draw serves all seeds); seeds: the seeds too are drawn, before the clients."""
    n_seeds, n_clients, _ = scores.shape
    chosen = rng.integers(n_seeds, size=(draws, n_seeds)) if seeds else np.tile(np.arange(n_seeds), (draws, 1))
    counts = rng.multinomial(n_clients, np.full(n_clients, 1 / n_clients), size=(draws, n_seeds if redrawn else 1))
    counts = np.broadcast_to(counts, (draws, n_seeds, n_clients))
    return np.einsum("dsk,dskm->dm", counts / (n_clients * n_seeds), scores[chosen])


def stretch(n: int, df: int) -> float:
    """By how much replicates of ``resampled`` have to be set off further from the estimate where ``n`` units are drawn: the bootstrap's
    variance is (n - 1) / n of what it should be, and Student's t takes the place of the normal distribution. NaN for one unit, which tells
    nothing of its spread: no finite interval would be honest."""
    return np.nan if n < 2 else t.ppf((1 + LEVEL) / 2, df) / norm.ppf((1 + LEVEL) / 2) * np.sqrt(n / (n - 1))


def place(means: np.ndarray) -> np.ndarray:
    """Share of the other methods that do better, in percent, ties half: means [..., methods] -> the same shape; 0 is best. A method whose
    mean is not known (NaN) does not count."""
    others = np.isfinite(means).sum(-1, keepdims=True) - 1
    return 100 * (rankdata(-means, axis=-1, nan_policy="omit") - 1) / np.maximum(1, others)


def ranks(gains: pd.DataFrame, groups: dict[str, tuple[list[str], list[str]]], *, draws: int = 1000) -> pd.DataFrame:
    """Gain and place of every ranked method on every protocol and on average over those of a kind (protocol ``mean``).

    gains: setting, method, seed, column, client, accuracy (in points over no adaptation); groups: see ``ranked``. A client counts with the
    mean over its tests. over: "clients" is for these trainings, "clients and seeds" (with two seeds or more) for others as well. Where an
    interval cannot be had (one client) it is empty. protocols: how many count in the mean.
    """
    parts = []
    for over in overs(gains):
        for kind, (protocols, methods) in groups.items():
            stacks: dict[str, list] = {}
            for name in protocols:
                own = gains[(gains["setting"] == name) & gains["method"].isin(methods)]
                images = shared_images(own, methods)
                replicates = replicated(scores_of(own, methods), name, over, draws=draws, images=images, repeats=repeats_of(own))[0]
                # Places are among the methods whose spread is known, in the estimate as in its replicates.
                finite = np.isfinite(replicates).all(0)
                known = np.where(finite | ~finite.any(), replicates, np.nan)  # with one client there is no spread, and a place all the same
                stack = np.stack([replicates, place(known)])
                stacks.setdefault(VOTE.get(name, name), []).append(stack)
                about = {"protocol": name, "kind": kind, "over": over, "protocols": 1}
                parts += _rows(stack, methods, about)
            votes = [np.mean(shared, 0) for shared in stacks.values()]
            parts += _rows(np.mean(votes, 0), methods, about | {"protocol": MEAN, "protocols": len(votes)})
    return pd.DataFrame(parts).assign(n_seeds=gains["seed"].nunique())


def overs(gains: pd.DataFrame) -> tuple[str, ...]:
    """Over what intervals are drawn: "clients" for these trainings, with two seeds or more "clients and seeds" for others as well."""
    return OVER[: 1 + (gains["seed"].nunique() > 1)]


def scores_of(gains: pd.DataFrame, methods: list[str]) -> np.ndarray:
    """Gains of one protocol -> [seeds, clients, methods]; a client counts with the mean over its tests."""
    wide = gains.pivot_table(index=["seed", "client"], columns="method", values="accuracy", sort=False)[methods]
    return wide.to_numpy().reshape(gains["seed"].nunique(), -1, len(methods))


def shared_images(gains: pd.DataFrame, methods: list[str]) -> np.ndarray | None:
    """Gains of one protocol on every image that all clients share, [images, methods], mean over seeds and clients; NaN for a method that
    has seen fewer images than others. None where they share none, or where the rows do not say which answers were right."""
    if "by_image" not in gains or gains["by_image"].isna().any():
        return None
    means = {method: np.mean(list(own), axis=0) for method, own in gains.groupby("method", sort=False)["by_image"]}
    length = max(map(len, means.values()))
    return np.stack([means[m] if len(means[m]) == length else np.full(length, np.nan) for m in methods], axis=1)


def repeats_of(gains: pd.DataFrame) -> float:
    """``Units.repeats`` of one protocol's tests, of the method that has most; 1 where the rows do not say which images they are on."""
    if "seen" not in gains:
        return 1.0
    return max(units.repeats for units in units_of(gains, ["setting", "method"]))


def replicated(
    scores: np.ndarray, name: str, over: str, *, draws: int, images: np.ndarray | None = None, repeats: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mean of ``scores`` [seeds, clients, methods] on protocol ``name`` and its set-off replicates below it, [1 + draws, methods]; its
    standard errors by what is drawn (seeds, clients, images) [parts, methods], and the degrees of freedom of each [parts].

    Seeds that bring clients of their own hold the clients' spread already. Where all seeds share their clients both are drawn apart, each
    set off for its own number. Where all clients share their test images, these are drawn as well (``images``, of ``shared_images``):
    however many clients repeat a measurement on the same images, it says little of others. Without them there is no error and no interval.
    Where clients share some images with others, their spread counts for more (``repeats``, of ``repeats_of``); that of seeds does not, and
    so knows nothing of the luck in images that all seeds share (CIFAR-10.1 is taken whole by each).
    """
    rng, means = numpy_generator(0, "bootstrap", TOGETHER.get(name, name), over), scores.mean((0, 1))
    n_seeds, n_clients, _ = scores.shape
    if over == OVER[0]:
        redrawn, wider = name in REDRAWN, widening(repeats, n_clients) if name in REDRAWN else 1.0
        replicates = means + wider * (resampled(scores, draws, rng, redrawn=redrawn) - means)
        drawn = [(replicates, n_clients, (n_clients - 1) * (n_seeds if redrawn else 1))]
    elif name in REDRAWN:
        # Draws of two means have three values, too few for places; their clients drawn as well, they err on the safe side.
        of_seeds = scores.mean(1, keepdims=True) if n_seeds > 2 else scores
        drawn = [(resampled(of_seeds, draws, rng, seeds=True), n_seeds, n_seeds - 1)]
    else:
        of_seeds = resampled(scores.mean(1, keepdims=True), draws, rng, seeds=True)
        of_clients = resampled(scores.mean(0, keepdims=True), draws, rng)
        drawn = [(of_seeds, n_seeds, n_seeds - 1), (of_clients, n_clients, n_clients - 1)]
    if name in SAME_TEST:
        shared = np.full((1, scores.shape[-1]), np.nan) if images is None else images
        drawn.append((resampled(shared[None], draws, rng), len(shared), len(shared) - 1))
    away, errors = 0.0, []
    for replicates, n, df in drawn:
        away = away + stretch(n, df) * (replicates - means)
        errors.append((replicates - means).std(axis=0) * (np.sqrt(n / (n - 1)) if n > 1 else np.nan))
    return np.vstack([means, means + away]), np.stack(errors), np.array([max(df, 1) for *_, df in drawn])


def _rows(stack: np.ndarray, methods: list[str], about: dict) -> list[dict]:
    """stack [2, 1 + draws, methods]: gain and place, the estimate first; without an interval where replicates are not finite."""
    ends, rows = [(1 - LEVEL) / 2, (1 + LEVEL) / 2], []
    for m, method in enumerate(methods):
        row = about | {"method": method, "n_methods": len(methods)}
        for name, values in zip(("gain", "place"), stack[:, :, m], strict=True):
            bounds = np.quantile(values[1:], ends) if np.isfinite(values).all() else (np.nan, np.nan)
            row |= {name: values[0], f"{name}_low": bounds[0], f"{name}_high": bounds[1]}
        rows.append(row)
    return rows
