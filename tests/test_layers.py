"""The package is a house of layers: imports point downwards only."""

import ast
from pathlib import Path

import fedlib

ROOT = Path(fedlib.__file__).parent
# From the ground up; what stands in one line does not know its neighbours, but for the three stages of a method.
LAYERS = (
    ("tools", "samples", "states"),
    ("data", "models"),
    ("augment", "published"),
    ("core",),
    ("stages", "setting"),
    ("cache", "results"),
    ("train", "personalize", "adapt"),
    ("federation", "further", "protocols"),
    ("plain",),
    ("start",),
    ("group",),
    ("experiment",),
    ("explore", "extras"),
    ("common", "plots"),
    ("paper", "catalogue"),
    ("ready",),
    ("study",),
    ("papers",),
    ("reproduce",),
    ("commands",),
    ("campaign",),
)
STAGES = {"train", "personalize", "adapt"}


def unit(module: str) -> str:
    return module.split(".")[1]


def imported() -> set[tuple[str, str]]:
    """(importing unit, imported unit) of every import at the top of a module; functions may ask for what they are told by name."""
    pairs = set()
    for path in ROOT.rglob("*.py"):
        own = path.relative_to(ROOT).with_suffix("").parts[0]
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedlib"):
                modules = [node.module] if "." in node.module else [f"fedlib.{alias.name}" for alias in node.names]
                pairs |= {(own, unit(module)) for module in modules}
    return {(a, b) for a, b in pairs if a != b and not a.startswith("__")}


def test_every_unit_has_a_layer():
    found = {path.stem for path in ROOT.iterdir() if (path.suffix == ".py" or path.is_dir()) and path.stem[0] != "_"}
    assert found == {name for layer in LAYERS for name in layer}


def test_imports_point_downwards():
    height = {name: k for k, layer in enumerate(LAYERS) for name in layer}
    upwards = {(a, b) for a, b in imported() if height[b] >= height[a] and not {a, b} <= STAGES}
    assert not upwards
    # The walk sees imports at all.
    assert ("study", "paper") in imported()
