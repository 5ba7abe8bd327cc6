"""Splits of a data set's indices over clients.

`dirichlet` (FedTHE, section 5: BRFL), `step` (ATP, section 6 and appendix C.1), `shards`, `superclass` and `dirichlet_classwise` (UPFL,
section 4), `iid`, `stratified`, `by_group`; `natural_split` deals a shifted set by the clients' label histograms (FedTHE, appendix D).
All return a list with one int64 index array per client. The parts are disjoint, and complete unless the docstring names a remainder. A
generator argument ``rng`` is a NumPy `Generator` or a legacy `RandomState`; the papers' own partitions need the latter, with the seed
named here.

Paper and code. The FedTHE paper describes a Dirichlet draw per client; its code draws inside groups of ten clients, rejects uneven
draws and then cuts the lists into equal chunks, which gives other clients. `dirichlet` is the code's draw, the one behind the published
numbers. `dirichlet_classwise` is the plain draw.
"""

from collections.abc import Sequence

import numpy as np

Rng = np.random.Generator | np.random.RandomState
GROUP = 10  # BRFL draws its Dirichlet lists inside groups of this many clients


def dirichlet(labels: np.ndarray, n_clients: int, alpha: float, rng: Rng, *, max_tries: int = 10_000) -> list[np.ndarray]:
    """BRFL's draw: equal sizes, label skew Dir(``alpha``). FedTHE's CIFAR-10 partition is RandomState(7000).

    Rows are shuffled and cut into groups of ten clients; in each group every class is spread by Dirichlet shares over the lists that
    are not yet full, and a draw is repeated while some list has under half its due size. All lists are then joined and cut into
    ``n_clients`` equal chunks. The last n mod n_clients samples of the joined list stay unused. Two or three classes hardly ever
    fill ten lists by halves: where ``max_tries`` draws fail, their groups are twice as many clients as there are classes.

    Raises ValueError when ``max_tries`` draws of a group are rejected: a tiny ``alpha`` with few classes or few samples.
    """
    labels = _checked(labels, n_clients)
    # The code shuffles the clients' equal size fractions first. Only the random state notices.
    rng.shuffle([1 / n_clients] * n_clients)
    order = np.arange(len(labels))
    rng.shuffle(order)
    few = 2 * (int(labels.max()) + 1)
    try:
        return _in_groups(GROUP, labels, order, n_clients, alpha, rng, max_tries)
    except ValueError:
        if few > 6:
            raise
        return _in_groups(few, labels, order, n_clients, alpha, rng, max_tries)


def _in_groups(group: int, labels: np.ndarray, order: np.ndarray, n_clients: int, alpha: float, rng: Rng, max_tries: int) -> list:
    """``dirichlet`` with ``group`` lists at a time, the rows in ``order``."""
    n, classes, joined = len(labels), np.arange(int(labels.max()) + 1), []
    for first in range(0, n_clients, group):
        n_lists = min(group, n_clients - first)
        width = int(group / n_clients * n)
        start = first // group * width
        rows = order[start : start + width] if first + group < n_clients else order[start:]
        by_class = [rows[labels[rows] == c] for c in classes]
        for _ in range(max_tries):
            cuts = _dirichlet_cuts([len(members) for members in by_class], n_lists, alpha, rng)
            if cuts is not None:
                break
        else:
            raise ValueError(
                f"no Dirichlet({alpha}) draw in {max_tries} gave each of {n_clients} clients half of its {n // n_clients} of {n} samples; "
                "raise alpha, or take fewer clients or more data"
            )
        pieces = [np.split(members, cut) for members, cut in zip(by_class, cuts, strict=True)]
        joined += [piece for of_one_list in zip(*pieces, strict=True) for piece in of_one_list]
    size = n // n_clients
    return list(np.concatenate(joined)[: size * n_clients].reshape(n_clients, size))


def _dirichlet_cuts(class_sizes: list[int], n_lists: int, alpha: float, rng: Rng) -> list[np.ndarray] | None:
    """One attempt at a group: the cut points of each class, or None if some list got under half its due size."""
    due = sum(class_sizes) / n_lists
    filled = np.zeros(n_lists, int)
    cuts = []
    for size in class_sizes:
        shares = rng.dirichlet(np.full(n_lists, alpha)) * (filled < due)
        # All shares on full lists happens at tiny alpha only; the code divides 0 by 0 there.
        if size and not shares.sum() > 0:
            return None
        cut = (np.cumsum(shares / shares.sum()) * size).astype(int)[:-1] if size else np.zeros(n_lists - 1, int)
        filled += np.diff(cut, prepend=0, append=size)
        cuts.append(cut)
    return cuts if filled.min() >= int(0.5 * sum(class_sizes) / n_lists) else None


