"""What a finished run leaves in the cache: its scores, and of the trainings behind them what is worth its space.

A run of a small profile asks for its scores again, hardly ever for the states and personal parts they came from. Of every training it used
these stay: the last states, from which a longer training goes on and to which further methods adapt, and the last personal parts. Where
that is still more than a run may leave, the trainings that can be repeated fastest (fewest rounds; the largest first) lose all of them.
Small files stay: notebooks show some personal parts (adaptation rates). What was dropped stands in ``dropped.json`` beside the files;
whoever needs it trains again, from the start, to the same bits.
"""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

from fedlib.cache.contents import Entry, busy_since, entries, last_use, manifest_of
from fedlib.cache.store import DROPPED, dropped_from
from fedlib.tools.files import atomic

LIMITS = {"smoke": 240e6, "small": float("inf")}  # bytes that a run may leave; the folders of 3,000 scores take 30 MB more
SMALL = 2**18  # bytes; personal parts up to this size are always kept


def trim(root: Path, since: float, limit: float) -> int:
    """Drop what need not stay of the trainings used since the time ``since``, but not what a run in progress uses; bytes freed."""
    used = [entry for entry in entries(root) if since <= entry.used and entry.folders[0].parent.name == "train"]
    freed = sum(_drop(root, entry, _superseded) for entry in used)
    left = {entry.key: entry.size for entry in used}
    total = sum(left.values())
    for entry in sorted(used, key=lambda entry: (entry.rounds, -left[entry.key])):
        if total <= limit:
            break
        more = _drop(root, entry, _states)
        freed, total = freed + more, total - more
    return freed


def _drop(root: Path, entry: Entry, which: Callable[[Path], list[Path]]) -> int:
    """Remove the files that ``which`` names in every folder of a training, unless somebody computes in one or uses it; bytes freed."""
    freed, folders = 0, [folder for folder in entry.folders if folder.parent.name != "adapt"]
    with contextlib.ExitStack() as locks, contextlib.suppress(Timeout):
        for folder in folders:
            locks.enter_context(FileLock(folder / ".lock", timeout=0))
        if last_use(entry.folders[:1], 0.0) >= busy_since(root):
            return 0
        for folder in folders:
            if paths := which(folder):
                names = {*dropped_from(folder).get("names", []), *(path.stem for path in paths)}
                # Said first: files that are there although they were dropped do no harm.
                with atomic(folder / DROPPED) as temporary:
                    temporary.write_text(json.dumps({"names": sorted(names), "manifest": manifest_of(folder)}), encoding="utf-8")
                for path in paths:
                    freed += path.stat().st_size
                    path.unlink()
    return freed


def _states(folder: Path) -> list[Path]:
    """All states of a training; the personal parts that are not small."""
    paths = sorted(folder.glob("[!.]*.safetensors"))
    return paths if folder.parent.name == "train" else [path for path in paths if path.stat().st_size > SMALL]


def _superseded(folder: Path) -> list[Path]:
    """States before the last round's: the one that its cohort received, and the previous one, which the other clients still hold, stay with
    the final one. Personal parts before the last, of each kind (``round``: evaluated, ``redrawn``: a checkpoint beside these)."""
    last = {}
    for path in _states(folder):
        last.setdefault(path.stem.split("-")[0], []).append(path)
    if folder.parent.name == "personalize":
        return [path for paths in last.values() for path in paths[:-1]]
    return last.get("round", [])[: -2 if manifest_of(folder).get("participation") == 1 else -3]
