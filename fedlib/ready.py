"""What can be known of a paper's run before it starts: parameters that pass one by one and cannot go together.

Every exhibit that is asked for says what it would run. Names of networks, what methods need of network and schedule, rounds, data files and
folders are checked for all images; numbers of clients and of images that are not the profile's on the embedded digits, whose clients are
built in moments. Nothing is trained, downloaded or written.
"""

import contextlib
import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import torch
from torch import nn

from fedlib.common import LISTS, PLACES, Common, own_path
from fedlib.core import Clients
from fedlib.data import EMBEDDED, about, check_files, load
from fedlib.models import MODELS, PRETRAINED, build, negative_features, norm_kinds
from fedlib.paper import Block, Paper
from fedlib.setting import Setting
from fedlib.stages.checks import (
    at_round,
    check_batches,
    check_clients,
    check_kept,
    check_norm,
    check_positive,
    check_recipe,
    check_rounds,
    check_schedule,
    check_square,
)
from fedlib.start import NotHeld
from fedlib.tools.files import data_folder
from fedlib.tools.names import check_name
from fedlib.tools.parameters import PROJECT

# Fields of protocols that decide how many images a client has. Clients that agree in them are built once.
SIZES = ("dataset", "n_clients", "alpha", "images", "targets", "n_train", "only", "domains", "shift", "classes", "partition")
SIZES += ("columns", "choosing")
LEAST_SIDE = 8  # pixels of an image


class NotYet(Exception):
    """An exhibit whose blocks are made of what clients have learned."""


@dataclass
class _Clients:
    """Clients to build, for whom (the title of an exhibit), and what is asked of them: (columns, network, local phase)."""

    protocol: Clients
    title: str
    asked: dict[str, tuple] = field(default_factory=dict)


# What was built and is fine: the embedded images are always the same.
_FINE: set[str] = set()


def check_run(paper: Paper, p: Common) -> None:
    """Raise ValueError, naming the parameters that were given, for what would stop a run of ``paper`` with ``p`` before its end."""
    check_places(p)
    check_files([name for name in p.sets().values() if name], p.data_root)
    check_images(p)
    sets = [about(name) for name in p.sets().values() if name]
    own = [images for images in sets if images.own]
    if not all(images.small for images in own):
        return  # some exhibits build clients to say what they run, which takes minutes of so many images
    plan, found = _plan(p), {}
    try:
        # Where nothing runs on a user's images, the notebook says why; other papers' may start.
        with contextlib.suppress(ValueError) if own else contextlib.nullcontext():
            _add(found, paper.setting(plan), "the clients that are shown")
        for title, block in _blocks(paper, plan):
            for setting in block.settings if block.recipes and not block.absent else ():
                with _titled(title):
                    _check(setting, block, plan)
                _add(found, setting, title, plan.request(**block.request).columns)
        # A profile's own numbers of clients are known to do.
        for one in found.values() if _given(paper, p) else ():
            with _titled(one.title):
                _build(one, plan)
    except ValueError as error:
        raise ValueError(f"{_given(paper, p)}{error}") from error


@contextlib.contextmanager
def _titled(title: str) -> Iterator[None]:
    """Put the title of an exhibit before what is wrong with it."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{title}: {error}") from error


def check_images(p: Common) -> None:
    """Raise ValueError for a user's images that are too small for the networks."""
    for name, value in p.sets().items():
        if value and own_path(value):
            height, width = load(value).images.shape[-2:]
            if min(height, width) < LEAST_SIDE:
                raise ValueError(
                    f"parameter {name}: the images of {value} have {height} x {width} pixels, too few for the networks: "
                    f"enlarge them to {LEAST_SIDE} x {LEAST_SIDE} or more"
                )


def check_places(p: Common) -> None:
    """Raise ValueError for a file where the folder of the cache or of the results belongs, and for a folder of data, other than the usual
    one, that is not there."""
    if not Path(p.data_root).is_dir() and p.data_root != str(PROJECT / data_folder()):
        raise ValueError(f"parameter data_root: no folder {p.data_root}")
    for name in ("cache", "output"):
        given = getattr(p, name)
        path = PROJECT / Path(given).expanduser() if given else None
        if file := next((place for place in (path, *path.parents) if place.exists() and not place.is_dir()), None) if path else None:
            raise ValueError(f"parameter {name} must be a folder, but {file} is a file: name another folder, or move the file away")


