"""Experiments: a grid of settings, recipes and seeds becomes one long table.

For every (setting, seed) the benchmark is built once; for every training method in use there is one federated training, shared by all
recipes that start from it. Each stage is cached under the hash of what determines it: training on the training data, model, method,
schedule and engine; the personal part on the training and its own fields; the class scores on both and on the stream. Independent groups
(setting, seed, training method) go to joblib processes with one thread each.
"""

import contextlib
import functools
import operator
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed
from torch.nn.functional import cross_entropy

from fedlib import federation
from fedlib.cache.manifest import training_manifest
from fedlib.cache.store import NotCached, Store, digest, key_of
from fedlib.core import RECEIVED, Benchmark, Clients, Output, Personalizer, Recipe, State, Stream, Task
from fedlib.data import stamps
from fedlib.models import build
from fedlib.results.record import remember
from fedlib.setting import Request, Setting, told_apart
from fedlib.stages.boundary import MethodError, MisbehavedError, called, check_output, check_state, labelled_of, tensors_of, watched
from fedlib.stages.checks import at_round, check_clients, check_given, check_network, check_rounds, check_schedule
from fedlib.stages.engine import Engine, running_on
from fedlib.stages.progress import bar, joint_bar, reported, reports
from fedlib.start import Held, Pretrained, account, begun, carried_name, carried_of, left_before
from fedlib.states import part, slice_of

CHECKPOINT_EVERY = 10


def run(
    settings: Sequence[Setting],
    recipes: Mapping[str, Recipe],
    seeds: Sequence[int],
    *,
    request: Request = Request(),
    cache: str | None = "cache",
    root: str | None = None,
    engine: Engine = Engine(),
    n_jobs: int = 1,
    start: str | Pretrained | None = None,
) -> pd.DataFrame:
    """Run every recipe in every setting for every seed. start: a trained federation (``fedlib.pretrained``) in place of training.

    Returns one row per (setting, method, seed, round, column, draw, client): n samples, which images they are (seen, ``Samples.identity``),
    accuracy in percent, the same (cut_n, cut_accuracy) on the samples that costly recipes see, whether the row itself has seen only these
    (cut), loss (mean cross-entropy of the scores taken as logits), whether the test holds stand-ins, whether training and scores came from
    the cache, seconds that adaptation took when it was computed, and the requested per-sample quantities as arrays.

    >>> import fedlib
    >>> setting = fedlib.Setting("a", fedlib.BRFL("digits", n_clients=4), "mlp_small", fedlib.Schedule(1, fedlib.Local(lr=0.1, epochs=1)))
    >>> len(fedlib.run([setting], fedlib.recipes_of("fedthe", "FedAvg"), [0], request=Request(columns=("original",)), cache=None))
    4
    """
    check_given(settings=settings, recipes=recipes, seeds=seeds, rounds=request.rounds)
    seeds = [operator.index(seed) for seed in seeds]
    results = _each_group(_run_group, settings, recipes, seeds, n_jobs, cache, engine, start, request, root)
    remember(told for _, told in results)
    frame = pd.DataFrame([row for group, _ in results for row in group])
    ranks = {"setting": [setting.label for setting in settings], "method": list(recipes)}
    return frame.sort_values(
        ["setting", "method", "seed", "round"],
        key=lambda values: values.map(ranks[values.name].index) if values.name in ranks else values,
        kind="stable",
        ignore_index=True,
    )


def personal_parts(
    settings: Sequence[Setting],
    recipes: Mapping[str, Recipe],
    seeds: Sequence[int],
    *,
    round: int = RECEIVED,
    cache: str | None = "cache",
    root: str | None = None,
    engine: Engine = Engine(),
    n_jobs: int = 1,
    start: str | Pretrained | None = None,
) -> dict[tuple[str, str, int], State]:
    """What ``run`` hands to the adapters at ``round`` (as in ``Request.rounds``): (setting, method, seed) -> personal part, on the CPU."""
    results = _each_group(_part_group, settings, recipes, seeds, n_jobs, cache, engine, start, round, root)
    return {key: part for group in results for key, part in group.items()}


