"""Export the trained federations of a finished run, to start from later: ``fedlib export figures/mine/fedthe``.

``pretrained/`` beside the results then holds, of every training behind them, the states before the last rounds that were evaluated, and the
personal parts up to 256 KB, or what they carry from round to round where that is less (FedRoD, FedRep, TTT). Larger ones are fitted again
to the received model or, where they live through all rounds (Ditto, APFL), left out with their methods, as the manifest says. Trainings
that many methods start from come first, until the size given by --limit. Everything is read from the run's cache, nothing is computed.
``fedlib campaign`` does this by itself for every entry that it ends.
"""

import argparse
import json
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

from fedlib.cache.contents import manifest_of, sized
from fedlib.cache.store import Store, Tensors, write
from fedlib.cache.trim import SMALL
from fedlib.commands.folders import existing
from fedlib.results.record import ACCOUNTS
from fedlib.start import FOLDER, FORMAT, MANIFEST, Pretrained, carried_name, digest_of, merged, pretrained
from fedlib.tools.files import atomic
from fedlib.tools.parameters import PROJECT

LIMIT = 4e6  # bytes of an export
# What of a server's state is read after training: the model, and the parts of it that stay with clients.
READ = ("model/", "client_model/")
# Of run.json, what an export repeats.
FACTS = ("profile", "seeds", "device", "cpu_threads", "versions", "commit", "processor", "date", "identity", "parameters")


@dataclass
class _Export:
    """What is going to be written: file -> (place, tensors, manifest), and the lists of ``fedlib.start``'s manifest."""

    files: dict[str, tuple[str, Tensors, dict]] = field(default_factory=dict)
    federations: list[dict] = field(default_factory=list)
    states: list[dict] = field(default_factory=list)
    parts: list[dict] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(_size(tensors) for _, tensors, _ in self.files.values())

    def add(self, federation: dict, store: Store, limit: float) -> None:
        """One training with its personal parts, as far as the limit allows."""
        key, name = federation["training"], f"{', '.join(federation['measured'])} (seed {federation['seed']})"
        manifest = manifest_of(store.folder("train", key))
        measured = {int(t) for told in federation["measured"].values() for t in told["rounds"]}
        # In the last round, clients outside its cohort hold the state before.
        earlier = {t - 1 for t in measured if t == federation["rounds"] > 1 and manifest.get("participation", 1) < 1}
        new, states = {}, []
        for t in sorted(measured | earlier):
            held = _state(store, key, t)
            if held is None:
                self.left_out.append(f"{name}: the cache does not hold the state before round {t}")
                return
            state = {name: tensor for name, tensor in held.items() if name.startswith(READ)}
            file = f"{key}-round-{t:05d}.safetensors"
            new[file] = f"{key}/round-{t:05d}", state, manifest
            # Who trains on needs all of it (``fedlib import``).
            states.append({"training": key, "round": t, "file": file, "whole": len(state) == len(held)})
        extra = sum(_size(tensors) for file, (_, tensors, _) in new.items() if file not in self.files)
        if self.size + extra > limit:
            self.left_out.append(f"{name}: the training's {extra / 1e6:.1f} MB exceed the limit")
            return
        self.states += [state for state in states if state["file"] not in self.files]
        self.files |= new
        told = {method: part for method, part in federation["measured"].items() if self._part(method, part, store, limit)}
        self.federations.append(federation | {"manifest": manifest, "measured": told})

    def _part(self, method: str, told: dict, store: Store, limit: float) -> bool:
        """Add the personal parts of a method, or where these are large what they carry into the last round, from which a phase makes them
        again, as far as the limit allows; whether the method can start from what is exported."""
        key = told["part"]
        for t in map(int, told["rounds"] if key else ()):
            found = {name: store.load("personalize", key, name) for name in (f"round-{t:05d}", carried_name(t))}
            # Who asks for more than usual asks for the large ones.
            room = limit - self.size if limit > LIMIT else min(SMALL, limit - self.size)
            fits = [
                name
                for name, tensors in found.items()
                if f"{key}-{name}.safetensors" in self.files or (tensors is not None and _size(tensors) <= room)
            ]
            if fits:
                self._add_part(key, fits[0], found[fits[0]], manifest_of(store.folder("personalize", key)))
            elif told["persists"]:
                sizes = [f"has {_size(tensors) / 1e6:.2f} MB" for tensors in found.values() if tensors is not None]
                what = sizes[0] if sizes else "is not in the cache"
                self.left_out.append(f"{method}: its personal part, which lives through all rounds, {what}")
                return False
        return True

    def _add_part(self, key: str, name: str, tensors: Tensors, manifest: dict) -> None:
        file = f"{key}-{name}.safetensors"
        if file not in self.files:
            self.files[file] = f"{key}/{name}", tensors, manifest
            self.parts.append({"key": key, "name": name, "file": file, "manifest": manifest})