def _plan(p: Common) -> Common:
    """``p`` to ask exhibits what they would run: it finds the embedded images and a user's alone, and can run nothing."""
    cls = type(p)
    plan = type(cls.__name__, (cls,), {"__module__": cls.__module__, "execution": _not_yet})
    return plan(**{f.name: getattr(p, f.name) for f in fields(p)} | {"data_root": os.devnull})


def _not_yet(p: Common) -> dict:
    raise NotYet


def _blocks(paper: Paper, plan: Common) -> Iterator[tuple[str, Block]]:
    """The blocks of everything that is asked for, with its title, as far as they can be known."""
    for exhibit in paper.exhibits:
        if exhibit.blocks and plan.asks(exhibit.name):
            blocks: Sequence[Block] = ()
            with _titled(exhibit.title), contextlib.suppress(NotYet, FileNotFoundError):
                blocks = exhibit.blocks(plan)
            yield from ((exhibit.title, block) for block in blocks)


@functools.cache
def _negative(model: str) -> bool:
    """Whether some features of noise are negative under a network, as it is initialised."""
    noise = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    return negative_features(build(model.removesuffix("_imagenet"), (3, 32, 32), 10, seed=0), noise)


def _check(setting: Setting, block: Block, plan: Common) -> None:
    """What does not depend on images."""
    for name, recipe in block.recipes.items():
        check_recipe(name, recipe)
    if isinstance(setting.model, str):
        check_name(setting.model, (*MODELS, *PRETRAINED), "network")
        check_norm(setting.model, bool(norm_kinds(setting.model)), block.recipes)
        check_positive(setting.model, lambda: _negative(setting.model), block.recipes)
    if (images := _sizes(setting.protocol).get("dataset")) and own_path(images):
        own = load(images)
        build(setting.model, own.images.shape[1:], len(own.classes), seed=0)  # a network may refuse the images' sides
        check_square(own.images.shape[-2:], block.recipes)
    if plan.trained and not block.optional:
        try:
            plan.trained.check(block.recipes, block.seeds or plan.seeds)
        except NotHeld as error:
            raise ValueError(str(error)) from error
    check_schedule(block.recipes, setting.schedule)
    asked = [at_round(round, setting.schedule.rounds) for round in plan.request(**block.request).rounds]
    check_rounds(asked, setting.schedule)
    if not plan.trained:
        # One's own have a reason in the tables.
        check_kept(asked, setting.schedule, {name: recipe for name, recipe in block.recipes.items() if name not in plan.own})


def _add(found: dict[str, _Clients], setting: Setting, title: str, columns: tuple[str, ...] | None = None) -> None:
    """Note the clients of a setting, if their images are embedded."""
    sizes = _sizes(setting.protocol)
    if sizes.get("dataset") in EMBEDDED:
        key = f"{sizes}"
        one = found.setdefault(key, _Clients(setting.protocol, title))
        asked = columns, setting.model, setting.schedule.local
        one.asked[f"{key} {asked}"] = asked


def _sizes(protocol: Clients) -> dict:
    """What decides how many images the clients have, of a protocol or of the one that it wraps."""
    inner = getattr(protocol, "of", None)
    own = {name: getattr(protocol, name) for name in SIZES if hasattr(protocol, name)}
    return {"type": type(protocol).__name__} | (_sizes(inner) if inner is not None else {}) | own


def _build(one: _Clients, plan: Common) -> None:
    if one.asked.keys() <= _FINE:
        return
    try:
        benchmark = one.protocol.build(plan.seeds[0], plan.data_root)
    except FileNotFoundError:  # of a relative of the data set; the run says so
        return
    for key, (columns, model, local) in one.asked.items():
        check_clients(benchmark, columns)
        if isinstance(model, str) and nn.BatchNorm1d in norm_kinds(model):
            check_batches(model, local, benchmark)
        _FINE.add(key)


def _given(paper: Paper, p: Common) -> str:
    """The parameters that are not the profile's, for the beginning of a message."""
    usual = paper.standard(p.profile).told()
    left = (*PLACES, *LISTS, "profile", "seeds", "start", "extra")
    given = [f"{name} = {value!r}" for name, value in p.told().items() if name not in left and value != usual[name]]
    return f"with {', '.join(given)}: " if given else ""
