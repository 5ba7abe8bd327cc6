"""Single test images as a method sees them: what each of its stages makes of an image, read back from the cache.

A method's stages are the received model, the client's personal part without adaptation, and the method itself. For a method that weighs two
heads per sample, the first two are its global and its personal head. The personal head has no bias; on a network whose head has one (CCT),
the received bias would stay in the second stage.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from fedlib.cache.store import key_of
from fedlib.core import Output, Recipe, Samples
from fedlib.data import stamps
from fedlib.experiment import benchmark_of, look
from fedlib.setting import Request, Setting
from fedlib.stages.engine import Engine
from fedlib.start import Pretrained

HEADS = {"received model": "global head", "personal model": "personal head"}


@dataclass(frozen=True)
class Seen:
    """The test stream of one client under one method.

    where: setting, seed, column and client in words; samples: as far as the method went; stages: name -> outputs on them, the method's own
    last; classes: their names.
    """

    where: str
    samples: Samples
    stages: dict[str, Output]
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Cases:
    """What there is to look at: settings, recipes by published name, and seeds, as in ``fedlib.run``; of ``request`` the first
    round, the columns and the cut count."""

    settings: Sequence[Setting]
    recipes: Mapping[str, Recipe]
    seeds: Sequence[int]
    request: Request = Request()
    cache: str | None = "cache"
    root: str | None = None
    engine: Engine = Engine()
    start: str | Pretrained | None = None

    def columns(self) -> list[str]:
        """The test columns asked for, all of the first setting's otherwise."""
        return list(self.request.columns or benchmark_of(self.settings[0].protocol, self.seeds[0], self.root).columns)

    def streams(self, setting: str, seed: int, method: str, column: str) -> dict[int, Seen]:
        """The first draw of every client's stream, by the client's number."""
        (chosen,) = (s for s in self.settings if s.label == setting)
        recipe = self.recipes[method]
        places = {"cache": self.cache, "root": self.root, "engine": self.engine, "start": self.start}
        identity = key_of({"setting": chosen, "recipe": recipe, "request": self.request}), stamps(chosen), *places.values()
        return _streams(_Asked(identity, chosen, recipe, self.request, places), method, seed, column)


def stages(method: str, recipe: Recipe) -> dict[str, Recipe]:
    """The parts of a recipe that predict by themselves, as recipes of their own, and ``method`` itself as the last; none comes twice. Of a
    method whose training changes the network, or leaves parts of it elsewhere (``own_network`` of its adaptation), the received model does
    not."""
    if getattr(recipe.adapt, "own_network", False):
        return {method: recipe}
    found: dict[str, Recipe] = {}
    steps = {"received model": Recipe(recipe.train), "personal model": Recipe(recipe.train, recipe.personalize), method: recipe}
    for name, step in steps.items():
        # The last of those that are alike keeps its name.
        found = {other: earlier for other, earlier in found.items() if earlier != step} | {name: step}
    return found


@dataclass(frozen=True)
class _Asked:
    """What decides the scores of a stream: ``identity`` tells a user's code and images from what they were before an edit, which equality
    does not, and does without a hash, which a user's method may not have."""

    identity: tuple
    setting: Setting = field(compare=False)
    recipe: Recipe = field(compare=False)
    request: Request = field(compare=False)
    places: dict = field(compare=False)


# An entry holds the scores of one test column.
@functools.lru_cache(maxsize=64)
def _streams(asked: _Asked, method: str, seed: int, column: str) -> dict[int, Seen]:
    outputs, setting = {}, asked.setting
    for name, step in stages(method, asked.recipe).items():
        benchmark, outputs[name] = look(setting, step, seed, column, request=asked.request, **asked.places)
    result = {}
    for k, client in enumerate(benchmark.clients):
        if column in client.tests:
            own = {name: lanes[k, 0] for name, lanes in outputs.items()}
            where = f"{setting.label}, seed {seed}, {column}, client {client.id}"
            where += f" ({client.about})" if client.about not in ("", column) else ""
            samples = client.tests[column][0].head(len(own[method].scores))
            result[client.id] = Seen(where, samples, _named(own), benchmark.classes)
    return result


def _named(outputs: dict[str, Output]) -> dict[str, Output]:
    """The stages without a personal part that leaves the model as it is, and as two heads where the method, the last, weighs them."""
    if len(outputs) == 3 and torch.equal(*(outputs[name].scores for name in HEADS)):
        outputs = {name: output for name, output in outputs.items() if name != "personal model"}
    weighs = "weight" in list(outputs.values())[-1].extras
    return {HEADS.get(name, name) if weighs else name: output for name, output in outputs.items()}
