"""The package's front door: what ``import fedlib`` offers, how fast, and that the examples run."""

import doctest
import importlib
import subprocess
import sys

import pytest

import fedlib


@pytest.mark.parametrize("name", fedlib.__all__)
def test_every_public_name_is_there_and_documented(name):
    thing = getattr(fedlib, name)
    assert (thing.__doc__ or "").strip(), f"fedlib.{name} has no docstring"
    assert name in dir(fedlib)


def test_an_unknown_name_says_what_there_is():
    with pytest.raises(AttributeError, match=r"no attribute 'runn'; it offers .*run"):
        fedlib.runn  # noqa: B018


def test_the_import_alone_loads_nothing_heavy():
    code = "import sys, fedlib; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


EXAMPLES = ("fedlib", "fedlib.catalogue", "fedlib.data", "fedlib.core", "fedlib.extras", "fedlib.models.net", "fedlib.start")


@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_in_docstrings_run(module):
    result = doctest.testmod(importlib.import_module(module), optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert result.attempted
    assert result.failed == 0
