"""The round loop shared by all federated training methods.

Round t = 1..T: the server's state before the round is kept as *received* state t, the cohort trains from it, the server aggregates. The
result is state T + 1. Personal side-cars and evaluation read the received states, so they can be added later without training again.
A run that is interrupted goes on from its last complete round and ends with the same bits, because every draw is derived from (seed,
client, round) and all state is explicit.
"""

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from fedlib.cache.store import DROPPED, Store
from fedlib.core import Client, Server, State, Task, TrainMethod
from fedlib.stages.boundary import called, check_messages, check_server, labelled_of, tensors_of, watched
from fedlib.stages.checks import NotKept, cohort_size
from fedlib.stages.progress import bar
from fedlib.tools.seeding import numpy_generator


def cohorts(n_clients: int, rounds: int, participation: float, seed: int) -> list[list[int]]:
    """Positions of the clients sampled in each round, uniform without replacement; the same for every method of a seed."""
    size = cohort_size(n_clients, participation)
    if size == n_clients:
        return [list(range(n_clients))] * rounds
    rng = numpy_generator(seed, "cohorts", n_clients)
    return [sorted(rng.choice(n_clients, size, replace=False).tolist()) for _ in range(rounds)]


FINAL_ONLY = "this method keeps what its clients hold for the final model only: ask for round -1, not {}"


@dataclass(frozen=True)
class Trajectory:
    """The server states of one federated training, on disk or in memory, and whether the cache held them.

    sources: positions of the source clients among all; cohorts: positions among the source clients, per round. ``state(t)``, t = 1..T+1:
    the server's state before round t. ``received(t)``: the model each client works with in round t, with the parts of it that stay with the
    client (group ``client_model``) in place; source clients outside the cohort still hold the previous round's.
    """

    rounds: int
    sources: list[int]
    cohorts: list[list[int]]
    load: Callable[[int], Server]
    cached: bool

    def state(self, round: int) -> Server:
        if not 1 <= round <= self.rounds + 1:
            raise ValueError(f"round {round} is outside 1..{self.rounds + 1}")
        return self.load(round)

    def received(self, round: int, n_clients: int) -> list[State]:
        server = self.state(round)
        current = server["model"]
        if own := server.get("client_model"):
            rows = {k: {name: stack[row] for name, stack in own.items()} for row, k in enumerate(self.sources)}
            return [current | rows.get(k, {}) for k in range(n_clients)]
        if round > self.rounds or len(self.cohorts[round - 1]) == len(self.sources) or round == 1:
            return [current] * n_clients
        previous, left_out = self.state(round - 1)["model"], set(self.sources) - {self.sources[i] for i in self.cohorts[round - 1]}
        return [previous if k in left_out else current for k in range(n_clients)]


