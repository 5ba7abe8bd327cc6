"""The stage cache: tensors under a key that names everything that determines them.

A file is safetensors with metadata: the manifest (the key's content, readable), the file's place, the names in order and a digest of the
tensors. It is written under a temporary name and renamed, so that a reader never sees half a file. A damaged, foreign, misplaced or
outdated file is set aside with a warning and computed again; nothing is ever unpickled.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import os
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from fedlib.cache.identity import is_library, name_of
from fedlib.tools.files import atomic

FORMAT = 2
ABOUT = "about.json"  # beside a training: what it is, for people; its time is that of the last use
DROPPED = "dropped.json"  # beside states that were dropped to save space: which (``fedlib.cache.trim``)
RUNS = ".runs"  # marks of the runs in progress, which hold their locks
REMEDY = "free disk space, make the folder writable, or set another cache folder"
DAMAGED = (SafetensorError, ValueError, KeyError, TypeError, OSError)  # what reading a file that is none raises
Tensors = dict[str, torch.Tensor]


def describe(value: Any) -> Any:
    """``value`` as plain JSON data. A dataclass becomes {class: fields that differ from their default}, its ``version`` always among them;
    ``fedlib.cache.identity`` says how a class is called.

    So a new field whose default leaves the numbers as they were keeps what is cached; a changed default needs a new ``version`` (or, for
    classes without one, a new ``FORMAT``).
    """
    if isinstance(value, type):
        return name_of(value)
    if dataclasses.is_dataclass(value):
        # What this package does not show changes no number; of what others hide nothing is known.
        fields = [f for f in dataclasses.fields(value) if f.repr or not is_library(type(value).__module__)]
        kept = [f.name for f in fields if f.name == "version" or not _has_default(value, f)]
        if not is_library(type(value).__module__):
            kept += _set_beside(value, {f.name for f in fields})
        return {name_of(type(value)): {name: describe(getattr(value, name)) for name in kept}}
    if isinstance(value, dict):
        return {str(k): describe(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        items = [describe(v) for v in value]
        return items if is_library(type(value).__module__) else {name_of(type(value)): items}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and math.isinf(value):
        # JSON has no word for them.
        return repr(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.Tensor | np.ndarray):
        # A user's method may hold what it was made with, such as a prior.
        return {"array": digest({"": torch.as_tensor(value)})}
    if hasattr(value, "__dict__") and not is_library(type(value).__module__):
        # An object of a user's plain class: its attributes stand for the fields.
        return {name_of(type(value)): {name: describe(v) for name, v in sorted(vars(value).items())}}
    remedy = f"; write it as text, {str(value)!r}" if isinstance(value, os.PathLike) else ""
    raise TypeError(f"a cache key cannot hold a {type(value).__name__}: {value!r}{remedy}")


def _set_beside(value: Any, fields: set[str]) -> list[str]:
    """Names of the attributes of a dataclass that are no fields, such as those of a subclass with an ``__init__`` of its own."""
    set_ = getattr(value, "__dict__", {}).keys() - fields
    return sorted(name for name in set_ if not isinstance(getattr(type(value), name, None), functools.cached_property))


def _has_default(value: Any, field: dataclasses.Field) -> bool:
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    try:
        return bool(getattr(value, field.name) == default)
    except (ValueError, RuntimeError):  # arrays say of every number whether it is equal
        return False


def key_of(manifest: dict) -> str:
    """Hash of a manifest: 20 hex digits."""
    text = json.dumps(describe(manifest), sort_keys=True, allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


def digest(tensors: Tensors) -> str:
    """Hash of names, types, shapes and bytes."""
    result = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        result.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        # An empty array of NumPy's may have no stride that bytes could take over.
        if tensor.numel():
            result.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return result.hexdigest()


def dropped_from(folder: Path) -> dict:
    """What was dropped from ``folder`` to save space: its manifest and the names of the files; empty where nothing (readable) says so."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((folder / DROPPED).read_text(encoding="utf-8"))
        if isinstance(found, dict) and isinstance(found.get("names"), list) and all(isinstance(name, str) for name in found["names"]):
            return found
    return {}


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _remedy(path: Path) -> str:
    """What to do about a cache file that cannot be written."""
    if path.is_dir():
        return f"{path} is a folder where a file belongs: remove it"
    file = next((above for above in path.parents if above.is_file()), None)
    return f"{file} is a file where a folder belongs: remove it, or set another cache folder" if file else REMEDY


class NotCached(LookupError):
    """What is asked for is not in a store that is only read, and would have to be computed."""


def write(path: Path, place: str, tensors: Tensors, manifest: dict) -> None:
    """Write ``tensors`` to a cache file. Raises OSError with the path and what to free when the disk refuses."""
    # The format sorts names; sums over all tensors (a gradient norm) need them in their own order to give the same bits.
    metadata = {"format": str(FORMAT), "digest": digest(tensors), "names": json.dumps(list(tensors)), "place": place}
    metadata["manifest"] = json.dumps(describe(manifest), sort_keys=True)
    # Clones, since the format refuses tensors that share memory.
    clones = {n: t.detach().cpu().clone(memory_format=torch.contiguous_format) for n, t in tensors.items()}
    try:
        with atomic(path) as temporary:
            save_file(clones, temporary, metadata)
    except (OSError, SafetensorError) as error:
        raise OSError(f"cannot write the cache file {path}: {error}; {_remedy(path)}") from error