def export(run: Path, cache: Path, limit: float = LIMIT) -> Pretrained:
    """Write ``run/pretrained`` from the results in ``run`` and the cache that they were made with; what was there before is removed.

    Raises FileNotFoundError where the run's record or all of its states are absent, ValueError where the records belong to different runs.
    """
    run = existing(run)
    for name in ("run.json", ACCOUNTS):
        if not (run / name).is_file():
            raise FileNotFoundError(f"no {name} in {run}: execute the notebook again to write it, which takes minutes with its cache")
    record, accounts = (json.loads((run / name).read_text(encoding="utf-8")) for name in ("run.json", ACCOUNTS))
    if record["identity"] != accounts["identity"]:
        raise ValueError(f"run.json and {ACCOUNTS} in {run} belong to different runs: execute the notebook again")
    found, store = _Export(), Store(cache)
    for federation in sorted(merged(accounts["federations"]), key=lambda f: (f["seed"], -len(f["measured"]))):
        found.add(federation, store, limit)
    if not found.federations:
        first, *others = found.left_out or ["no training"]
        why = f"{first}{f' (and {len(others)} more)' if others else ''}"
        raise FileNotFoundError(f"nothing of {run} can be exported from the cache {cache}: {why}. --cache names the run's own")
    # Beside the old one, which goes when the new one is whole.
    final, folder = run / FOLDER, run / f".{FOLDER}-new"
    shutil.rmtree(folder, ignore_errors=True)
    for file, (place, tensors, manifest) in found.files.items():
        write(folder / file, place, tensors, manifest)
    document = {
        "format": FORMAT,
        "run": {name: record[name] for name in FACTS},
        "files": {file: {"bytes": (folder / file).stat().st_size, "digest": digest_of(folder / file)} for file in sorted(found.files)},
        **{name: getattr(found, name) for name in ("left_out", "states", "parts", "federations")},
    }
    with atomic(folder / MANIFEST) as path:
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(final, ignore_errors=True)
    folder.rename(final)
    return pretrained(str(final))


def _state(store: Store, key: str, t: int) -> Tensors | None:
    """The server's state before round ``t``, with what clients keep."""
    state = store.load("train", key, f"round-{t:05d}")
    return None if state is None else state | (store.load("train", key, f"clients-{t:05d}") or {})


def _size(tensors: Tensors) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="fedlib export",
        description=__doc__,
        epilog="example: fedlib export figures/mine/fedthe --limit 5MB; then -p start figures/mine/fedthe/pretrained",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", type=Path, help="folder of the run's results, with its run.json")
    parser.add_argument("--cache", type=Path, default=PROJECT / "cache", help="cache folder of the run (default cache/)")
    parser.add_argument(
        "--limit", type=sized, default=LIMIT, metavar="SIZE", help="largest size (default 4MB); a larger one takes large personal parts too"
    )
    options = parser.parse_args(arguments)
    try:
        start = export(options.run, options.cache, options.limit)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(start, *(f"left out: {line}" for line in start.manifest["left_out"]), sep="\n")
    print(f"{sum(told['bytes'] for told in start.manifest['files'].values()) / 1e6:.2f} MB in {start.folder}")