def run(
    task: Task,
    method: TrainMethod,
    clients: Sequence[Client],
    store: Store,
    key: str,
    manifest: dict,
    *,
    evaluated: Sequence[int] = (),
    progress: bool = True,
) -> Trajectory:
    """Train ``method`` on the source clients for the schedule's rounds, resuming from what ``store`` holds under ``key``.

    evaluated: rounds whose states are going to be read; NotKept before training for one whose client groups the store does not keep.

    Raises FloatingPointError, naming round and client, when a local update is no longer finite, unless the schedule's local phase drops
    such clients out of the round and some are left.
    """
    sources = [k for k, client in enumerate(clients) if client.source]
    # Nobody trains on tests, and the key of a training does not know them.
    clients = [replace(clients[k], tests={}) for k in sources]
    rounds = task.schedule.rounds
    sampled = cohorts(len(clients), rounds, task.schedule.participation, task.seed)
    kept = [t for t in range(1, rounds + 2) if (t - 1) % task.schedule.save_every == 0 or t == rounds + 1]
    whole_run = getattr(method, "whole_run", False)
    memory: dict[int, Server] = {}

    def train(asked: int = 0) -> bool:
        """Go on from what the store holds; whether there was anything to do. asked: the round whose state has to be there afterwards."""
        with store.lock("train", key):
            dropped = set(store.dropped("train", key))
            missed = f"round-{asked:05d}" in dropped.difference(store.names("train", key))
            done, server = _latest(store, key, kept, whole_run, set() if missed else dropped)
            if done == rounds + 1:
                return False
            if server is None:
                if dropped:
                    what = f"its round {asked} is needed" if asked else "it has to continue"
                    warnings.warn(f"training {key} starts over: {what}, but its states were dropped to save space", stacklevel=2)
                done, who = 1, f"{type(method).__name__} (before round 1)"
                with watched(task, labelled_of(clients), who), called(method, who) as own:
                    server = check_server(own.init(task, clients), who)
                if "client_model" in server and not whole_run:
                    raise ValueError(f"{who}: a method that keeps client_model needs whole_run = True, to continue where it stopped")
                _save(store, key, 1, server, manifest)
            if store.root is None:
                memory[1] = server
            early = [t for t in evaluated if t <= rounds]
            if early and whole_run and store.root is not None and _flatten(server, per_client=True):
                raise NotKept(f"{type(method).__name__}: {FINAL_ONLY.format(early[0])}")
            previous = done
            what = f"{type(method).__name__}, {len(sampled[0])} of {len(clients)} clients a round"
            for t in bar(range(done, rounds + 1), what, shown=progress, total=rounds, initial=done - 1, unit="round"):
                cohort = [clients[k].redrawn(task.generator("resplit", "local", clients[k].id, t)) for k in sampled[t - 1]]
                server = _after(task, method, server, cohort, t)
                if t + 1 in kept:
                    _save(store, key, t + 1, server, manifest, previous)
                    previous = t + 1
                    if store.root is None:
                        memory[t + 1] = server
            # Until then those who read later rounds alone need nothing trained.
            if dropped and dropped <= set(store.names("train", key)):
                (store.folder("train", key) / DROPPED).unlink(missing_ok=True)
        return True

    # Recipes of one group ask for the same few rounds in turn; one object per round lets them share its frozen features.
    @functools.lru_cache(maxsize=4)
    def load(t: int) -> Server:
        if t not in kept:
            raise ValueError(f"the state before round {t} is not kept with save_every={task.schedule.save_every}: evaluate at {kept}")
        if t in memory:
            return memory[t]
        if (server := _read(store, key, t, whole_run)) is None:
            train(t)  # it was damaged, and is set aside now, or dropped
            server = _read(store, key, t, whole_run)
        if server is None:
            raise RuntimeError("a training state vanished from the cache while it was in use: run again to recompute it")
        return server

    # A complete training is not locked, so that a cache that may not be written serves as well, and not read before a state is asked for.
    wanted = {f"round-{t:05d}" for t in kept} | ({f"clients-{rounds + 1:05d}"} if whole_run and _keeps_clients(store, key) else set())
    cached = wanted <= {*store.names("train", key), *store.dropped("train", key)} or not train()
    return Trajectory(rounds, sources, sampled, load, cached)


def _after(task: Task, method: TrainMethod, server: Server, cohort: list[Client], round: int) -> Server:
    """The server's state after ``cohort`` has trained in ``round``; who diverged is left out, or an error, as the schedule says."""
    who = f"{type(method).__name__} (round {round})"
    held = {name: tensor for group, state in server.items() for name, tensor in tensors_of(f"the server's {group}", state).items()}
    with watched(task, labelled_of(cohort), who, counted=held):
        with called(method, who) as own:
            messages = check_messages(own.update(task, server, cohort, round), who, len(cohort))
        cohort, messages = _finite(task, messages, cohort, round)
        with called(method, who) as own:
            return check_server(own.aggregate(task, server, messages, cohort, round), who, before=server)