def dirichlet_classwise(labels: np.ndarray, n_clients: int, alpha: float, rng: Rng) -> list[np.ndarray]:
    """Plain Dirichlet split, very unequal sizes: class by class, client i takes floor(p_i n_class) samples, p ~ Dir(``alpha``).

    The remainder of each class (under ``n_clients`` samples) stays unused; a client may be left with nothing. UPFL's drift study is
    RandomState(24): first the training set, then, with the same generator, the test set.
    """
    labels = _checked(labels, n_clients)
    parts = [[] for _ in range(n_clients)]
    for c in range(int(labels.max()) + 1):
        members = shuffled(np.flatnonzero(labels == c), rng)
        sizes = np.floor(rng.dirichlet(np.full(n_clients, alpha)) * len(members)).astype(int)
        for part, piece in zip(parts, np.split(members, np.cumsum(sizes))[:-1], strict=True):
            part.append(piece)
    return [np.concatenate(part) for part in parts]


def step(labels: np.ndarray, majors: Sequence[tuple[int, ...]], factor: float, rng: Rng, n_classes: int | None = None) -> list[np.ndarray]:
    """ATP's step partition: client c weighs each class 1, plus ``factor`` - 1 for every time the class is in ``majors[c]``.

    Each class is shuffled and cut in proportion to the clients' weights, rounding half up; a client's indices are ordered by class.
    ``factor`` 1 gives every client the same label distribution (the paper's feature shift). n_classes: of which some may have no image
    here (None: as many as the labels show).
    """
    if not factor >= 1:
        raise ValueError(f"factor must be at least 1, got {factor}")
    labels = _checked(labels, len(majors))
    n_classes = n_classes or int(labels.max()) + 1
    weights = np.ones((len(majors), n_classes))
    for client, classes in enumerate(majors):
        for c in classes:
            if not 0 <= c < n_classes:
                raise ValueError(f"client {client} has major class {c}; the labels are 0..{n_classes - 1}")
            weights[client, c] += factor - 1
    parts = [[] for _ in majors]
    for c in range(n_classes):
        members = shuffled(np.flatnonzero(labels == c), rng)
        edges = np.floor(np.cumsum(weights[:, c] / weights[:, c].sum()) * len(members) + 0.5).astype(int)
        for part, piece in zip(parts, np.split(members, edges[:-1]), strict=True):
            part.append(piece)
    return [np.concatenate(part) for part in parts]


