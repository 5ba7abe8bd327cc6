"""Who a method is, for the cache: a class of this package by its name and ``version``, any other by where it comes from and what it does.

A class written elsewhere (a notebook cell, a user's module) changes without telling anyone. Its identity therefore holds the compiled code
of its own methods and of those it inherits, the values of its class attributes, and whatever of the user's own they name: functions,
classes, constants, arrays, and what they name of modules, wherever these are imported. All is taken as it was loaded, since a file may
have been edited after. Comments and layout do not count. What cannot be seen that way is said in a warning.
"""

import collections
import copyreg
import dataclasses
import dis
import functools
import hashlib
import importlib.util
import inspect
import logging
import re
import sys
import sysconfig
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

PACKAGE = __name__.split(".")[0]
LIBRARIES = tuple(str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
# A user's dataclass goes to another process with its fields, whose "no default" must be the one that is known there.
copyreg.pickle(type(dataclasses.MISSING), lambda value: "MISSING")
PLAIN = bool | int | float | complex | str | bytes | type(None) | type(...)


def name_of(cls: type) -> str:
    """How a cache key calls ``cls``: its plain name for a class of this package, else ``module.name#hash`` of all that it does.

    Computed anew at every call, since a function that the class calls may have been defined anew. Warns, naming them, of objects that the
    class uses and whose content cannot be determined: raising ``version`` is then up to the author.
    """
    if _is_ours(cls.__module__):
        return cls.__name__
    scan = _Scan()
    scan.add(cls)
    # What a protocol reads is known by its images.
    if unseen := scan.unseen if hasattr(cls, "build") else scan.unseen | scan.reads:
        warnings.warn(
            f"{cls.__name__} uses {', '.join(sorted(unseen))}, whose content the cache cannot see: when it changes, "
            "earlier results are still read. Give the class a field `version: int = 1` and raise it with every such change",
            stacklevel=2,
        )
    return f"{cls.__module__}.{cls.__qualname__}#{scan.hash.hexdigest()}"


def reads_files(cls: type) -> bool:
    """Whether the code of a user's class reads files or the environment, as far as one sees it."""
    scan = _Scan()
    scan.add(cls)
    return bool(scan.reads)


def _is_ours(module: str) -> bool:
    return module.split(".")[0] == PACKAGE


def is_library(module: str) -> bool:
    """Whether ``module`` is part of Python, of an installed package or of this one: versions tell those apart."""
    top = module.split(".")[0]
    if top == "__main__":
        return False
    if _is_ours(module):
        return True
    # A user's module may be called like one of Python's.
    file = getattr(sys.modules.get(module) or sys.modules.get(top), "__file__", None)
    return _installed(file) if file else top in sys.stdlib_module_names


@functools.cache
def _installed(file: str) -> bool:
    return str(Path(file).resolve()).startswith(LIBRARIES)


class _Scan:
    """A hash that user code is fed into, each object once. unseen, reads: what of it has no hash, and where it reads from outside."""

    def __init__(self):
        self.hash = hashlib.blake2b(digest_size=10)
        self.seen: dict[int, tuple[int, Any]] = {}  # kept, so that none of them makes room for another with its id
        self.modules: set[tuple[int, frozenset[str]]] = set()
        self.unseen: set[str] = set()
        self.reads: set[str] = set()

    def _write(self, *words: object) -> None:
        for word in words:
            self.hash.update(repr(word).encode() + b"\0")

    def add(self, value: Any, name: str = "") -> None:
        """Feed ``value``, called ``name`` where it is used."""
        value = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, PLAIN | range | slice):
            self._write(type(value).__name__, value)
        elif isinstance(value, np.ndarray) and value.dtype.kind not in "biufc":  # words, objects
            self._write("array", value.dtype.kind, value.shape)
            self.add(value.tolist(), name)
        elif isinstance(value, torch.Tensor | np.ndarray):
            array = value.detach().cpu().contiguous() if isinstance(value, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(value))
            self._write("array", array.dtype, tuple(array.shape))
            self.hash.update(array.reshape(-1).view(torch.uint8).numpy().data if array.numel() else b"")
        elif isinstance(value, list | tuple | set | frozenset | dict):
            self._container(value, name)
        elif id(value) in self.seen:
            self._write("seen", self.seen[id(value)][0])
        else:
            self.seen[id(value)] = len(self.seen), value
            self._object(value, name)

    def _container(self, value: Any, name: str) -> None:
        items = list(value.items()) if isinstance(value, dict) else list(value)
        # The order of a set, and so of its hash, differs between processes.
        for item in sorted(items, key=repr) if isinstance(value, set | frozenset) else items:
            self.add(item, name)
        self._write(type(value).__name__, len(items))
        if type(value) not in (list, tuple, set, frozenset, dict):
            self.add(type(value), name)
            self.add(getattr(value, "default_factory", None), name)

    def _object(self, value: Any, name: str) -> None:
        value = inspect.unwrap(value, stop=_is_own_function) if callable(value) else value
        function = getattr(value, "__func__", value)  # of static, class and bound methods
        if isinstance(value, types.MethodType | types.BuiltinFunctionType) and not isinstance(value.__self__, types.ModuleType):
            self.add(value.__self__, name)
        if isinstance(value, property):
            for part in (value.fget, value.fset, value.fdel):
                self.add(part, name)
        elif isinstance(value, functools.partial):
            for part in (value.func, value.args, value.keywords):
                self.add(part, name)
        elif isinstance(value, functools.cached_property):
            self.add(value.func, name)
        elif isinstance(function, types.FunctionType):
            self._library(function) or self._function(function)
        elif isinstance(value, type):
            self._library(value) or self._class(value)
        elif isinstance(value, types.ModuleType):
            self._module(value, frozenset(vars(value)) - SYSTEM)
        elif isinstance(value, re.Pattern):
            self._write("pattern", value.pattern, value.flags)
        elif isinstance(value, torch.dtype | torch.device | Path | logging.Logger):
            self._write(type(value).__name__, str(value))
        elif isinstance(value, BUILTIN):
            self._write(type(value).__name__, getattr(value, "__name__", ""))
        elif hasattr(value, "__dict__"):
            self.add(type(value), name)
            self.add(vars(value), name)
        else:
            self.unseen.add(name or repr(value))

    def _library(self, value: Any) -> bool:
        if known := is_library(_module_of(value)):
            self._write(value.__module__, value.__qualname__, getattr(value, "version", None))
        return known

    def _class(self, cls: type) -> None:
        self._write("class", cls.__qualname__)
        for base in cls.__bases__:
            self.add(base)
        for field in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
            self._write(field.name)
            self.add([] if field.default_factory is dataclasses.MISSING else field.default_factory, field.name)
        for name, value in sorted(vars(cls).items()):
            # What ``dataclass`` writes follows from the fields. Its code's file name is no sign of it: pickling by value may change that.
            written = getattr(getattr(value, "__code__", None), "co_qualname", "").startswith("__create_fn__.")
            if name not in GENERATED and not name.startswith("__dataclass") and not written:
                self._write(name)
                self.add(value, f"{cls.__name__}.{name}")

    def _function(self, function: types.FunctionType) -> None:
        self._code(function.__code__)
        self.add(function.__defaults__)
        self.add(function.__kwdefaults__)
        for cell, name in zip(function.__closure__ or (), function.__code__.co_freevars, strict=True):
            self._write(name)
            self.add(cell.cell_contents if _filled(cell) else None, name)
        if "__wrapped__" in vars(function):
            self.add(function.__wrapped__)
        self.add({name: value for name, value in vars(function).items() if name != "__wrapped__"})
        self.reads |= {f"{what} in {function.__qualname__}" for what in _reads(function.__code__)}
        names = frozenset(_names(function.__code__))
        self._named(function.__globals__, frozenset(_global_names(function.__code__)), names)
        for name in sorted(set(_imported(function.__code__, function.__globals__.get("__package__")))):
            try:
                self._module(importlib.import_module(name), names)
            except ImportError:  # of what only some machines have; whoever needs it is told when it runs
                self._write("absent", name)

    def _code(self, code: types.CodeType) -> None:
        self._write(code.co_code, code.co_names, code.co_varnames)
        for constant in code.co_consts:
            self._code(constant) if isinstance(constant, types.CodeType) else self.add(constant)

    def _module(self, module: types.ModuleType, names: frozenset[str]) -> None:
        """Feed what code that uses ``names`` uses of ``module``."""
        self._write("module", module.__name__)
        if is_library(module.__name__) or (id(module), names) in self.modules:
            return
        self.modules.add((id(module), names))
        self._named(vars(module), names, names)

    def _named(self, space: dict[str, Any], names: frozenset[str], within: frozenset[str]) -> None:
        """Feed what ``names`` stand for in a module's name space; within: names that may be looked up in what is a module of them."""
        for name in sorted(names & space.keys()):
            self._write(name)
            value = space[name]
            self._module(value, within) if isinstance(value, types.ModuleType) else self.add(value, name)