def look(
    setting: Setting,
    recipe: Recipe,
    seed: int,
    column: str,
    *,
    request: Request = Request(),
    cache: str | None = "cache",
    root: str | None = None,
    engine: Engine = Engine(),
    start: str | Pretrained | None = None,
) -> tuple[Benchmark, dict[tuple[int, int], Output]]:
    """What ``run`` scores at the first of ``request.rounds``: the benchmark, and the outputs of one test column by (position of the client,
    draw), on the CPU. Stages that the cache holds are read, others computed and kept. Raises ValueError for an unknown column."""
    with running_on(engine), _trusted():
        asked, store = replace(request, columns=(column,)), Store(cache, engine.device, start=begun(start, {"": recipe}, [seed]))
        current = _trained(setting, seed, {"": recipe}, asked, root, store, engine, progress=False)
        outputs, _ = _scores(current, recipe, current.at(request.rounds[0]), column, request.costly_samples if recipe.costly else None)
    on_cpu = {lane: Output(o.scores.cpu(), {name: t.cpu() for name, t in o.extras.items()}) for lane, o in outputs.items()}
    return _benchmark(setting.protocol, seed, root), on_cpu


def _each_group(function, settings, recipes, seeds, n_jobs: int, cache: str | None, engine: Engine, start, *asked) -> list:
    """``function`` for every (setting, seed, training method) with the recipes that start from it, in processes; of these, more than
    there are groups share the clients of a round. The first groups that the cache holds whole are read here: processes start slower."""
    start = begun(start, recipes, seeds)
    groups: dict[str, tuple] = {}
    for setting in told_apart(settings):
        for seed in seeds:
            for name, recipe in recipes.items():
                alone = name if start and n_jobs > 1 else None  # with no training to share, each method by itself
                group = key_of({"setting": setting, "label": setting.label, "seed": seed, "train": recipe.train, "method": alone})
                groups.setdefault(group, (setting, seed, {}))[2][name] = recipe
    found = []
    if n_jobs > 1 and cache is not None:
        with contextlib.suppress(NotCached):
            for group in groups.values():
                found.append(function(*group, *asked, Store(cache, engine.device, only_read=True, start=start), engine, False))
    store, rest = Store(cache, engine.device, start=start), list(groups.values())[len(found) :]
    engine = replace(engine, processes=max(engine.processes, n_jobs // max(1, len(rest))))
    left = [(*group, *asked, store, engine) for group in rest]
    if n_jobs == 1 or not left:
        with store.in_use():
            return found + [function(*arguments, True) for arguments in left]
    with store.in_use(), reports(len(left)) as files:
        jobs = [delayed(reported)(file, os.getpid(), function, *arguments, False) for file, arguments in zip(files, left, strict=True)]
        results = Parallel(n_jobs=min(n_jobs, len(jobs)), return_as="generator_unordered")(jobs)
        ended = dict(joint_bar(results, "trainings with their methods", files, total=len(groups), initial=len(found)))
        return found + [ended[file] for file in files]


def make_task(setting: Setting, benchmark: Benchmark, seed: int, engine: Engine, root: str | None = None) -> Task:
    """The task of one setting and seed on the engine's device; root: of published weights."""
    dtype = getattr(torch, engine.dtype)
    model = build(setting.model, benchmark.in_shape, benchmark.n_classes, seed, root).to(engine.device, dtype)
    chunk_size, options = engine.form(setting.model, any(isinstance(layer, torch.nn.Conv2d) for layer in model.modules()))
    form = {"chunk_size": chunk_size, "options": options, "processes": engine.processes if engine.device == "cpu" else 1}
    return Task(model, benchmark.transform, benchmark.n_classes, setting.schedule, seed, dtype=dtype, public=benchmark.public, **form)


@dataclass(frozen=True)
class _Run:
    """What all recipes of a group share. Test columns are built once, so that frozen features can be shared between recipes.

    held: the training in a trained federation that this one is, where it starts from one."""

    store: Store
    task: Task
    trajectory: federation.Trajectory
    key: str
    benchmark: Benchmark
    progress: bool
    held: Held | None = None
    columns: dict = field(default_factory=dict)

    @functools.cached_property
    def labelled(self) -> str:
        """Digest of what personalisation may read: training and validation parts of all clients, targets included."""
        parts = {f"{c.id}.{part}": getattr(c, part) for c in self.benchmark.clients for part in ("train", "val")}
        return digest({f"{name}.{kind}": t for name, s in parts.items() for kind, t in (("images", s.images), ("labels", s.labels))})

    def column(self, name: str, limit: int | None) -> tuple[dict[tuple[int, int], Stream], str]:
        """The streams of every (client, draw) of a test column, and the digest of their images."""
        if (name, limit) not in self.columns:
            lanes = [(k, d) for k, client in enumerate(self.benchmark.clients) for d in range(len(client.tests.get(name, ())))]
            streams = {(k, d): self.benchmark.clients[k].stream(name, d, limit) for k, d in lanes}
            self.columns[name, limit] = streams, digest({f"{k}.{d}": stream.images for (k, d), stream in streams.items()})
        return self.columns[name, limit]

    def at(self, round: int) -> int:
        return at_round(round, self.trajectory.rounds)


def _run_group(
    setting: Setting,
    seed: int,
    recipes: Mapping[str, Recipe],
    request: Request,
    root: str | None,
    store: Store,
    engine: Engine,
    progress: bool,
) -> tuple[list[dict], dict]:
    """One federated training and all recipes that start from it: rows, and the account of what they rest on."""
    with running_on(engine), _trusted():
        current = _trained(setting, seed, recipes, request, root, store, engine, progress)
        rows, wanted = [], [(round, name) for round in request.rounds for name in recipes]
        what = f"{setting.label}, seed {seed}, {len(current.benchmark.clients)} clients"
        for round, name in (shown := bar(wanted, what, shown=progress, unit="method")):
            new = _evaluate(current, name, recipes[name], current.at(round), request)
            shown.set_postfix_str(f"{name} {np.mean([row['accuracy'] for row in new]):.1f} %", refresh=False)
            rows += new
        model = getattr(setting.model, "__name__", setting.model)
        identity = {"setting": setting.label, "dataset": current.benchmark.dataset, "model": model, "seed": seed}
        methods = {n: recipe.personalize for n, recipe in recipes.items() if recipe.personalize}
        parts = {n: (key_of(_personal_manifest(current, method)), method.persistent) for n, method in methods.items()}
        told = account(setting, seed, current.key, current.benchmark.images, parts, rows)
        return [identity | row | {"train_cached": current.trajectory.cached} for row in rows], told


def _part_group(setting, seed, recipes, round, root, store, engine, progress) -> dict[tuple[str, str, int], State]:
    """One federated training and the personal parts that start from it."""
    with running_on(engine), _trusted():
        current = _trained(setting, seed, recipes, Request((round,)), root, store, engine, progress)
        parts = {name: _personal(current, recipe, current.at(round)) for name, recipe in recipes.items()}
        return {(setting.label, name, seed): {n: t.cpu() for n, t in part.items()} for name, part in parts.items()}


def _trained(setting, seed, recipes, request, root, store, engine, progress) -> _Run:
    """The federated training that the recipes have in common, after everything that can be checked before it."""
    benchmark = check_clients(_benchmark(setting.protocol, seed, root), request.columns or ()).to(engine.device)
    check_rounds(asked := [at_round(round, setting.schedule.rounds) for round in request.rounds], setting.schedule)
    check_schedule(recipes, setting.schedule)
    task = make_task(setting, benchmark, seed, engine, root)
    check_network(task, benchmark, recipes)
    method = next(iter(recipes.values())).train
    resolved = replace(engine, chunk_size=task.chunk_size, options=task.options or None)
    manifest = training_manifest(setting, seed, method, benchmark, resolved)
    held = store.start.held(manifest, setting, seed, asked) if store.start else None
    key = held.key if held else key_of(manifest)
    about = {"protocol": type(setting.protocol).__module__.rpartition(".")[2], "images": benchmark.dataset, "setting": setting.label}
    store.note("train", key, about | {"training": type(method).__name__, "seed": seed})
    if held:
        trajectory = held.trajectory(task, benchmark.clients, store.device)
    else:
        trajectory = federation.run(task, method, benchmark.clients, store, key, manifest, progress=progress)
    return _Run(store, task, trajectory, key, benchmark, progress, held)


def _benchmark(protocol: Clients, seed: int, root: str | None) -> Benchmark:
    """The benchmark of a protocol and seed; each process keeps two, which the next groups usually share."""
    return _built((key_of({"protocol": protocol}), stamps(protocol)), protocol, seed, root)


@functools.lru_cache(maxsize=2)
def _built(identity: tuple, protocol: Clients, seed: int, root: str | None) -> Benchmark:
    """identity: tells a user's protocol from itself before a constant or images that it names were changed."""
    return protocol.build(seed, root)


def _personal_manifest(run: "_Run", method: Personalizer) -> dict:
    """Everything that determines the personal parts of all clients."""
    manifest = {"train": run.key, "personalize": method, "schedule": run.task.schedule.personal, "data": run.labelled}
    return manifest if run.task.schedule.participation == 1 else manifest | {"rounds": run.trajectory.rounds}


def _personal(run: "_Run", recipe: Recipe, round: int) -> State:
    """The personal parts of all clients at ``round``."""
    manifest = _personal_manifest(run, recipe.personalize)
    key, name = key_of(manifest), f"round-{round:05d}"
    if (saved := run.store.load("personalize", key, name)) is not None:
        return saved
    if run.held and (saved := run.held.part(manifest, round, run.store.device)) is not None:
        return saved
    with run.store.lock("personalize", key):
        # Another process may have computed it meanwhile.
        if (saved := run.store.load("personalize", key, name)) is not None:
            return saved
        return _fitted(run, recipe.personalize, round, key, manifest)


def _fitted(run: "_Run", method: Personalizer, round: int, key: str, manifest: dict) -> State:
    """The personal parts of all clients at ``round``. Persistent ones are replayed from the nearest checkpoint.

    Where the split is drawn anew at every use, every round before ``round`` personalises on a fresh draw (and is kept apart as such), and
    ``round`` itself on the part that its tests leave out, as in the published code.
    """
    task, clients = run.task, run.benchmark.clients
    earlier, short = "round" if all(client.pool is None for client in clients) else "redrawn", hasattr(method, "advance")
    done, who = 0 if method.persistent else round - 1, f"{type(method).__name__} (before round 1)"
    with watched(task, labelled_of(clients), who), called(method, who) as own:
        personal = check_state(own.init(task, clients), who, "personal parts", len(clients))
    if method.persistent:
        for after, name in left_before(round, run.store.names("personalize", key), earlier):
            if (state := run.store.load("personalize", key, name)) is not None:
                done, personal = after, state
                break
        if run.held:
            done, personal = round - 1, run.held.carried(method, manifest, round, run.store.device)
    for t in bar(range(done + 1, round + 1), f"{type(method).__name__}, personal", shown=run.progress and round > done + 1, unit="round"):
        holders = [c.redrawn(task.generator("resplit", "personal", c.id, t)) if t < round else c for c in clients]
        if t == round and (carried := carried_of(method, personal)):
            run.store.save("personalize", key, carried_name(round), carried, manifest)
        received, who = run.trajectory.received(t, len(clients)), f"{type(method).__name__} (round {t})"
        with watched(task, labelled_of(holders) | tensors_of("the received model", received[0]), who), called(method, who) as own:
            fit = own.advance if t < round and short else own.fit
            personal = check_state(fit(replace(task, round=t), received, holders, personal, t), who, "personal parts", len(clients))
        if t == round or t % CHECKPOINT_EVERY == 0:
            name = f"round-{t:05d}" if t == round else carried_name(t + 1) if short else f"{earlier}-{t:05d}"
            run.store.save("personalize", key, name, personal, manifest)
    return personal


def _scores(run: "_Run", recipe: Recipe, round: int, column: str, limit: int | None) -> tuple[dict[tuple[int, int], Output], bool]:
    """Outputs of every (client, draw) of one test column, with the seconds each took among the extras, and whether they were cached."""
    streams, images = run.column(column, limit)
    personal_key = key_of(_personal_manifest(run, recipe.personalize)) if recipe.personalize else run.key
    manifest = {"personal": personal_key, "round": round, "adapt": recipe.adapt, "schedule": run.task.schedule.personal}
    if run.task.schedule.participation < 1:
        # The model after the last round is everybody's; the same one before a further round is the cohort's only.
        manifest["rounds"] = run.trajectory.rounds
    manifest |= {"column": column, "streams": images}
    key = key_of(manifest)
    if (saved := run.store.load("adapt", key, "scores")) is not None:
        return {lane: _unpack(saved, lane) for lane in streams}, True
    with run.store.lock("adapt", key):
        if (saved := run.store.load("adapt", key, "scores")) is not None:
            return {lane: _unpack(saved, lane) for lane in streams}, True
        personal = _personal(run, recipe, round) if recipe.personalize else {}
        outputs = _adapted(run, recipe, round, column, streams, personal)
        packed = {f"{k}/{d}/{name}": t for (k, d), o in outputs.items() for name, t in {"scores": o.scores, **o.extras}.items()}
        run.store.save("adapt", key, "scores", packed, manifest)
    return outputs, False


def _adapted(run: "_Run", recipe: Recipe, round: int, column: str, streams: dict, personal: State) -> dict[tuple[int, int], Output]:
    """What the recipe's adapter makes of every stream, with the seconds per image among the extras."""
    received = run.trajectory.received(round, len(run.benchmark.clients))
    task, outputs, name = replace(run.task, round=round), {}, type(recipe.adapt).__name__
    models = {id(received[k]): tensors_of(f"the received model of client {k}", received[k]) for k, _ in reversed(streams)}
    # Few models serve many streams: reading a large one whole before and after each takes longer than most methods do.
    with watched(task, {n: t for model in models.values() for n, t in model.items()}, f"{name} (test {column}, round {round})"):
        for (k, d), stream in bar(streams.items(), f"{column} streams", shown=run.progress and recipe.costly):
            start = time.perf_counter()
            model, own, who = received[k], slice_of(personal, k), f"{name} (client {k}, test {column}, round {round})"
            handed = {"the stream's images": stream.images} | tensors_of("the personal part", own)
            with watched(task, handed, who, counted=tensors_of("the received model", model)), called(recipe.adapt, who) as adapter:
                output = check_output(adapter.run(task, model, own, stream), task, stream, who)
            seconds = torch.full((len(stream),), (time.perf_counter() - start) / max(1, len(stream)), dtype=torch.float64)
            outputs[k, d] = Output(output.scores, output.extras | {"seconds": seconds})
    return outputs


@contextlib.contextmanager
def _trusted():
    """Forget the benchmarks that this process keeps when a method may have written into one, so that the next run builds them anew."""
    try:
        yield
    except (MethodError, MisbehavedError):
        _built.cache_clear()
        raise


def _unpack(saved: State, lane: tuple[int, int]) -> Output:
    tensors = part(saved, f"{lane[0]}/{lane[1]}/")
    return Output(tensors.pop("scores"), tensors)


def _evaluate(run: "_Run", name: str, recipe: Recipe, round: int, request: Request) -> list[dict]:
    """One row per (column, client, draw): the only place where scores meet labels."""
    rows, limit = [], request.costly_samples if recipe.costly else None
    choices = _chosen(run, recipe, round, limit) if recipe.oracle else {}
    for column in request.columns or run.benchmark.columns:
        outputs, cached = _scores(run, recipe, round, column, limit)
        for (k, d), output in outputs.items():
            client = run.benchmark.clients[k]
            stream = len(client.tests[column][d])
            labels = client.tests[column][d].labels[: output.scores.shape[-2]].cpu()
            scores = (recipe.oracle.scores(output, choices[k]) if recipe.oracle else output.scores).cpu()
            right = (scores.argmax(-1) == labels).double()
            accuracy, first = 100 * right.mean().item(), min(len(labels), request.costly_samples or stream)
            loss = cross_entropy(scores.double().flatten(0, -2), labels.expand(scores.shape[:-1]).flatten()).item()
            row = {"method": name, "round": round, "column": column, "draw": d, "client": client.id, "n": len(labels)}
            row |= {"cut": len(labels) < stream, "cut_n": first, "cut_accuracy": 100 * right[..., :first].mean().item()}
            row |= {"stand_in": column in run.benchmark.stand_in_columns, "seen": client.tests[column][d].identity[: len(labels)]}
            row |= {"accuracy": accuracy, "loss": loss, "seconds": output.extras["seconds"].sum().item(), "cached": cached}
            if request.extras:
                # Of every sample: how sure the answer is (of several predictors, all of them), and whether it is right.
                known = output.extras | {"confidence": scores.double().softmax(-1).amax(-1).flatten(), "right": right.flatten()}
                if scores.dim() > 2:
                    losses = torch.stack([cross_entropy(one, labels) for one in scores.double()])
                    known |= {"accuracies": 100 * right.mean(-1), "losses": losses}
                row |= {key: known[key].cpu().numpy() if key in known else None for key in request.extras}
            rows.append(row)
    return rows


def _chosen(run: _Run, recipe: Recipe, round: int, limit: int | None) -> dict[int, float]:
    """What the recipe's oracle chooses for every client, with the labels of the first draw of its test column."""
    column, choices = recipe.oracle.column, {}
    for (k, d), output in _scores(run, recipe, round, column, limit)[0].items():
        if d == 0:
            labels = run.benchmark.clients[k].tests[column][0].labels[: len(output.scores)]
            choices[k] = recipe.oracle.choose(output, labels.to(output.scores.device))
    return choices