def step_majors(n_clients: int, n_classes: int) -> list[tuple[int, int]]:
    """Major classes of each client for `step`.

    300 clients and 10 classes (ATP's CIFAR-10): three clients for each of the 100 ordered pairs, equal pairs included. Otherwise
    client c has s = c mod C and (s + 1 + 2 (c div C)) mod C, which are ATP's majors for CIFAR-100 (300 clients), Digits-5 (10 per domain)
    and PACS (7 per domain); other sizes are no case of the paper. The odd steps from s start again before one of them is C. Two classes
    have one pair, which would make all clients alike: each of them is a client's only major in turn. ValueError for fewer classes.
    """
    if n_classes < 2:
        raise ValueError(f"majors are two of the classes: there must be two at least, got {n_classes}")
    if n_classes == 2:
        return [(client % 2, client % 2) for client in range(n_clients)]
    if (n_clients, n_classes) == (300, 10):
        return [divmod(client // 3, 10) for client in range(n_clients)]
    rounds_and_first = [divmod(client, n_classes) for client in range(n_clients)]
    return [(first, (first + 1 + 2 * turn % (n_classes - n_classes % 2)) % n_classes) for turn, first in rounds_and_first]


def shards(labels: np.ndarray, n_clients: int, per_client: int, rng: Rng, *, distinct: bool = True, shuffler=None) -> list[np.ndarray]:
    """Pathological split (UPFL): a client gets ``per_client`` shards. Every class is cut, in order, into contiguous shards of equal size;
    what is left over at its end goes one sample each to the first shards. Where the classes do not share all shards evenly, as they do in
    the paper, the first classes are cut into one more.

    distinct: a client's classes are drawn without repetition among those left, as long as that many are left (UPFL's CIFAR-10,
    rng = RandomState(24)). Otherwise a deck of class names is shuffled by ``shuffler`` (default ``rng``) and dealt, so a client may get
    one class twice (its MNIST and Fashion-MNIST; shuffler = random.Random(24)).

    A class without images has no shards. Raises ValueError if there are fewer shards than classes.
    """
    labels = np.unique(_checked(labels, n_clients), return_inverse=True)[1]
    n_classes = int(labels.max()) + 1
    per_class, rest = divmod(n_clients * per_client, n_classes)
    if not per_class:
        least = -(-n_classes // per_client)
        raise ValueError(f"{n_clients} clients x {per_client} shards are too few for {n_classes} classes: take at least {least} clients")
    left = [_equal_shards(np.flatnonzero(labels == c), per_class + (c < rest)) for c in range(n_classes)]
    deck = list(range(n_classes)) * per_class + list(range(rest))
    if not distinct:
        (shuffler or rng).shuffle(deck)
    parts = []
    for client in range(n_clients):
        classes = [] if distinct else deck[client * per_client : (client + 1) * per_client]
        while len(classes) < per_client:
            available = [c for c in range(n_classes) if len(left[c]) > classes.count(c)]
            take = min(per_client - len(classes), len(available))
            classes += rng.choice(available, take, replace=False).tolist()
        # Not rng.integers: a legacy generator draws a whole permutation here, and the published partition comes from it.
        parts.append(np.concatenate([left[c].pop(rng.choice(len(left[c]), replace=False)) for c in classes]))
    return parts


def _equal_shards(members: np.ndarray, n_shards: int) -> list[np.ndarray]:
    whole = len(members) // n_shards * n_shards
    pieces = list(members[:whole].reshape(n_shards, whole // n_shards))
    return [np.append(piece, members[whole + i : whole + i + 1]) for i, piece in enumerate(pieces)]


def iid(labels: np.ndarray, n_clients: int, rng: Rng) -> list[np.ndarray]:
    """Uniform random split; sizes differ by at most one."""
    return np.array_split(rng.permutation(len(_checked(labels, n_clients))), n_clients)


def stratified(labels: np.ndarray, n_parts: int, rng: Rng) -> list[np.ndarray]:
    """Deal the samples of every class evenly, in random order, to ``n_parts`` parts; sizes per class differ by at most one.

    The deal runs on from class to class, so that the parts' total sizes differ by at most one as well. Returns sorted index arrays.
    """
    order = rng.permutation(len(_checked(labels, n_parts)))
    order = order[np.argsort(labels[order], kind="stable")]
    return [np.sort(order[part::n_parts]) for part in range(n_parts)]


def superclass(groups: np.ndarray, n_clients: int, rng: Rng) -> list[np.ndarray]:
    """Every superclass is shuffled and shared by ``n_clients`` / (number of superclasses) consecutive clients (UPFL's CIFAR-100).

    groups: superclass of each sample. Raises ValueError if the superclasses cannot all have equally many clients.
    """
    groups = _checked(groups, n_clients)
    n_groups = int(groups.max()) + 1
    share, rest = divmod(n_clients, n_groups)
    if rest or not share:
        raise ValueError(f"{n_clients} clients cannot be shared evenly by {n_groups} superclasses: take a multiple of {n_groups}")
    return [part for g in range(n_groups) for part in np.array_split(shuffled(np.flatnonzero(groups == g), rng), share)]


def by_group(groups: np.ndarray) -> list[np.ndarray]:
    """One client per domain or writer, in the order of the group numbers that occur."""
    return [np.flatnonzero(groups == g) for g in np.unique(groups)]


def natural_split(histograms: np.ndarray, shifted_labels: np.ndarray) -> list[np.ndarray]:
    """Deal a shifted data set so that each client's share follows its own label histogram (FedTHE, CIFAR-10.1).

    histograms: class counts [clients, classes] of the clients' own data. Client k gets floor(H[k,c] (N/C) / sum_k H[k,c]) consecutive
    samples of class c, clients in order; the rest stays unused. A class with under N/C samples runs out before the last clients.
    """
    histograms = np.asarray(histograms)
    n, n_classes = len(shifted_labels), histograms.shape[1]
    if n and not 0 <= np.min(shifted_labels) <= np.max(shifted_labels) < n_classes:
        raise ValueError(f"shifted labels must lie in 0..{n_classes - 1}, the classes of the histograms")
    counts = np.floor(histograms * (n / n_classes) / np.maximum(histograms.sum(axis=0), 1)).astype(int)
    edges = np.cumsum(counts, axis=0)
    pieces = [np.split(np.flatnonzero(shifted_labels == c), edges[:, c])[:-1] for c in range(n_classes)]
    return [np.concatenate(of_client) for of_client in zip(*pieces, strict=True)]


def _checked(labels: np.ndarray, n_clients: int) -> np.ndarray:
    labels = np.asarray(labels)
    if not 1 <= n_clients <= len(labels):
        raise ValueError(f"cannot split {len(labels)} samples over {n_clients} clients: take from 1 to {len(labels)} clients, or more data")
    return labels


def shuffled(index: np.ndarray, shuffler) -> np.ndarray:
    """``index`` in an order drawn by ``shuffler``, a `random.Random` or a generator of NumPy's."""
    # A list, since random.Random.shuffle and NumPy's shuffle both take one and NumPy draws the same for a list as for an array.
    items = index.tolist()
    shuffler.shuffle(items)
    return np.array(items, dtype=np.int64)
