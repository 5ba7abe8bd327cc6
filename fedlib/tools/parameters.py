"""What every notebook needs besides its paper: strict parameters, and where results go.

A notebook's parameters cell is tagged for papermill, begins with the comment ``# Parameters`` and assigns builtin values only. papermill
puts what the caller gave into a cell that begins in the same way, and lets misspelt names pass; here they are refused before any work.
"""

import ast
import dataclasses
import hashlib
import json
import math
import os
import sysconfig
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from fedlib.tools.names import check_name

MARK = "# Parameters"
_CHECKOUT = Path(__file__).resolve().parents[2]
# Where results and the cache go: the checkout, or for an installed package the folder in which the command was started.
PROJECT = _CHECKOUT if (_CHECKOUT / "notebooks").is_dir() else Path(os.environ.get("FEDLIB_HOME") or Path.cwd())
NOTEBOOKS = PROJECT / "notebooks" if PROJECT == _CHECKOUT else Path(sysconfig.get_path("data")) / "share" / "fedlib" / "notebooks"
PROFILES = ("smoke", "small", "paper")
T = TypeVar("T")


def read_parameters(cls: type[T], namespace: Mapping[str, Any]) -> T:
    """``cls``, a dataclass whose fields are the notebook's parameters, filled from the notebook's variables (``globals()``).

    Raises ValueError for a name that a parameters cell assigns and ``cls`` does not have (with the closest valid one), for a field that
    no cell assigns, and for a value of the wrong type; ``cls`` itself checks ranges and names.
    """
    hints = typing.get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]
    # The latest run of each parameters cell, the notebook's own and papermill's: what was typed before and corrected since does not count.
    latest = {source.lstrip().split("\n", 1)[0]: source for source in namespace.get("In", []) if source.lstrip().startswith(MARK)}
    for name in (name for source in latest.values() for name in _assigned(source)):
        check_name(name, names, "parameter")
    missing = [name for name in names if name not in namespace]
    if missing:
        raise ValueError(f"parameters not set: {', '.join(missing)}. Run the parameters cell first")
    return cls(**{name: _checked(name, namespace[name], hints[name]) for name in names})


def _assigned(source: str) -> list[str]:
    targets = [t for node in ast.parse(source).body for t in getattr(node, "targets", [getattr(node, "target", None)])]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _checked(name: str, value: Any, hint: Any) -> Any:
    """``value`` if it fits ``hint`` (builtin types, ``| None``, lists of them); an integer passes for a float."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for option in options:
        origin = typing.get_origin(option) or option
        if origin is list and isinstance(value, list | tuple):
            return [_checked(f"{name}[{i}]", item, typing.get_args(option)[0]) for i, item in enumerate(value)]
        if origin is float and isinstance(value, int | float) and not isinstance(value, bool):
            if not math.isfinite(value):
                raise ValueError(f"parameter {name} must be a finite number, got {value}")
            return float(value)
        if isinstance(value, origin) and not (origin is int and isinstance(value, bool)):
            return value
    one_of = any(typing.get_origin(option) is list and isinstance(value, typing.get_args(option)[0]) for option in options)
    remedy = f": write [{value!r}]" if one_of else ""
    if isinstance(value, str) and value.startswith("["):
        remedy = f": with papermill, -y '{name}: {value}'"
    raise ValueError(f"parameter {name} must be {' or '.join(map(_name, options))}, got {value!r} ({type(value).__name__}){remedy}")


def _name(hint: Any) -> str:
    return "None" if hint is type(None) else getattr(hint, "__name__", str(hint)) if not typing.get_args(hint) else str(hint)


def declared(path: Path) -> dict[str, Any]:
    """Names and values of the tagged parameters cell of a notebook; none without the file."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"] if path.exists() else []
    source = "".join("".join(cell["source"]) for cell in cells if "parameters" in cell["metadata"].get("tags", ()))
    return {node.targets[0].id: ast.literal_eval(node.value) for node in ast.parse(source).body}


def in_project(path: Path) -> Path:
    """``path`` relative to the project where it lies inside."""
    return path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path


def from_here(path: Path) -> Path:
    """``path`` as someone in the current folder would name it: relative where it lies inside, else whole."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def output_folder(output: str | None, profile: str, paper: str, changes: Mapping[str, Any] | None = None) -> Path:
    """Where a notebook writes: ``output`` (relative to the project), or ``figures/<profile>/<paper>``, where parameters that differ from
    the profile's (``changes``: name -> value) put their names and a digest of their values behind the profile.

    Raises ValueError for a folder of the kit itself."""
    if not output and changes:
        digest = hashlib.blake2b(json.dumps(changes, sort_keys=True).encode(), digest_size=3).hexdigest()
        profile = "-".join([profile, *sorted(changes)])[:60].rstrip("-_") + f"-{digest}"
    folder = PROJECT / Path(output or f"figures/{profile}/{paper}").expanduser()
    if PROJECT == _CHECKOUT and folder.resolve().is_relative_to(PROJECT):
        parts = folder.resolve().relative_to(PROJECT).parts
        if parts[:1] in ((), ("fedlib",), ("notebooks",), ("tests",)) or parts == ("figures",):
            raise ValueError(f"parameter output is {output}, where the kit itself is: name a folder for the results, such as figures/mine")
    return folder
