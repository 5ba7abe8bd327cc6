"""What the stage cache holds, and removing what is no longer needed.

``python -m fedlib.cache`` lists trainings with everything that was computed from them: paper, images, setting, method, rounds, size, days
since the last use. ``--remove`` removes those that the other options choose, the longest unused first: ``--paper atp``, ``--unused 30``
(days), ``--down-to 500MB``. What a run in progress uses is never removed; what was removed is computed again when it is asked for.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from filelock import FileLock, Timeout
from safetensors import safe_open

from fedlib.cache.store import ABOUT, DAMAGED, RUNS, dropped_from
from fedlib.published import PAPERS
from fedlib.tools.parameters import PROJECT

# Module of a protocol -> whose it is; others are called as their paper.
PROTOCOLS = {
    "brfl": "fedthe",
    "brfl_imagenet": "fedthe",
    "downstream": "fedthe",
    "btgfl": "btfl",
    "ttpfl": "atp",
    "validated": "comparison",
}
UNITS = {"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9}
STALE = 3600.0  # seconds after which a temporary file has no writer


@dataclass
class Entry:
    """A training and all that was computed from it. about: what the run that made it said of it; used: time of the last use."""

    key: str
    about: dict
    rounds: int
    used: float
    folders: list[Path] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(_stat(path).st_size for folder in self.folders for path in folder.glob("*") if path.is_file())

    def row(self) -> dict:
        about = {name: self.about.get(name, "?") for name in ("paper", "images", "setting", "training", "seed")}
        return about | {"rounds": self.rounds, "MB": self.size / 1e6, "unused for days": (time.time() - self.used) / 86400}


def entries(root: Path) -> list[Entry]:
    """The trainings in the cache at ``root``, the longest unused first, each with the personal parts and scores that belong to it."""
    found = {folder.name: _training(folder) for folder in _folders(root / "train")}
    owner = {name: name for name in found}
    for stage, above in (("personalize", "train"), ("adapt", "personal")):
        for folder in _folders(root / stage):
            key = owner.get(manifest_of(folder).get(above, ""))
            # What belongs to no training that is there any more is an entry of its own.
            entry = found.get(key) or found.setdefault(folder.name, Entry(folder.name, {}, 0, _stat(folder).st_mtime))
            owner[folder.name] = entry.key
            entry.folders.append(folder)
    return sorted(found.values(), key=lambda entry: entry.used)


def remove(root: Path, chosen: Iterable[Entry]) -> tuple[int, int]:
    """Remove entries that no run in progress uses; (bytes freed, entries that stay since a run uses them)."""
    freed, kept = 0, 0
    for entry in chosen:
        size = entry.size
        # Asked for each: a run may have begun since the first was removed.
        if last_use(entry.folders, entry.used) >= busy_since(root) or not _unlocked(folder / ".lock" for folder in entry.folders):
            kept += 1
            continue
        for folder in entry.folders:
            gone = folder.with_name(aside(folder.name))
            # What an interrupted removal has left.
            shutil.rmtree(gone, ignore_errors=True)
            # Out of sight at once, so that no reader finds half of it.
            folder.rename(gone)
            shutil.rmtree(gone)
        freed += size
    return freed, kept


def aside(name: str) -> str:
    """What a folder is called while it is being removed."""
    return f".{name}-removed"


def tidy(root: Path) -> int:
    """Remove files set aside as damaged, temporary files whose writer is gone, and what an interrupted removal left; how many."""
    for folder in root.glob(f"*/{aside('*')}"):
        shutil.rmtree(folder, ignore_errors=True)
    old = [path for path in root.glob("*/*/.*-*") if time.time() - path.stat().st_mtime > STALE]
    gone = [*old, *root.glob("*/*/*.damaged")]
    for path in gone:
        path.unlink(missing_ok=True)
    return len(gone)


def busy_since(root: Path) -> float:
    """When the first of the runs in progress began; infinity where there is none. Marks of runs that were killed are removed."""
    began = float("inf")
    for mark in (root / RUNS).glob("*"):
        with contextlib.suppress(FileNotFoundError):
            if _unlocked([mark]):
                mark.unlink()
            else:
                began = min(began, mark.stat().st_mtime)
    return began


def _unlocked(locks: Iterable[Path]) -> bool:
    for lock in locks:
        try:
            with FileLock(lock, timeout=0):
                pass
        except Timeout:
            return False
    return True


def _training(folder: Path) -> Entry:
    path = folder / ABOUT
    about = {"training": next(iter(manifest_of(folder).get("train", "?")))}
    with contextlib.suppress(FileNotFoundError, ValueError):
        about = dict(json.loads(path.read_text(encoding="utf-8")))
    protocol = about.get("protocol", "")
    names = [*(path.stem for path in folder.glob("round-*.safetensors")), *dropped_from(folder).get("names", [])]
    rounds = max((int(name.removeprefix("round-")) for name in names if name.startswith("round-")), default=1) - 1
    about |= {"paper": PROTOCOLS.get(protocol, protocol)} if protocol else {}
    return Entry(folder.name, about, rounds, last_use([folder], 0.0), [folder])


def last_use(folders: Iterable[Path], default: float) -> float:
    return max((_stat(path).st_mtime for folder in folders for path in (folder, folder / ABOUT)), default=default) or default


def _stat(path: Path) -> os.stat_result:
    """Of a file that another process may remove meanwhile: then all zeros."""
    try:
        return path.stat()
    except FileNotFoundError:
        return os.stat_result([0] * 10)


def _folders(stage: Path) -> list[Path]:
    return sorted(path for path in stage.glob("[!.]*") if path.is_dir())


def manifest_of(folder: Path) -> dict:
    """The readable key of a folder, from the header of one of its files; empty where there is none that can be read."""
    for path in folder.glob("[!.]*.safetensors"):
        with contextlib.suppress(*DAMAGED), safe_open(path, framework="pt") as file:
            return json.loads(file.metadata()["manifest"])
    return dropped_from(folder).get("manifest", {})


def sized(text: str) -> float:
    """Bytes of a size such as 500MB. Raises argparse.ArgumentTypeError for anything else."""
    number = re.fullmatch(r"([0-9.]+)\s*([KMG]?B?)", text.strip(), re.IGNORECASE)
    unit = number and number.group(2).upper()
    if not number or unit not in UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: write 500MB or 2GB")
    return float(number.group(1)) * UNITS[unit]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="fedlib cache", description=__doc__.splitlines()[0], epilog="example: fedlib cache --remove --paper atp --unused 30"
    )
    parser.add_argument("--cache", type=Path, default=PROJECT / "cache", help="its folder (default cache/)")
    parser.add_argument("--paper", action="append", help="only trainings on the benchmark of this paper; may be repeated")
    parser.add_argument("--unused", type=float, metavar="DAYS", help="only those not used for this many days")
    parser.add_argument(
        "--down-to", type=sized, metavar="SIZE", help="only as many as needed to leave this much in all, the longest unused first"
    )
    parser.add_argument("--remove", action="store_true", help="remove them; without this they are only listed")
    options = parser.parse_args(arguments)
    if (options.unused or 0) < 0:
        sys.exit(f"error: --unused must be at least 0 days, got {options.unused:g}")
    if not options.cache.is_dir():
        sys.exit(f"error: no cache folder {options.cache.resolve()}; give another one with --cache")
    known = entries(options.cache)
    names = dict.fromkeys([*PAPERS, *(entry.row()["paper"] for entry in known)])
    if unknown := set(options.paper or ()).difference(names):
        sys.exit(f"error: no paper {', '.join(sorted(unknown))}; known are {', '.join(names)}")
    total = sum(entry.size for entry in known)
    chosen = [entry for entry in known if not options.paper or entry.row()["paper"] in options.paper]
    if options.unused is not None:
        chosen = [entry for entry in chosen if time.time() - entry.used >= 86400 * options.unused]
    if options.down_to is not None:
        freed, kept = 0, []
        for entry in chosen:
            if total - freed > options.down_to:
                kept.append(entry)
                freed += entry.size
        chosen = kept
    if chosen:
        print(pd.DataFrame([entry.row() for entry in chosen]).to_string(index=False, float_format=lambda value: f"{value:.1f}"))
    print(f"{len(chosen)} of {len(known)} trainings, {sum(entry.size for entry in chosen) / 1e6:.0f} of {total / 1e6:.0f} MB")
    if options.remove:
        if not (options.paper or options.unused is not None or options.down_to is not None):
            sys.exit(f"error: say what to remove (--paper, --unused, --down-to); to remove everything, delete the folder {options.cache}")
        freed, kept = remove(options.cache, chosen)
        print(f"removed {freed / 1e6:.0f} MB and {tidy(options.cache)} leftovers; {kept} trainings stay, since a run in progress uses them")
