"""What can be known to fail before any training starts."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass

import numpy as np
import torch

from fedlib.core import FINAL, RECEIVED, Benchmark, Local, Recipe, Samples, Schedule, Task
from fedlib.models import negative_features, norm_layers
from fedlib.tools.names import check_name

# Which images have to be there before an adapter's first answer.
TOGETHER = ("one", "batch", "stream")
STAGES = {"train": ("init", "update", "aggregate"), "personalize": ("init", "fit"), "adapt": ("run",)}  # what each of a recipe has
# Hyperparameters by name -> the least of each. Step sizes are above 0 and finite.
LEAST = {"batch_size": 1, "views": 1, "draws": 1, "passes": 1}
LEAST |= {"steps": 0, "head_steps": 0, "iterations": 0, "epochs": 0, "probe_epochs": 0, "tune_epochs": 0, "pad": 0}
LEAST |= {"levels": 2, "strength": 0}
RATES = ("lr", "server_lr", "mixture_lr", "encoder_lr", "hyper_lr", "adversarial_lr")


# What a setting may lack, and what is said of a method that needs it.
NEEDS = {
    "labels": "needs the client's own labelled images, and the tested clients bring none",
    "validation": "needs a labelled validation part, and the training clients have none",
    "batch norm": "needs batch norm, and the network has none",
    "no batch norm": "runs without batch norm only, and the network has it",
}


class NotKept(ValueError):
    """What a method needs of its training is not among the states that are kept."""


def stages_of(recipe: Recipe) -> tuple:
    """What a recipe is made of, with every adapter among which one is chosen."""
    among = getattr(recipe.adapt, "candidates", None)
    return (recipe.train, recipe.personalize, *(among if isinstance(among, tuple | list) else (recipe.adapt,)))


def check_recipe(name: str, recipe: object) -> None:
    """Raise ValueError, before anything is trained, for what is no recipe, for a stage that is a class or cannot be one, and for a
    hyperparameter out of its range."""
    if not isinstance(recipe, Recipe):
        raise ValueError(
            f"method {name!r} is of type {type(recipe).__name__}, not a recipe: write fedlib.Recipe(train, personalize, adapt)"
        )
    for stage, functions in STAGES.items():
        part = getattr(recipe, stage)
        if isinstance(part, type):
            raise ValueError(f"method {name!r}: its stage {stage} is the class {part.__name__}; write {part.__name__}()")
        if part is None and stage == "adapt":
            raise ValueError(f"method {name!r}: no adaptation is fedlib.NoAdapt(), not None: leave adapt out")
        # Only what is personal may be nothing.
        lacks = [function for function in functions if not hasattr(part, function)]
        if lacks and (part is not None or stage != "personalize"):
            raise ValueError(f"method {name!r}: its stage {stage}, of type {type(part).__name__}, needs a method {' and '.join(lacks)}")
    check_name(getattr(recipe.adapt, "together", TOGETHER[-1]), TOGETHER, f"value of together of {name!r}")
    for part in stages_of(recipe):
        _check_numbers(name, part)


def _check_numbers(name: str, part: object) -> None:
    """Raise ValueError for a number among the hyperparameters of one of the package's stages, or of a part of it, that it cannot work with.
    What those of a user mean is not known."""
    if not type(part).__module__.startswith("fedlib."):
        return
    for given, value in vars(part).items() if hasattr(part, "__dict__") else ():
        if is_dataclass(value):
            _check_numbers(name, value)
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        said = f"method {name!r}: {given} of {type(part).__name__} must be"
        if math.isnan(value) or (given in RATES and not 0 < value < math.inf):
            raise ValueError(f"{said} {'above 0 and finite' if given in RATES else 'a number'}, got {value}")
        if given in LEAST and value < LEAST[given]:
            raise ValueError(f"{said} at least {LEAST[given]}, got {value}")


def check_given(**given: object) -> None:
    """Raise ValueError for what is to be run and is not one or more, in a list, or of ``recipes`` in a dictionary of recipes."""
    for what, some in given.items():
        kind, words = (Mapping, "a dictionary by name") if what == "recipes" else (Sequence | np.ndarray, "a list")
        if isinstance(some, str) or not isinstance(some, kind):
            raise ValueError(f"{what} must be {words}, got {some!r}")
        if not len(some):
            raise ValueError(f"nothing to run: no {what} were given, at least one is needed")
    for name, recipe in given.get("recipes", {}).items():
        check_recipe(name, recipe)


def at_round(round: int, rounds: int) -> int:
    """The round that a request means in a training of ``rounds``."""
    return {RECEIVED: rounds, FINAL: rounds + 1}.get(round, round)


def check_clients(benchmark: Benchmark, columns: Iterable[str] | None = None) -> Benchmark:
    """The benchmark, whose clients and ``columns`` (None: all) can be run. Raises ValueError for an unknown test column, an empty test
    or training part, a benchmark on which nobody trains or is tested, two clients with one id, and samples that do not fit the rest."""
    sources = [client for client in benchmark.clients if client.source]
    if not sources:
        raise ValueError(f"{benchmark.dataset}: none of {len(benchmark.clients)} clients takes part in training; let some be sources")
    if not benchmark.columns:
        raise ValueError(f"{benchmark.dataset}: none of {len(benchmark.clients)} clients has a test: take more clients, or other columns")
    for client in sources:
        if not len(client.train):
            raise ValueError(f"client {client.id} has no training images: use fewer clients, a larger alpha or a larger data set")
    if twice := [k for k, n in Counter(client.id for client in benchmark.clients).items() if n > 1]:
        raise ValueError(f"{benchmark.dataset}: several clients have the id {twice[0]}; give each its own")
    for client in benchmark.clients:
        for part, draws in {"train": (client.train,), "val": (client.val,), **client.tests}.items():
            _check_samples(draws, benchmark, f"client {client.id}, {part}")
    for column in columns or benchmark.columns:
        check_name(column, benchmark.columns, "test column")
        for client in benchmark.clients:
            if any(not len(draw) for draw in client.tests.get(column, ())):
                raise ValueError(
                    f"client {client.id} has no images in its test {column!r}: use fewer clients or more test images, or leave it out"
                )
    return benchmark


def _check_samples(draws: Sequence[Samples], benchmark: Benchmark, whose: str) -> None:
    """Raise ValueError for samples of another shape than the benchmark's images and classes."""
    if not isinstance(draws, tuple | list):
        raise ValueError(f"{whose}: a test is a tuple of draws, got {type(draws).__name__}; write (samples,)")
    for samples in draws:
        images, labels = samples.images, samples.labels
        if images.dtype != torch.uint8:
            raise ValueError(f"{whose}: images must be uint8 in 0..255, got {images.dtype}: scale them, then .to(torch.uint8)")
        if images.shape[1:] != tuple(benchmark.in_shape) or labels.dtype != torch.int64 or labels.shape != (len(images),):
            there = f"{tuple(images.shape)} and {labels.dtype} {tuple(labels.shape)}"
            raise ValueError(f"{whose}: images must be [n, {', '.join(map(str, benchmark.in_shape))}] and labels int64 [n], got {there}")
        if len(labels) and not 0 <= labels.min() <= labels.max() < benchmark.n_classes:
            raise ValueError(f"{whose}: labels must be in 0..{benchmark.n_classes - 1}, got {labels.min()}..{labels.max()}")


