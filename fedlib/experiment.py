"""Experiments: a grid of settings, recipes and seeds becomes one long table.

For every (setting, seed) the benchmark is built once; for every training method in use there is one federated training, shared by all
recipes that start from it. Each stage is cached under the hash of what determines it: training on the training data, model, method,
schedule and engine; the personal part on the training and its own fields; the class scores on both and on the stream. Independent groups
(setting, seed, training method) go to joblib processes with one thread each.
"""

import contextlib
import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed
from torch.nn.functional import cross_entropy

from fedlib import federation
from fedlib.cache.identity import is_library, reads_files
from fedlib.cache.manifest import training_manifest
from fedlib.cache.store import NotCached, Store, describe, digest, key_of
from fedlib.core import RECEIVED, Benchmark, Clients, Output, Recipe, State, Task
from fedlib.data import stamps
from fedlib.group import Group
from fedlib.models import PRETRAINED, build, state_of
from fedlib.results.record import remember
from fedlib.setting import Request, Setting, told_apart
from fedlib.stages.boundary import MethodError, MisbehavedError
from fedlib.stages.checks import at_round, check_clients, check_given, check_kept, check_needs, check_network, check_rounds, check_schedule
from fedlib.stages.engine import Engine, running_on
from fedlib.stages.progress import bar, joint_bar, reported, reports
from fedlib.start import Pretrained, account, begun
from fedlib.tools.kept import forget, kept
from fedlib.tools.names import check_name


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
    >>> len(fedlib.run([setting], fedlib.recipes_of("fedthe", "FedAvg"), [0], request=fedlib.Request(columns=("original",)), cache=None))
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
    """What ``run`` hands to the adapters at ``round`` (as in ``Request.rounds``): (setting, method, seed) -> personal part, on the CPU.
    ValueError for a recipe without one."""
    check_given(settings=settings, recipes=recipes, seeds=seeds, rounds=(round,))
    if without := [name for name, recipe in recipes.items() if recipe.personalize is None]:
        raise ValueError(f"{', '.join(without)} has no personal part: leave it out")
    results = _each_group(_part_group, settings, recipes, seeds, n_jobs, cache, engine, start, Request((round,)), root)
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
    check_given(recipes={"given": recipe}, rounds=request.rounds)
    with running_on(engine), _trusted():
        asked, store = replace(request, columns=(column,)), Store(cache, engine.device, start=begun(start, {"": recipe}, [seed]))
        group = _trained(setting, seed, {"": recipe}, asked, root, store, engine, progress=False)
        outputs, _ = group.scores(recipe, group.at(request.rounds[0]), column, request.costly_samples if recipe.costly else None)
    on_cpu = {lane: Output(o.scores.cpu(), {name: t.cpu() for name, t in o.extras.items()}) for lane, o in outputs.items()}
    return benchmark_of(setting.protocol, seed, root), on_cpu


