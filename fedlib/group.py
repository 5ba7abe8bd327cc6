"""One training, and what starts from it: the personal parts of its clients and the scores of its test streams, each cached under the hash
of what determines it.
"""

import functools
import time
from dataclasses import dataclass, field, replace

import torch

from fedlib import federation
from fedlib.cache.manifest import trained_with
from fedlib.cache.store import Store, digest, key_of
from fedlib.core import Benchmark, Output, Personalizer, Recipe, State, Stream, Task
from fedlib.stages.boundary import called, check_output, check_state, labelled_of, tensors_of, watched
from fedlib.stages.checks import at_round
from fedlib.stages.progress import bar
from fedlib.start import Held, carried_name, carried_of, left_before
from fedlib.states import part, slice_of

CHECKPOINT_EVERY = 10


@dataclass(frozen=True)
class Group:
    """What all recipes that start from one training share. Test columns are built once, so that recipes can share frozen features.

    key: of the training; held: the training in a trained federation that this one is, where it starts from one; columns: those built;
    parts: where nothing is cached, the last personal parts by their key."""

    store: Store
    task: Task
    trajectory: federation.Trajectory
    key: str
    benchmark: Benchmark
    progress: bool
    held: Held | None = None
    columns: dict = field(default_factory=dict)
    parts: dict = field(default_factory=dict)

    @functools.cached_property
    def labelled(self) -> str:
        """Digest of what personalisation may read: training and validation parts of all clients, targets included."""
        parts = {f"{c.id}.{part}": getattr(c, part) for c in self.benchmark.clients for part in ("train", "val")}
        return digest({f"{name}.{kind}": t for name, s in parts.items() for kind, t in (("images", s.images), ("labels", s.labels))})

    @property
    def ids(self) -> list[int]:
        """Of the clients, by position."""
        return [client.id for client in self.benchmark.clients]

    def column(self, name: str, limit: int | None) -> tuple[dict[tuple[int, int], Stream], str]:
        """The streams of every (client, draw) of a test column, and the digest of their images."""
        if (name, limit) not in self.columns:
            lanes = [(k, d) for k, client in enumerate(self.benchmark.clients) for d in range(len(client.tests.get(name, ())))]
            streams = {(k, d): self.benchmark.clients[k].stream(name, d, limit) for k, d in lanes}
            self.columns[name, limit] = streams, digest({f"{k}.{d}": stream.images for (k, d), stream in streams.items()})
        return self.columns[name, limit]

    def at(self, round: int) -> int:
        """``round`` of a request (``RECEIVED`` and ``FINAL`` too) as a number."""
        return at_round(round, self.trajectory.rounds)

    def personal_manifest(self, method: Personalizer) -> dict:
        """Everything that determines the personal parts of all clients."""
        manifest = {"train": self.key, "personalize": method, "schedule": self.task.schedule.personal, "data": self.labelled}
        # Parts go by position; the data are in the order of the ids.
        manifest |= {} if self.ids == sorted(self.ids) else {"order": self.ids}
        return manifest if self.task.schedule.participation == 1 else manifest | {"rounds": self.trajectory.rounds}

    def personal(self, recipe: Recipe, round: int) -> State:
        """The personal parts of all clients at ``round``."""
        manifest = self.personal_manifest(recipe.personalize)
        key, name = key_of(manifest), f"round-{round:05d}"
        if (saved := self.store.load("personalize", key, name)) is not None:
            return saved
        if self.held and (saved := self.held.part(manifest, round, self.store.device)) is not None:
            return saved
        if self.store.root is None:
            if self.parts.get(key, ("",))[0] != name:
                self.parts[key] = name, self._fitted(recipe.personalize, round, key, manifest)
            return self.parts[key][1]
        with self.store.lock("personalize", key):
            # Another process may have computed it meanwhile.
            if (saved := self.store.load("personalize", key, name)) is not None:
                return saved
            return self._fitted(recipe.personalize, round, key, manifest)

    def _fitted(self, method: Personalizer, round: int, key: str, manifest: dict) -> State:
        """The personal parts of all clients at ``round``. Persistent ones are replayed from the nearest checkpoint.

        Where the split is drawn anew at every use, every round before ``round`` personalises on a fresh draw (and is kept apart as such),
        and ``round`` itself on the part that its tests leave out, as in the published code.
        """
        # Nobody trains on tests, and the key of a personal part does not know them.
        task, clients = self.task, [replace(client, tests={}) for client in self.benchmark.clients]
        earlier, short = "round" if all(client.pool is None for client in clients) else "redrawn", hasattr(method, "advance")
        done, who = 0 if getattr(method, "persistent", False) else round - 1, f"{type(method).__name__} (before round 1)"
        with watched(task, labelled_of(clients), who), called(method, who) as own:
            personal = check_state(own.init(task, clients), who, "personal parts", len(clients))
        if getattr(method, "persistent", False):
            for after, name in left_before(round, self.store.names("personalize", key), earlier):
                if (state := self.store.load("personalize", key, name)) is not None:
                    done, personal = after, state
                    break
            if self.held:
                done, personal = round - 1, self.held.carried(method, manifest, round, self.store.device)
        ahead = range(done + 1, round + 1)
        for t in bar(ahead, f"{type(method).__name__}, personal", shown=self.progress and len(ahead) > 1, unit="round"):
            holders = [c.redrawn(task.generator("resplit", "personal", c.id, t)) if t < round else c for c in clients]
            if t == round and (carried := carried_of(method, personal)):
                self.store.save("personalize", key, carried_name(round), carried, manifest)
            received, who = self.trajectory.received(t, len(clients)), f"{type(method).__name__} (round {t})"
            with watched(task, labelled_of(holders) | tensors_of("the received model", received[0]), who), called(method, who) as own:
                fit = own.advance if t < round and short else own.fit
                personal = check_state(fit(replace(task, round=t), received, holders, personal, t), who, "personal parts", len(clients))
            if t == round or t % CHECKPOINT_EVERY == 0:
                name = f"round-{t:05d}" if t == round else carried_name(t + 1) if short else f"{earlier}-{t:05d}"
                self.store.save("personalize", key, name, personal, manifest)
        return personal

    def scores(self, recipe: Recipe, round: int, column: str, limit: int | None) -> tuple[dict[tuple[int, int], Output], bool]:
        """Outputs of every (client, draw) of one test column, with its seconds per image among the extras, and
        whether they were cached."""
        streams, images = self.column(column, limit)
        personal_key = key_of(self.personal_manifest(recipe.personalize)) if recipe.personalize else self.key
        manifest = {"personal": personal_key, "round": round, "adapt": recipe.adapt, "schedule": self.task.schedule.personal}
        if self.task.schedule.participation < 1:
            # The model after the last round is everybody's; the same one before a further round is the cohort's only.
            manifest["rounds"] = self.trajectory.rounds
        manifest |= {"column": column, "streams": images} | ({} if self.ids == [*range(len(self.ids))] else {"order": self.ids})
        manifest |= {} if self.task.transform == trained_with(self.task.transform) else {"transform": self.task.transform}
        key = key_of(manifest)
        if (saved := self.store.load("adapt", key, "scores")) is not None:
            return {lane: _unpack(saved, lane) for lane in streams}, True
        with self.store.lock("adapt", key):
            if (saved := self.store.load("adapt", key, "scores")) is not None:
                return {lane: _unpack(saved, lane) for lane in streams}, True
            personal = self.personal(recipe, round) if recipe.personalize else {}
            outputs = self._adapted(recipe, round, column, streams, personal)
            packed = {f"{k}/{d}/{name}": t for (k, d), o in outputs.items() for name, t in {"scores": o.scores, **o.extras}.items()}
            self.store.save("adapt", key, "scores", packed, manifest)
        return outputs, False

    def _adapted(self, recipe: Recipe, round: int, column: str, streams: dict, personal: State) -> dict[tuple[int, int], Output]:
        """What the recipe's adapter makes of every stream, with the seconds per image among the extras."""
        received = self.trajectory.received(round, len(self.benchmark.clients))
        task, outputs, name = replace(self.task, round=round), {}, type(recipe.adapt).__name__
        models = {id(received[k]): tensors_of(f"the received model of client {k}", received[k]) for k, _ in reversed(streams)}
        # Few models serve many streams: reading a large one whole before and after each takes longer than most methods do.
        with watched(task, {n: t for model in models.values() for n, t in model.items()}, f"{name} (test {column}, round {round})"):
            for (k, d), stream in bar(streams.items(), f"{column} streams", shown=self.progress and recipe.costly):
                start = time.perf_counter()
                model, own, who = received[k], slice_of(personal, k), f"{name} (client {k}, test {column}, round {round})"
                handed = {"the stream's images": stream.images} | tensors_of("the personal part", own)
                with watched(task, handed, who, counted=tensors_of("the received model", model)), called(recipe.adapt, who) as adapter:
                    output = check_output(adapter.run(task, model, own, stream), task, stream, who)
                seconds = torch.full((len(stream),), (time.perf_counter() - start) / max(1, len(stream)), dtype=torch.float64)
                outputs[k, d] = Output(output.scores, output.extras | {"seconds": seconds})
        return outputs


def _unpack(saved: State, lane: tuple[int, int]) -> Output:
    tensors = part(saved, f"{lane[0]}/{lane[1]}/")
    return Output(tensors.pop("scores"), tensors)