def check_needs(benchmark: Benchmark, recipes: Mapping[str, Recipe]) -> None:
    """Raise ValueError for a recipe whose personal part needs labelled images (``NEEDS``) that the clients do not bring. A user's class
    that says nothing of its needs is tried."""
    offered = {
        "labels": all(len(client.train) for client in benchmark.clients if client.tests),
        "validation": any(len(client.val) for client in benchmark.clients if client.source),
    }
    for name, recipe in recipes.items():
        own = type(recipe.personalize).__module__.startswith("fedlib.")
        for need in getattr(recipe.personalize, "needs", ("labels",) if own else ()):
            if not offered.get(need, True):
                raise ValueError(f"{name} {NEEDS[need]}: leave it out, or take other clients")


def check_rounds(rounds: Sequence[int], schedule: Schedule) -> None:
    """Raise ValueError for a round that the schedule does not have or keep, or that is asked for twice. rounds: as in
    ``fedlib.Request``, resolved."""
    last = schedule.rounds + 1
    if len(set(rounds)) < len(rounds):
        raise ValueError(f"rounds are asked for twice: {', '.join(map(str, rounds))}, where RECEIVED is {last - 1} and FINAL {last}")
    for t in rounds:
        if not 1 <= t <= last:
            raise ValueError(f"round {t} is outside 1..{last}, the states of a training of {schedule.rounds} rounds")
        if t != last and (t - 1) % schedule.save_every:
            raise ValueError(f"round {t} is not kept with save_every={schedule.save_every}: evaluate at 1 + a multiple of it, or at {last}")


def check_kept(rounds: Sequence[int], schedule: Schedule, recipes: Mapping[str, Recipe], sources: int | None = None) -> None:
    """Raise NotKept where ``rounds``, resolved, need states that a training of so many ``sources`` (None: not known yet) does not keep:
    received models of a cohort that is not all clients, and personal parts that live through the rounds."""
    for name, recipe in recipes.items():
        if schedule.save_every > 1 and getattr(recipe.personalize, "persistent", False) and max(rounds) > 1:
            kind = type(recipe.personalize).__name__
            raise NotKept(f"{name}: {kind} is trained through all rounds, of which save_every={schedule.save_every} skips some: take 1")
    # Who keeps what its clients hold (``whole_run``) may need no earlier model.
    shared = any(not getattr(recipe.train, "whole_run", False) for recipe in recipes.values())
    left_out = sources is not None and cohort_size(sources, schedule.participation) < sources
    if schedule.save_every > 1 and left_out and shared and any(1 < t <= schedule.rounds for t in rounds):
        raise NotKept(
            f"save_every={schedule.save_every} skips the earlier models of the clients that a round does not sample: take 1, or ask for "
            "the final model, round -1"
        )