# Written in C; told by their names.
BUILTIN = (
    *(types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType),
    *(types.MemberDescriptorType, types.MethodWrapperType, types.ClassMethodDescriptorType, np.ufunc),
    type(collections.namedtuple("One", "field").field),
)
# What every class has, what follows from the rest of it, and what pickling leaves in it.
GENERATED = (
    *("__module__", "__dict__", "__weakref__", "__doc__", "__qualname__", "__firstlineno__", "__static_attributes__", "__annotations__"),
    *("__match_args__", "__slots__", "__hash__", "__abstractmethods__", "_abc_impl", "__parameters__", "__protocol_attrs__"),
    *("_is_protocol", "_is_runtime_protocol", "__annotate_func__", "__annotations_cache__", "__slotnames__"),
)
# Files and the environment: by name, and what reads a file whatever it is looked up on.
OUTSIDE = {"open", "os.environ", "os.getenv", "np.load", "numpy.load", "torch.load", "json.load", "pickle.load"}
READERS = {"read_text", "read_bytes", "loadtxt", "genfromtxt", "fromfile", "imread", "load_file", "read_csv", "read_parquet"}
# Instructions that look a name up in the module.
GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
# What Python puts into every module.
SYSTEM = frozenset(vars(types.ModuleType(""))) | {"__builtins__", "__cached__", "__file__", "__path__"}


