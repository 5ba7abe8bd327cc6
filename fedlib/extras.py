"""The user's own methods, which run beside the published ones, and the kit's that no paper prints (``fedlib.further``).

``register`` makes a method known to everything that runs in this process. The parameter ``extra`` of a notebook is a dictionary of recipes,
or says where one is: ``my_methods:RECIPES`` in a module that can be imported, ``path/to/file.py:RECIPES`` in a file, which is read anew
whenever it has changed. They run wherever clients and network have what they need; elsewhere their row says what is missing.
"""

import contextlib
import dataclasses
import difflib
import functools
import hashlib
import importlib
import linecache
import sys
import types
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from fedlib.core import Recipe
from fedlib.further import METHODS
from fedlib.stages.checks import NEEDS, check_recipe, stages_of
from fedlib.tools.names import check_name
from fedlib.tools.parameters import PROJECT
from fedlib.train.fedavg import FedAvg


@dataclasses.dataclass(frozen=True)
class Extra:
    """A user's recipe and what it needs, of ``NEEDS``."""

    recipe: Recipe
    needs: tuple[str, ...] = ()

    def lacks(self, offers: Collection[str]) -> str | None:
        """Why the method does not run where there is only what ``offers`` names, None where it does."""
        return next((NEEDS[need] for need in self.needs if need not in offers), None)


REGISTERED: dict[str, Extra] = {}
_READ: dict[Path, tuple[str, types.ModuleType]] = {}


def register(name: str, recipe: Recipe, *, needs: Iterable[str] | None = None) -> None:
    """Add a method of your own, called ``name``, to what every notebook runs from here on. Registering the same name again replaces it.

    needs: what clients and network must offer, some of ``labels`` (the tested client's own labelled images), ``validation`` (a labelled
    validation part), ``batch norm`` and ``no batch norm``; None: what the recipe's stages say (a personal part needs labels unless it
    says otherwise). Raises ValueError for a name that a paper uses, for anything that is not a recipe, and for an unknown need.

    >>> import fedlib
    >>> fedavg = fedlib.recipes_of("fedthe", "FedAvg")["FedAvg"]
    >>> fedlib.register("FedTTA++", fedavg)
    Traceback (most recent call last):
        ...
    ValueError: 'FedTTA++' is a method of upfl already: choose another name, such as 'FedTTA++ (own)'
    """
    REGISTERED[name] = checked(name, recipe, needs)


def gather(given: str | Mapping[str, Recipe] | None) -> dict[str, Extra]:
    """The kit's further methods, the registered ones and those of the parameter ``extra``. Raises ValueError for what cannot be found or is
    not a recipe."""
    found = METHODS | (read(given) if isinstance(given, str) else dict(given or {}))
    own = {name: checked(name, recipe) for name, recipe in found.items()}
    for name in own.keys() & REGISTERED.keys():
        if own[name].recipe != REGISTERED[name].recipe:
            raise ValueError(f"your method {name!r} is registered, and extra gives another of the same name: rename one of them")
    return own | REGISTERED


def of_extra(names: Iterable[str]) -> list[str]:
    """Those of one's own methods that the parameter ``extra`` alone gives: not the kit's further ones, nor what is registered."""
    return [name for name in names if name not in METHODS and name not in REGISTERED]


def checked(name: object, recipe: object, needs: Iterable[str] | None = None) -> Extra:
    """``recipe`` with its needs. Raises ValueError as ``register`` does."""
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"the name of a method must be a non-empty string, got {name!r}")
    if name.startswith("_"):
        raise ValueError(f"the name of a method may not begin with an underscore, as legends leave it out: take {name.lstrip('_')!r}")
    if papers := published().get(name):
        raise ValueError(f"{name!r} is a method of {', '.join(papers)} already: choose another name, such as {name + ' (own)'!r}")
    check_recipe(name, recipe)
    given = needs_of(recipe) if needs is None else ((needs,) if isinstance(needs, str) else tuple(needs))
    return Extra(recipe, tuple(check_name(need, NEEDS, f"need of {name!r}") for need in given))


def on_plain(recipe: Recipe, plain: FedAvg | None) -> Recipe:
    """``recipe`` with ``plain``, a paper's own FedAvg, in place of the FedAvg that it starts from, so that both have one training: the
    papers weigh clients differently. Its loss stays; a recipe with a rate of its own, or another training, is returned as it is."""
    if plain is None or type(recipe.train) is not FedAvg or recipe.train.lr is not None:
        return recipe
    return dataclasses.replace(recipe, train=dataclasses.replace(plain, loss=recipe.train.loss))