def _finite(task: Task, messages: list[State], cohort: Sequence[Client], round: int) -> tuple[list[Client], list[State]]:
    """The clients whose messages are finite, and their messages."""
    finite = []
    for client, message in zip(cohort, messages, strict=True):
        bad = [name for name, tensor in message.items() if tensor.is_floating_point() and not torch.isfinite(tensor).all()]
        if not bad:
            finite.append((client, message))
        elif task.schedule.local.diverged == "raise" or (client is cohort[-1] and not finite):
            raise FloatingPointError(
                f"training diverged: client {client.id}, round {round}, {bad[0]} is not finite. Lower the learning rate or clip gradients"
            )
    return [client for client, _ in finite], [message for _, message in finite]


def _flatten(server: Server, per_client: bool) -> dict[str, torch.Tensor]:
    groups = {g: state for g, state in server.items() if g.startswith("client_") == per_client}
    return {f"{group}/{name}": tensor for group, state in groups.items() for name, tensor in state.items()}


def unflatten(tensors: dict[str, torch.Tensor]) -> Server:
    server: Server = {}
    for key, tensor in tensors.items():
        group, name = key.split("/", 1)
        server.setdefault(group, {})[name] = tensor
    return server


def _read(store: Store, key: str, t: int, whole_run: bool) -> Server | None:
    """The state before round ``t`` from the cache, with its client groups where they are still there; None if it cannot be trusted."""
    held = f"clients-{t:05d}" in store.names("train", key)
    per_client = store.load("train", key, f"clients-{t:05d}")
    if per_client is None and whole_run and held:
        return None
    if per_client is None and whole_run and _keeps_clients(store, key):
        raise ValueError(FINAL_ONLY.format(t))
    tensors = store.load("train", key, f"round-{t:05d}")
    return None if tensors is None else unflatten(tensors | (per_client or {}))


def _save(store: Store, key: str, t: int, server: Server, manifest: dict, previous: int = 0) -> None:
    """Client groups first, then the round: a round file without its client file is never trusted. previous: the state saved before.

    A state that is there stays, where no client groups go with it: scores may rest on it, and another processor may round otherwise."""
    per_client, shared, name = _flatten(server, per_client=True), _flatten(server, per_client=False), f"round-{t:05d}"
    there = None if per_client else store.load("train", key, name)
    if there is not None:
        if not (there.keys() == shared.keys() and all(torch.equal(there[n].cpu(), shared[n].cpu()) for n in there)):
            warnings.warn(
                f"training {key}, begun anew, comes out otherwise than its state before round {t} in the cache, as on another processor: "
                "that one stays, and what lives through all rounds rests on the new ones before it. To have all of one training, take "
                "an empty cache",
                stacklevel=2,
            )
        return
    if per_client:
        store.save("train", key, f"clients-{t:05d}", per_client, manifest)
    store.save("train", key, name, shared, manifest)
    if per_client and previous:
        store.remove("train", key, f"clients-{previous:05d}")


def _keeps_clients(store: Store, key: str) -> bool:
    """Whether the training has client groups, also where the only file of theirs was damaged and set aside."""
    return store.root is not None and any(store.folder("train", key).glob("clients-*"))


def _latest(store: Store, key: str, kept: Sequence[int], whole_run: bool, dropped: set[str]) -> tuple[int, Server | None]:
    """The last of the ``kept`` rounds from which the run can go on (0 for none) and its state. All earlier ones must be readable too, or
    ``dropped``.

    A longer run has dropped the client groups of the last one; without them the run is complete all the same unless they are read after it.
    """
    keeps_clients, good, server = _keeps_clients(store, key), 0, None
    for t in kept:
        tensors = store.load("train", key, f"round-{t:05d}")
        if tensors is None and f"round-{t:05d}" in dropped:
            continue
        if tensors is None:
            break
        per_client = store.load("train", key, f"clients-{t:05d}") if keeps_clients else {}
        if per_client is not None or (t == kept[-1] and not whole_run):
            good, server = t, unflatten(tensors | (per_client or {}))
    return good, server
