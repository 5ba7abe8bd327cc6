"""Time and memory against the number of clients, the length of a stream and the number of classes, with fitted exponents."""

from fedlib.adapt import btfl, fedthe, t3a
from fedlib.core import Client
from fedlib.models import state_of
from fedlib.train.fedavg import FedAvg
from tests.benchmarks.local import noise, task_of
from tests.benchmarks.measure import exponent, fastest, peak_mib
from tests.benchmarks.streams import ENTROPIES, draws, tables

CLIENTS, LENGTHS, CLASSES = (10, 32, 100, 316, 1000), (100, 1000, 10_000, 100_000), (10, 32, 100, 316, 1000)


def federated_round(n_clients: int, cohort: int | None):
    """One round of FedAvg with an MLP, 32 samples a client; cohort: how many take part (None: all)."""
    task = task_of("mlp", (1, 8, 8))
    parts = noise(n_clients, 32, (1, 8, 8))
    members = [Client(k, part, part.head(0)) for k, part in enumerate(parts)]
    server, chosen = {"model": state_of(task.model)}, members[:cohort]
    return lambda: FedAvg().aggregate(task, server, FedAvg().update(task, server, chosen, 1), chosen, 1)


def stream(method: str, n: int, classes: int = 10):
    """One stream of ``n`` samples through a whole-stream solver."""
    features, *logits, first, second = draws(n, classes=classes)
    if method == "T3A":
        weight = draws(classes)[0]
        return lambda: t3a.predict(features, weight, filter_k=50)
    if method == "BTFL":
        own = tables()
        return lambda: btfl.interpolate(features, *logits, *own, **ENTROPIES)
    return lambda: fedthe.ensemble(features, *logits, first, second)


STREAMS = ("FedTHE", "BTFL", "T3A")
STUDIES = {
    ("FedAvg round, all clients", "clients"): (CLIENTS, lambda n: federated_round(n, None)),
    ("FedAvg round, 10 of the clients", "clients"): (CLIENTS, lambda n: federated_round(n, 10)),
    **{(m, "stream length"): (LENGTHS, lambda n, m=m: stream(m, n)) for m in STREAMS},
    **{(m, "classes"): (CLASSES, lambda c, m=m: stream(m, 1000, c)) for m in STREAMS},
}


def rows() -> list[dict]:
    result = []
    for (case, against), (sizes, make) in STUDIES.items():
        works = [make(size) for size in sizes]
        memory = [peak_mib(work) for work in works]
        seconds = [fastest({"": work}, repeats=3)[""] for work in works]
        fitted = {"time_exponent": exponent(sizes, seconds), "memory_exponent": exponent(sizes, memory)}
        result += [
            {"case": case, "against": against, "size": size, "seconds": s, "peak_mib": m} | fitted
            for size, s, m in zip(sizes, seconds, memory, strict=True)
        ]
    return result