def needs_of(recipe: Recipe) -> tuple[str, ...]:
    """What the stages of a recipe say that they need: a personal part has ``needs``, or needs labels."""
    personal = getattr(recipe.personalize, "needs", ("labels",)) if recipe.personalize else ()
    words = {"batch norm": "needs_batch_norm", "no batch norm": "refuses_batch_norm"}
    return (*personal, *(need for need, word in words.items() if any(getattr(stage, word, False) for stage in stages_of(recipe))))


@functools.cache
def published() -> dict[str, list[str]]:
    """Every name that is taken -> the papers that use it."""
    from fedlib.catalogue import recipes_of
    from fedlib.papers.comparison import recipes
    from fedlib.papers.fedthe import recipes as fedthe
    from fedlib.published import PAPERS, cells

    names: dict[str, set[str]] = {}
    lists = [(paper, [*recipes_of(paper), *cells(paper)["method"]]) for paper in PAPERS]
    for paper, taken in (*lists, ("fedthe", fedthe.METHODS), ("the comparison", (recipes.CUT, recipes.PLAIN))):
        for name in taken:
            names.setdefault(name, set()).add(paper)
    return {name: sorted(papers) for name, papers in names.items()}


def read(where: str) -> Mapping[str, Recipe]:
    """The dictionary that ``where`` names: ``module:NAME`` or ``path/to/file.py:NAME``, relative to the project or the notebook."""
    place, _, name = where.rpartition(":")
    if not place or not name.isidentifier():
        raise ValueError(f"parameter extra must be 'my_methods:RECIPES' or 'path/to/file.py:RECIPES', got {where!r}")
    module = _from_file(_found(place)) if place.endswith(".py") else _imported(place)
    if not hasattr(module, name):
        there = [n for n, value in vars(module).items() if isinstance(value, Mapping) and not n.startswith("_")]
        check_name(name, there, f"dictionary of recipes in {place}")
    value = getattr(module, name)
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} is a {type(value).__name__}: a dictionary of recipes by name is expected")
    if not value:
        raise ValueError(f"{where} is empty: put a recipe into it, or leave the parameter extra out")
    return value


def _found(place: str) -> Path:
    given = Path(place).expanduser()
    paths = list(dict.fromkeys([(PROJECT / given).resolve(), given.resolve()]))
    for path in paths:
        if path.is_file():
            return path
    near = [difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*.py")], n=1, cutoff=0.5) for path in paths]
    hint = next((f" Did you mean {str(path.with_name(names[0]))!r}?" for path, names in zip(paths, near, strict=True) if names), "")
    raise ValueError(f"your methods: no file {' or '.join(map(str, paths))}.{hint}")


def _imported(place: str) -> types.ModuleType:
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise ValueError(f"your methods: {place} cannot be imported: {error}") from error
        # Kernels start in the notebooks' folder, so that a module beside the project's own is not on their path.
        beside = PROJECT / (place.replace(".", "/") + ".py")
        if beside.is_file():
            return _from_file(beside)
        files = [path.stem for folder in (PROJECT, Path.cwd()) for path in folder.glob("*.py")]
        near = difflib.get_close_matches(place, files, n=1, cutoff=0.5)
        hint = f"Did you mean {near[0]!r}?" if near else "Give the path of its file, ending in .py, or put its folder on PYTHONPATH."
        raise ValueError(f"your methods: no module {place!r}. {hint}") from error
    except Exception as error:
        raise ValueError(f"your methods: {place} cannot be imported: {type(error).__name__}: {error}") from error


def _from_file(path: Path) -> types.ModuleType:
    """The module in a file, read anew if it has changed, under a name that is the same in every process.

    Its classes go to other processes as they are, since those cannot import them; the name is part of what the cache calls them.
    """
    source = path.read_bytes()
    digest = hashlib.blake2b(source).hexdigest()
    if _READ.get(path, ("",))[0] != digest:
        module = types.ModuleType(f"own_{path.stem}")
        module.__file__ = str(path)
        before = sys.modules.get(module.__name__)
        # A dataclass looks for the module of its annotations.
        sys.modules[module.__name__] = module
        try:
            exec(compile(source, str(path), "exec"), vars(module))
        except Exception as error:
            sys.modules.pop(module.__name__)
            if before is not None:
                sys.modules[module.__name__] = before
            hint = f". Put its folder on PYTHONPATH: {path.parent}" if isinstance(error, ModuleNotFoundError) else ""
            raise ValueError(f"your methods: {path} cannot be read: {type(error).__name__}: {error}{hint}") from error
        linecache.checkcache(str(path))
        for name in ("joblib.externals.cloudpickle", "cloudpickle"):
            with contextlib.suppress(ImportError):
                importlib.import_module(name).register_pickle_by_value(module)
        _READ[path] = digest, module
    return _READ[path][1]