def cohort_size(sources: int, participation: float) -> int:
    """How many of the source clients a round samples, one at least."""
    return max(1, round(participation * sources))


def check_schedule(recipes: Mapping[str, Recipe], schedule: Schedule) -> None:
    """Raise ValueError where a training method refuses the schedule, with its own ``check_schedule``."""
    for train in (recipe.train for recipe in recipes.values()):
        if hasattr(train, "check_schedule"):
            train.check_schedule(schedule)


def check_network(task: Task, benchmark: Benchmark, recipes: Mapping[str, Recipe]) -> None:
    """Raise ValueError for a recipe that needs batch norm on a network without, for one that refuses it on a network with it, for one that
    turns images which are not square, for one that needs features of at least zero, for one whose own ``check_network`` refuses the
    network, and for batches on which batch norm is undefined."""
    check_square(benchmark.in_shape[-2:], recipes)
    check_norm(type(task.model).__name__, bool(norm_layers(task.model)), recipes)
    for name, recipe in recipes.items():
        for stage in stages_of(recipe):
            try:
                getattr(stage, "check_network", lambda model: None)(task.model)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
    check_positive(type(task.model).__name__, lambda: _negative(task, benchmark), recipes)
    if _needs_two(task, benchmark):
        check_batches(type(task.model).__name__, task.schedule.local, benchmark)


def needing(what: str, recipes: Mapping[str, Recipe]) -> list[str]:
    """The names of the recipes with a stage whose attribute ``needs_<what>`` is true."""
    return [name for name, recipe in recipes.items() if any(getattr(stage, f"needs_{what}", False) for stage in stages_of(recipe))]


def check_square(sides: Sequence[int], recipes: Mapping[str, Recipe]) -> None:
    """Raise ValueError for a recipe that turns images whose ``sides`` (height, width) differ."""
    height, width = sides
    if height != width and (names := needing("square", recipes)):
        raise ValueError(f"{names[0]} turns images by 90 degrees, and these are {height} x {width}: leave it out, or cut them to squares")


def check_positive(network: str, negative: Callable[[], bool], recipes: Mapping[str, Recipe]) -> None:
    """Raise ValueError for a recipe that needs features of at least zero where some of ``network``'s are ``negative``, which is asked only
    then."""
    if (names := needing("positive", recipes)) and negative():
        raise ValueError(f"{', '.join(names)}: features must not be negative, as {network}'s are: put a ReLU between extractor and head")


def _negative(task: Task, benchmark: Benchmark) -> bool:
    images = next(client.train.images for client in benchmark.clients if len(client.train))[:32]
    return negative_features(task.model, task.inputs(images))


@torch.no_grad()
def _needs_two(task: Task, benchmark: Benchmark) -> bool:
    """Whether a batch norm of the network sees one value of an image per channel (features, or maps of one pixel), so that one image alone
    has no variance."""
    values: list[int] = []
    norms = norm_layers(task.model).values()
    hooks = [layer.register_forward_hook(lambda layer, inputs, output: values.append(inputs[0][0, 0].numel())) for layer in norms]
    if norms:
        task.model(next(task.model.parameters()).new_zeros(1, *benchmark.in_shape))
    for hook in hooks:
        hook.remove()
    return 1 in values


def check_norm(network: str, has: bool, recipes: Mapping[str, Recipe]) -> None:
    """Raise ValueError for a recipe that needs batch norm where the network has none, and for one that refuses it where it ``has``."""
    for name, recipe in recipes.items():
        for stage in stages_of(recipe):
            if not has and getattr(stage, "needs_batch_norm", False):
                raise ValueError(f"{name}: {type(stage).__name__} needs batch norm, and {network} has none: choose a network that has it")
            if has and getattr(stage, "refuses_batch_norm", False):
                raise ValueError(f"{name}: {type(stage).__name__} runs without batch norm only, and {network} has it: choose one without")


def check_batches(network: str, local: Local, benchmark: Benchmark) -> None:
    """Raise ValueError where a batch of training holds one image, for which a ``network`` with batch norm over features, or over maps of
    one pixel, is undefined."""
    for client in benchmark.clients:
        full, rest = divmod(len(client.train), local.batch_size)
        alone = local.batch_size == 1 or (rest == 1 and (local.smallest == 1 or not full))
        if client.source and alone:
            remedy = "take another batch_size, or smallest=2" if full else "use fewer clients or a larger data set"
            raise ValueError(
                f"client {client.id} has {len(client.train)} training images, so that batches of {local.batch_size} leave one image alone, "
                f"for which the batch norm of {network} is undefined: {'take a larger one' if local.batch_size == 1 else remedy}"
            )
