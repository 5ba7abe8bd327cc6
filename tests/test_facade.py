"""The package's front door: what ``import fedlib`` offers, how fast, and that the examples run."""

import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import fedlib
from fedlib.protocols import PROTOCOLS


@pytest.mark.parametrize("name", fedlib.__all__)
def test_every_public_name_is_there_and_documented(name):
    thing = getattr(fedlib, name)
    assert (thing.__doc__ or "").strip(), f"fedlib.{name} has no docstring"
    assert name in dir(fedlib)


SHOWN = ("run", "load", "Setting", "Recipe", "Schedule", "Local", "methods", "recipes_of", "register", "pretrained", "Net", "Clients")


@pytest.mark.parametrize("name", SHOWN)
def test_what_an_experiment_is_made_of_has_an_example(name):
    assert ">>> " in getattr(fedlib, name).__doc__


def test_an_unknown_name_says_what_there_is():
    with pytest.raises(AttributeError, match=r"no attribute 'runn'; it offers .*run"):
        fedlib.runn  # noqa: B018


def test_the_import_alone_loads_nothing_heavy():
    code = "import sys, fedlib; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


EXAMPLES = {
    "fedlib": ("",),
    "fedlib.catalogue": ("recipes_of", "methods"),
    "fedlib.data": ("load", "about"),
    "fedlib.core": ("Clients", "Local", "Schedule", "Recipe"),
    "fedlib.experiment": ("run",),
    "fedlib.setting": ("Setting",),
    "fedlib.start": ("pretrained",),
    "fedlib.extras": ("register",),
    "fedlib.models.net": ("Net",),
    "fedlib.tools.kept": ("kept",),
    **{protocol.__module__: (protocol.__name__,) for protocol in PROTOCOLS},
}


@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_in_docstrings_run(module):
    imported = importlib.import_module(module)
    found = {test.name for test in doctest.DocTestFinder().find(imported) if test.examples}
    assert found == {f"{module}.{name}".rstrip(".") for name in EXAMPLES[module]}
    result = doctest.testmod(imported, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert result.failed == 0


def test_every_module_with_an_example_is_run():
    package = Path(fedlib.__file__).parent
    written = {path.relative_to(package.parent) for path in package.rglob("*.py") if ">>> " in path.read_text(encoding="utf-8")}
    assert {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in written} == set(EXAMPLES)