def _each_group(function, settings, recipes, seeds, n_jobs: int, cache: str | None, engine: Engine, start, request: Request, root) -> list:
    """``function`` for every (setting, seed, training method) with the recipes that start from it, in processes; of these, more than
    there are groups share the clients of a round. The first groups that the cache holds whole are read here: processes start slower.
    What a later group would refuse is refused before the first one trains."""
    for name, recipe in recipes.items():
        try:
            describe([recipe.train, recipe.personalize, recipe.adapt])
        except TypeError as error:
            raise ValueError(f"method {name!r}: {error}") from error
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
                found.append(function(*group, request, root, Store(cache, engine.device, only_read=True, start=start), engine, False))
    store, rest = Store(cache, engine.device, start=start), list(groups.values())[len(found) :]
    engine = replace(engine, processes=max(engine.processes, n_jobs // max(1, len(rest))))
    left = [(*group, request, root, store, engine) for group in rest]
    with running_on(engine):
        for setting in {group[0].label: group[0] for group in rest}.values():
            benchmark, _, asked = _agreed(setting, seeds[0], recipes, request, root, engine)
            if not start:
                check_kept(asked, setting.schedule, recipes, sum(client.source for client in benchmark.clients))
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
        group = _trained(setting, seed, recipes, request, root, store, engine, progress)
        rows, wanted = [], [(round, name) for round in request.rounds for name in recipes]
        what = f"{setting.label}, seed {seed}, {len(group.benchmark.clients)} clients"
        for round, name in (shown := bar(wanted, what, shown=progress, unit="method")):
            try:
                new = _evaluate(group, name, recipes[name], group.at(round), request)
            except FloatingPointError as error:
                error.method = name  # the others may run without it
                raise
            shown.set_postfix_str(f"{name} {np.mean([row['accuracy'] for row in new]):.1f} %", refresh=False)
            rows += new
        model = getattr(setting.model, "__name__", setting.model)
        identity = {"setting": setting.label, "dataset": group.benchmark.dataset, "model": model, "seed": seed}
        methods = {n: recipe.personalize for n, recipe in recipes.items() if recipe.personalize}
        parts = {n: (key_of(group.personal_manifest(method)), getattr(method, "persistent", False)) for n, method in methods.items()}
        told = account(setting, seed, group.key, group.benchmark.images, parts, rows)
        return [identity | row | {"train_cached": group.trajectory.cached} for row in rows], told


def _part_group(setting, seed, recipes, request, root, store, engine, progress) -> dict[tuple[str, str, int], State]:
    """One federated training and the personal parts that start from it."""
    with running_on(engine), _trusted():
        group = _trained(setting, seed, recipes, request, root, store, engine, progress)
        parts = {name: group.personal(recipe, group.at(request.rounds[0])) for name, recipe in recipes.items()}
        return {(setting.label, name, seed): {n: t.cpu() for n, t in part.items()} for name, part in parts.items()}


def _agreed(setting, seed, recipes, request, root, engine) -> tuple[Benchmark, Task, list[int]]:
    """The clients, the task and the rounds asked for, after everything that the recipes may refuse in them."""
    benchmark = check_clients(benchmark_of(setting.protocol, seed, root), request.columns).to(engine.device)
    for name, recipe in recipes.items():
        if recipe.oracle:
            check_name(recipe.oracle.column, benchmark.columns, f"test column, on which {name} chooses")
    check_rounds(asked := [at_round(round, setting.schedule.rounds) for round in request.rounds], setting.schedule)
    check_schedule(recipes, setting.schedule)
    check_needs(benchmark, recipes)
    task = make_task(setting, benchmark, seed, engine, root)
    check_network(task, benchmark, recipes)
    return benchmark, task, asked


def _trained(setting, seed, recipes, request, root, store, engine, progress) -> Group:
    """The federated training that the recipes have in common."""
    benchmark, task, asked = _agreed(setting, seed, recipes, request, root, engine)
    method = next(iter(recipes.values())).train
    resolved = replace(engine, chunk_size=task.chunk_size, options=task.options or None)
    manifest = training_manifest(setting, seed, method, benchmark, resolved)
    if setting.model in PRETRAINED:
        manifest["start"] = digest(state_of(task.model))  # not every file of that name holds the same weights
    held = store.start.held(manifest, setting, seed, asked) if store.start else None
    if not held:
        check_kept(asked, setting.schedule, recipes, sum(client.source for client in benchmark.clients))
    key = held.key if held else key_of(manifest)
    about = {"protocol": type(setting.protocol).__module__.rpartition(".")[2], "images": benchmark.dataset, "setting": setting.label}
    store.note("train", key, about | {"training": type(method).__name__, "seed": seed})
    if held:
        trajectory = held.trajectory(task, benchmark.clients, store.device)
    else:
        trajectory = federation.run(task, method, benchmark.clients, store, key, manifest, evaluated=asked, progress=progress)
    return Group(store, task, trajectory, key, benchmark, progress, held)


def benchmark_of(protocol: Clients, seed: int, root: str | None) -> Benchmark:
    """The benchmark of a protocol and seed; each process keeps two, which the next groups usually share. Raises what the protocol raises,
    and ValueError for one that can change."""
    try:
        hash(protocol)
    except TypeError as error:
        lists = [name for name, value in vars(protocol).items() if isinstance(value, list | dict | set)]
        remedy = f"write {', '.join(lists)} as tuples" if lists else "make it a frozen dataclass, with tuples in place of lists"
        raise ValueError(f"{type(protocol).__name__} must not change once it is given ({error}): {remedy}") from error
    if not is_library(type(protocol).__module__) and reads_files(type(protocol)):
        return protocol.build(seed, root)  # of what it reads nobody tells when it changes
    return _built((key_of({"protocol": protocol}), stamps(protocol)), protocol, seed, root)


@kept(2)
def _built(identity: tuple, protocol: Clients, seed: int, root: str | None) -> Benchmark:
    """identity: tells a user's protocol from itself before a constant or images that it names were changed."""
    return protocol.build(seed, root)


@contextlib.contextmanager
def _trusted():
    """Forget the clients that this process keeps when a method may have written into one, so that the next run builds them anew."""
    try:
        yield
    except ValueError:  # a refusal
        raise
    except BaseException:
        forget()
        raise


def _evaluate(group: Group, name: str, recipe: Recipe, round: int, request: Request) -> list[dict]:
    """One row per (column, client, draw): the only place where scores meet labels."""
    rows, limit = [], request.costly_samples if recipe.costly else None
    choices = _chosen(group, recipe, round, limit) if recipe.oracle else {}
    for column in request.columns or group.benchmark.columns:
        try:
            outputs, cached = group.scores(recipe, round, column, limit)
        except (FloatingPointError, MethodError, MisbehavedError) as error:
            # Several methods may be of one class, which is all that the stages know.
            raise type(error)(f"{name}: {error}") from error
        for (k, d), output in outputs.items():
            client = group.benchmark.clients[k]
            stream = len(client.tests[column][d])
            labels = client.tests[column][d].labels[: output.scores.shape[-2]].cpu()
            scores = (recipe.oracle.scores(output, choices[k]) if recipe.oracle else output.scores).cpu()
            right = (scores.argmax(-1) == labels).double()
            accuracy, first = 100 * right.mean().item(), min(len(labels), request.costly_samples or stream)
            loss = cross_entropy(scores.double().flatten(0, -2), labels.expand(scores.shape[:-1]).flatten()).item()
            seconds = output.extras["seconds"].sum().item()
            row = {"method": name, "round": round, "column": column, "draw": d, "client": client.id, "n": len(labels)}
            row |= {"cut": len(labels) < stream, "cut_n": first, "cut_accuracy": 100 * right[..., :first].mean().item()}
            row |= {"stand_in": column in group.benchmark.stand_in_columns, "seen": client.tests[column][d].identity[: len(labels)]}
            row |= {"accuracy": accuracy, "loss": loss, "seconds": seconds, "cached": cached}
            if request.extras:
                # Of every sample: how sure the answer is (of several predictors, all of them), and whether it is right.
                known = output.extras | {"confidence": scores.double().softmax(-1).amax(-1).flatten(), "right": right.flatten()}
                if scores.dim() > 2:
                    losses = torch.stack([cross_entropy(one, labels) for one in scores.double()])
                    known |= {"accuracies": 100 * right.mean(-1), "losses": losses}
                row |= {key: known[key].cpu().numpy() if key in known else None for key in request.extras}
            rows.append(row)
    return rows


def _chosen(group: Group, recipe: Recipe, round: int, limit: int | None) -> dict[int, float]:
    """What the recipe's oracle chooses for every client, with the labels of the first draw of its test column."""
    column, choices = recipe.oracle.column, {}
    for (k, d), output in group.scores(recipe, round, column, limit)[0].items():
        if d == 0:
            labels = group.benchmark.clients[k].tests[column][0].labels[: len(output.scores)]
            choices[k] = recipe.oracle.choose(output, labels.to(output.scores.device))
    return choices
