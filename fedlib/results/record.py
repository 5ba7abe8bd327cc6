"""What belongs to one run: its files, and ``run.json``, which says how they were made.

``run.json`` is written last and lists the files with their digests. It is removed when a file of its folder is written again: a folder
without it is incomplete, and a file that it does not list is of another run.
"""

import hashlib
import json
import platform
import subprocess
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

import fedlib
from fedlib.tools.files import atomic
from fedlib.tools.parameters import PROJECT, in_project

RESULTS = {".csv", ".tex", ".png", ".svg"}
ACCOUNTS = "federations.json"  # the trainings behind the results, for ``fedlib.commands.export``
_written: dict[Path, dict[str, str]] = {}  # folder -> file -> digest, of what this process has written
_begun: dict[Path, str] = {}  # folder -> what the last study of this process that writes there was asked for
_accounts: list[dict] | None = None  # of the trainings that the study at work has used; None outside studies


@contextmanager
def result(path: Path) -> Iterator[Path]:
    """``atomic`` for a file that ``run.json`` is going to list; the one that says how an earlier file was made is removed."""
    with atomic(path) as temporary:
        yield temporary
        digest = _digest(temporary)
        path.with_name("run.json").unlink(missing_ok=True)
    _written.setdefault(path.parent.resolve(), {})[path.name] = digest


def begin(folder: Path, facts: dict) -> None:
    """Forget what this process has written to ``folder`` for a study that was asked for something else: those files are of another run.
    Raises as ``check_free``."""
    check_free(folder)
    folder, asked = folder.resolve(), json.dumps(facts, sort_keys=True)
    if _begun.setdefault(folder, asked) != asked:
        _begun[folder] = asked
        _written.pop(folder, None)


def check_free(folder: Path) -> None:
    """Raise ValueError for a folder of committed results, those that ``figures/README.md`` lists."""
    folder, page = folder.resolve(), PROJECT / "figures" / "README.md"
    if not (folder.is_relative_to(page.parent) and (folder / "run.json").exists() and page.exists()):
        return
    if f"| `{folder.relative_to(page.parent).as_posix()}` |" in page.read_text(encoding="utf-8"):
        raise ValueError(f"parameter output: {in_project(folder)} holds committed results: name another folder, or move it away first")


def remember(accounts: Iterable[dict]) -> None:
    """Keep the accounts of trainings (``fedlib.start.account``) on which results rest, within ``remembered_in``."""
    if _accounts is not None:
        _accounts.extend(accounts)


@contextmanager
def remembered_in(accounts: list[dict]) -> Iterator[None]:
    """Let ``remember`` keep in ``accounts`` what this process uses meanwhile: a kernel may run several studies."""
    global _accounts
    outside, _accounts = _accounts, accounts
    try:
        yield
    finally:
        _accounts = outside


def strangers(folder: str | Path) -> list[str]:
    """Result files in ``folder`` that its ``run.json`` does not list, or lists with another content: they are of another run."""
    record = Path(folder) / "run.json"
    return _not_listed(Path(folder), json.loads(record.read_text(encoding="utf-8")).get("files", {}) if record.exists() else {})


def write_run(
    folder: str | Path,
    *,
    profile: str,
    seeds: Sequence[int],
    device: str,
    duration_seconds: float,
    cache_hits: int,
    accounts: list[dict],
    not_made: Mapping[str, str] | None = None,
    cpu_threads: int = 1,
    **facts,
) -> None:
    """``run.json``: what is given (``facts``: any JSON values) with versions, commit, processor, the threads that trained
    (``cpu_threads``), time of writing (UTC), the digest of every file that this process has written to ``folder``, and the identity of the
    run: a hash of all that may determine its numbers; what was asked for by name and could not be made, with the reason (``not_made``);
    beside it the ``accounts`` of its trainings, if any. Write it last; a warning and the field ``strangers`` name result files in the
    folder that are not of this run."""
    folder = Path(folder)
    document = {
        "profile": profile,
        "seeds": list(seeds),
        "device": str(device),
        "cpu_threads": cpu_threads,
        "versions": {
            "fedlib": fedlib.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "commit": _commit(),
        "processor": _processor(),
        **facts,
    }
    identity = hashlib.blake2b(json.dumps(document, sort_keys=True, allow_nan=False).encode(), digest_size=8).hexdigest()
    document |= {
        "identity": identity,
        "duration_seconds": round(float(duration_seconds), 1),
        "cache_hits": int(cache_hits),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "files": {name: digest for name, digest in sorted(_written.get(folder.resolve(), {}).items()) if (folder / name).exists()},
    }
    if not_made:
        document["not_made"] = dict(not_made)
    if others := _not_listed(folder, document["files"]):
        warnings.warn(f"{folder} also holds files of another run: {', '.join(others)}", stacklevel=2)
        document["strangers"] = others
    if accounts:
        with atomic(folder / ACCOUNTS) as path:
            path.write_text(json.dumps({"identity": identity, "federations": accounts}), encoding="utf-8")
    with atomic(folder / "run.json") as path:
        path.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _not_listed(folder: Path, files: dict[str, str]) -> list[str]:
    return sorted(path.name for path in folder.glob("[!.]*") if path.suffix in RESULTS and files.get(path.name) != _digest(path))


def _digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()


def _commit() -> str | None:
    """The commit that ran, with ``+changes`` where tracked code differs from it; None outside a checkout."""
    try:
        # A folder inside another checkout has no commit of its own.
        if Path(_git("rev-parse", "--show-toplevel")).resolve() != PROJECT:
            return None
        changes = _git("status", "--porcelain", "--untracked-files=no", "fedlib", "notebooks")
        return _git("rev-parse", "--short=12", "HEAD") + ("+changes" if changes else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=PROJECT, capture_output=True, text=True, check=True, timeout=20).stdout.strip()


def _processor() -> str:
    """Name of the processor, and the instructions that torch uses on it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{(names or [platform.processor() or platform.machine()])[0]}, {torch.backends.cpu.get_cpu_capability()}"