def _filled(cell: types.CellType) -> bool:
    """Whether the name of a closure is bound by now."""
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _is_own_function(value: Any) -> bool:
    """Whether ``value`` is a function that a user wrote; a decorator of a library's (``torch.no_grad``) is looked through."""
    return isinstance(value, types.FunctionType) and not is_library(_module_of(value))


def _module_of(value: Any) -> str:
    """Where ``value`` was written; ``functools.wraps`` gives a decorator's function the ``__module__`` of what it decorates."""
    space = getattr(value, "__globals__", None)
    return (isinstance(space, dict) and space.get("__name__")) or value.__module__ or ""


def _names(code: types.CodeType) -> Iterator[str]:
    """Names that the code and the code within it look up outside themselves."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _global_names(code: types.CodeType) -> Iterator[str]:
    """Those of them that are looked up in the module, and not on an object."""
    yield from (step.argval for step in dis.get_instructions(code) if step.opname in GLOBAL)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)


def _reads(code: types.CodeType) -> Iterator[str]:
    """What the code and the code within it read from outside Python, as far as one sees it."""
    before = ""
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD"):
            found = f"{before}.{step.argval}" if step.opname in ("LOAD_ATTR", "LOAD_METHOD") else step.argval
            if found in OUTSIDE or step.argval in READERS:
                yield found
            before = step.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _reads(constant)


def _imported(code: types.CodeType, package: str | None) -> Iterator[str]:
    """Full names of the modules that the code and the code within it, of a module in ``package``, import when they run."""
    level = 0
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME" and (package or not level):
            yield importlib.util.resolve_name("." * level + step.argval, package)
        # The level of a relative import is loaded before the names that it imports.
        elif step.opname == "LOAD_CONST" and isinstance(step.argval, int):
            level = step.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _imported(constant, package)