def read(path: Path, place: str, device: str = "cpu") -> Tensors:
    """The tensors of a cache file. Raises one of ``DAMAGED`` for a file that is not what was written at ``place``."""
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        tensors = {n: file.get_tensor(n) for n in json.loads(metadata.get("names", "[]"))}
    if metadata.get("format") != str(FORMAT):
        raise ValueError(f"format {metadata.get('format')}, expected {FORMAT}")
    if metadata.get("place") != place:
        raise ValueError(f"it was written as {metadata.get('place')}")
    if metadata.get("digest") != digest(tensors):
        raise ValueError("the content does not match its digest")
    # Copies: the tensors as read are views of the file, and would change or fail with it.
    return {n: t.to(device, copy=True) for n, t in tensors.items()}


class Store:
    """A folder of cached tensors, loaded to ``device``. ``Store(None)`` keeps nothing. only_read: raise ``NotCached`` before computing;
    start: the trained federation that takes the place of training (``fedlib.start``), if any."""

    def __init__(self, root: str | Path | None, device: str = "cpu", *, only_read: bool = False, start: Any = None):
        self.root = None if root is None else Path(root).expanduser()
        self.device = device
        self.only_read = only_read
        self.start = start

    def folder(self, stage: str, key: str) -> Path:
        return self.root / stage / key

    def save(self, stage: str, key: str, name: str, tensors: Tensors, manifest: dict) -> None:
        """Write ``tensors`` under (stage, key, name). Raises OSError with the path and what to free when the disk refuses."""
        if self.root is not None:
            write(self.folder(stage, key) / f"{name}.safetensors", f"{key}/{name}", tensors, manifest)

    def load(self, stage: str, key: str, name: str) -> Tensors | None:
        """The tensors under (stage, key, name), or None where there are none that can be trusted."""
        if self.root is None:
            return None
        path = self.folder(stage, key) / f"{name}.safetensors"
        if not path.exists():
            return None
        try:
            return read(path, f"{key}/{name}", self.device)
        except DAMAGED as error:
            if not path.exists():  # dropped or set aside since
                return None
            # Where no file can be opened at all (too many are open), this one is not damaged.
            if path.is_file():
                path.open("rb").close()
            aside = path.with_suffix(".damaged")
            # Another process may have been faster; in a read-only folder the file stays, and saving the new one says so.
            with contextlib.suppress(OSError):
                os.replace(path, aside)
            warnings.warn(f"cache file {path} is damaged or foreign ({error}); set aside as {aside.name} and computed again", stacklevel=2)
            return None

    def names(self, stage: str, key: str) -> list[str]:
        """Names of the files under (stage, key), sorted."""
        if self.root is None or not self.folder(stage, key).exists():
            return []
        return sorted(p.stem for p in self.folder(stage, key).glob("[!.]*.safetensors"))

    def remove(self, stage: str, key: str, name: str) -> None:
        if self.root is not None:
            (self.folder(stage, key) / f"{name}.safetensors").unlink(missing_ok=True)

    def dropped(self, stage: str, key: str) -> list[str]:
        """Names of the files under (stage, key) that were dropped to save space; none where no file says so."""
        return [] if self.root is None else dropped_from(self.folder(stage, key)).get("names", [])

    def note(self, stage: str, key: str, about: dict) -> None:
        """Record for people what (stage, key) is, and that it is in use now. A cache that may not be written is used all the same."""
        if self.root is None or (self.only_read and not self.folder(stage, key).exists()):
            return
        path = self.folder(stage, key) / ABOUT
        with contextlib.suppress(OSError):
            if path.exists():
                os.utime(path)
                return
            with atomic(path) as temporary:
                temporary.write_text(json.dumps(about), encoding="utf-8")

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Mark the cache as used by a run in progress, so that what it uses from now on is not removed (``fedlib.cache``)."""
        with contextlib.ExitStack() as stack:
            if self.root is not None:
                # A cache that may not be written cannot be cleaned either.
                with contextlib.suppress(OSError):
                    mark = self.root / RUNS / uuid.uuid4().hex
                    mark.parent.mkdir(parents=True, exist_ok=True)
                    # After the lock is released, as Windows asks; left to the next run where it is held again by then.
                    stack.callback(_unlink, mark)
                    stack.enter_context(FileLock(mark))
            yield

    @contextlib.contextmanager
    def lock(self, stage: str, key: str) -> Iterator[None]:
        """A lock between processes that would compute the same thing; released when its holder dies. Raises OSError as ``save`` does, and
        NotCached where the store is only read."""
        if self.only_read:
            raise NotCached(f"{stage} {key}")
        if self.root is None:
            yield
            return
        folder = self.folder(stage, key)
        lock = FileLock(folder / ".lock")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except OSError as error:
            remedy = _remedy(folder / ".lock")
            raise OSError(f"cannot write into the cache folder {folder}: {error}; {remedy}") from error
        try:
            yield
        finally:
            lock.release()
