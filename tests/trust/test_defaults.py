"""Cache keys name only what differs from a default, so a changed default without a new version would read old results.

``defaults.json`` holds the defaults as they were; ``python -m tests.trust.test_defaults`` writes it anew, after a change that is meant or
for a method that has settled.
"""

import dataclasses
import importlib
import json
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedlib.adapt
import fedlib.personalize
import fedlib.train
from fedlib.augment.transform import Transform
from fedlib.cache.store import FORMAT, describe
from fedlib.core import Local, Schedule
from fedlib.stages.engine import Engine
from fedlib.tools.parameters import PROJECT

KEPT = Path(__file__).with_name("defaults.json")
FIGURES = PROJECT / "figures"


def methods() -> list[type]:
    """Every dataclass of the packages that hold methods."""
    packages = (fedlib.train, fedlib.personalize, fedlib.adapt)
    modules = [importlib.import_module(f"{p.__name__}.{m.name}") for p in packages for m in pkgutil.iter_modules(p.__path__)]
    return [c for m in modules for c in vars(m).values() if dataclasses.is_dataclass(c) and c.__module__ == m.__name__]


def described(default) -> object:
    try:
        return describe(default)
    except TypeError:
        return repr(default)


def current() -> dict[str, dict]:
    """Class -> field -> default, of everything that may stand in a key."""
    found = {}
    for cls in (*methods(), Local, Schedule, Engine, Transform):
        fields = [f for f in dataclasses.fields(cls) if f.repr]
        made = {f.name: f.default_factory for f in fields if f.default_factory is not dataclasses.MISSING}
        plain = {f.name: f.default for f in fields if f.default is not dataclasses.MISSING}
        found[f"{cls.__module__}.{cls.__name__}"] = {name: described(value) for name, value in plain.items()} | {
            name: described(make()) for name, make in made.items()
        }
    return {"format": FORMAT, "classes": found}


def outdated(kept: dict, now: dict) -> list[str]:
    """Classes of which a default changed, or went away, under the version it had."""
    if kept["format"] != now["format"]:
        return []
    names = kept["classes"].keys() & now["classes"].keys()
    pairs = {name: (kept["classes"][name], now["classes"][name]) for name in sorted(names)}
    return [n for n, (old, new) in pairs.items() if old.items() - new.items() and old.get("version") == new.get("version")]


def versions(described: object) -> Iterator[tuple[str, int]]:
    """The classes in a manifest, with their versions."""
    if isinstance(described, list):
        described = dict(enumerate(described))
    for name, inner in described.items() if isinstance(described, dict) else ():
        if isinstance(inner, dict) and "version" in inner:
            yield name, inner["version"]
        yield from versions(inner)


@pytest.mark.parametrize("path", sorted(FIGURES.glob("*/*/pretrained/manifest.json")), ids=lambda path: path.parts[-3])
def test_trained_federations_are_of_todays_versions(path):
    """Else their parts are fitted anew without a word. After a new version that moves no number of theirs, the manifest takes it over."""
    today = {(name.rpartition(".")[2], default["version"]) for name, default in current()["classes"].items() if "version" in default}
    manifest = json.loads(path.read_text(encoding="utf-8"))
    kept = [one["manifest"]["personalize"] for one in manifest["parts"]] + [one["manifest"]["train"] for one in manifest["federations"]]
    assert kept
    assert {pair for one in kept for pair in versions(one)} <= today


def test_a_changed_default_comes_with_a_new_version():
    kept, now = json.loads(KEPT.read_text()), json.loads(json.dumps(current()))
    assert outdated(hashable(kept), hashable(now)) == [], "raise the version of these classes, or FORMAT for those that have none"
    recorded = {name: fields for name, fields in now["classes"].items() if name in kept["classes"]}
    assert kept == now | {"classes": recorded}, "write tests/trust/defaults.json anew: python -m tests.trust.test_defaults"


def hashable(defaults: dict) -> dict:
    classes = {c: {n: json.dumps(v, sort_keys=True) for n, v in fields.items()} for c, fields in defaults["classes"].items()}
    return defaults | {"classes": classes}


def test_what_counts_as_outdated():
    kept = {"format": 1, "classes": {"A": {"lr": 0.1, "version": 1}, "B": {"steps": 3}}}
    more = {"format": 1, "classes": {"A": {"lr": 0.1, "clip": None, "version": 1}, "B": {"steps": 3}, "C": {}}}
    changed = {"format": 1, "classes": {"A": {"lr": 0.2, "version": 1}, "B": {"steps": 4}}}
    raised = {"format": 1, "classes": {"A": {"lr": 0.2, "version": 2}, "B": {"steps": 3}}}
    assert outdated(kept, kept) == outdated(kept, more) == outdated(kept, raised) == []
    assert outdated(kept, changed) == ["A", "B"]
    assert outdated(kept, changed | {"format": 2}) == []


if __name__ == "__main__":
    KEPT.write_text(json.dumps(current(), indent=1, sort_keys=True) + "\n")
