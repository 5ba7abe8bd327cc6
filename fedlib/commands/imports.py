"""Put trained federations into the cache, as if they had been trained with it: ``fedlib import cifar10-jpeg/comparison-ttpfl``.

A run with the parameters of the one that they come from, on the same kind of device, then finds these trainings done, up to their last
states, and makes only what is missing, such as the training of a method of your own; one of more rounds goes on from there. (The parameter
``start`` trains nothing at all.) Names and paths are those of ``fedlib.pretrained``. What cannot be continued here is left out, with the
reason.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from fedlib.cache.store import DROPPED, Store, key_of, read
from fedlib.start import Pretrained, pretrained
from fedlib.tools.files import atomic
from fedlib.tools.parameters import PROJECT


def put(start: Pretrained, store: Store) -> Iterator[tuple[dict, str]]:
    """Write the last states and personal parts of every training to ``store``; each training, and why it was left out ("": it was not).

    Raises OSError where the store cannot be written.
    """
    for federation in start.federations:
        # What was made by an earlier version has files of other names; its manifest says what it counts as today.
        training, key = federation["training"], key_of(federation["manifest"])
        states = {state["round"]: state for state in start.manifest["states"] if state["training"] == training}
        if reason := _unfit(federation, states):
            yield federation, reason
            continue
        with store.lock("train", key):
            if store.names("train", key):
                yield federation, "the cache has it"
                continue
            # Where earlier states were dropped to save space, a training goes on from the last one.
            lacking = [f"round-{round:05d}" for round in range(1, max(states)) if round not in states]
            with atomic(store.folder("train", key) / DROPPED) as path:
                path.write_text(json.dumps({"names": lacking, "manifest": federation["manifest"]}), encoding="utf-8")
            for part in start.manifest["parts"]:
                if part["manifest"]["train"] == training:
                    tensors = read(start.folder / part["file"], f"{part['key']}/{part['name']}")
                    manifest = part["manifest"] | {"train": key}
                    store.save("personalize", key_of(manifest), part["name"], tensors, manifest)
            # Last, since who finds them takes the rest for done.
            for round, state in states.items():
                name = f"round-{round:05d}"
                store.save("train", key, name, read(start.folder / state["file"], f"{training}/{name}"), federation["manifest"])
        yield federation, ""


def _unfit(federation: dict, states: dict[int, dict]) -> str:
    """Why a training cannot be continued here, if it cannot."""
    if federation["manifest"]["torch"] != torch.__version__:
        return f"it was trained with torch {federation['manifest']['torch']}, and here is {torch.__version__}"
    if not all(state.get("whole") for state in states.values()):
        return "the export does not hold all that its server keeps from round to round"
    return ""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="fedlib import",
        description=__doc__,
        epilog="example: fedlib import cifar10-jpeg/comparison-ttpfl",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", help="a trained federation: its name, or the path of an export's folder")
    parser.add_argument("--cache", type=Path, default=PROJECT / "cache", help="cache folder (default cache/)")
    options = parser.parse_args(arguments)
    try:
        for federation, reason in put(pretrained(options.name), Store(options.cache)):
            what = f"{json.dumps(federation['manifest']['train'])}, {federation['setting']['label']}, seed {federation['seed']}"
            print(f"{what}, {federation['rounds']} rounds: {f'left out, {reason}' if reason else 'in the cache now'}")
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
