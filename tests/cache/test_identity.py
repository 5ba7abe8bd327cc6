import copy
import inspect
import subprocess
import sys
import textwrap
import warnings
from dataclasses import dataclass, field

import pytest
import torch

from fedlib.cache.identity import name_of
from fedlib.cache.store import describe
from fedlib.core import NoAdapt
from tests.tiny import Protocol

PLAIN = """
    @dataclass(frozen=True)
    class Mine:
        rate: float = 0.1
        version: int = 1

        def run(self, task, state, personal, stream):
            return helper(stream) * FACTOR
"""
HELPER = "def helper(x):\n    return x + 1\n"


def defined(source: str = PLAIN, before: str = HELPER + "FACTOR = 2", name: str = "Mine") -> type:
    """A class as a notebook's cells would define it."""
    space = {"__name__": "__main__", "dataclass": dataclass, "field": field, "torch": torch}
    exec(before, space)
    exec(textwrap.dedent(source), space)
    return space[name]


def test_classes_of_the_package_keep_their_plain_name():
    assert name_of(NoAdapt) == "NoAdapt"
    assert describe(NoAdapt()) == {"NoAdapt": {"version": 1}}


def test_a_class_of_the_same_name_is_another():
    impostor = defined(PLAIN.replace("Mine", "NoAdapt"), name="NoAdapt")
    assert describe(impostor()) != describe(NoAdapt())
    assert name_of(impostor).startswith("__main__.NoAdapt#")


def test_the_same_definition_is_the_same_method_whatever_its_comments():
    commented = PLAIN.replace("return helper", "# why not\n            return helper").replace(
        "class Mine:", 'class Mine:\n        "Doc."\n'
    )
    assert name_of(defined()) == name_of(defined()) == name_of(defined(commented))


@pytest.mark.parametrize(
    ("source", "before"),
    [
        (PLAIN.replace("* FACTOR", "/ FACTOR"), None),
        (PLAIN.replace("0.1", "0.2"), None),
        (PLAIN, HELPER.replace("+ 1", "+ 2") + "FACTOR = 2"),
        (PLAIN, HELPER + "FACTOR = 3"),
        (PLAIN, HELPER + "FACTOR = torch.ones(2)"),
        (PLAIN.replace("Mine:", "Mine(Base):"), HELPER + "FACTOR = 2\nclass Base:\n    def fit(self):\n        return 1"),
        (PLAIN.replace("helper(stream)", "(lambda x: x - 1)(stream)"), None),
        (PLAIN + "\n        factory: list = field(default_factory=lambda: [1])", None),
    ],
    ids=["code", "default", "helper", "constant", "array", "base", "lambda", "factory"],
)
def test_whatever_it_does_belongs_to_it(source, before):
    changed = defined(source, before or HELPER + "FACTOR = 2")
    assert name_of(changed) != name_of(defined())


@pytest.mark.parametrize(("one", "other"), [("(x, by=1)", "(x, by=2)"), ("(x, *, by=1)", "(x, *, by=2)")], ids=["plain", "by keyword"])
def test_defaults_of_its_functions_count(one, other):
    source = "def helper{}:\n    return x + by\nFACTOR = 2"
    assert name_of(defined(before=source.format(one))) != name_of(defined(before=source.format(other)))


def test_what_it_asks_of_an_object_counts():
    """Byte code numbers the names: of the same form, only they tell a smallest from a largest value."""
    smallest, largest = (defined(PLAIN.replace("helper(stream)", f"stream.{name}()")) for name in ("min", "max"))
    assert smallest.run.__code__.co_code == largest.run.__code__.co_code
    assert name_of(smallest) != name_of(largest)


def test_what_it_inherits_and_closes_over_counts():
    def made(step, add):
        def inner(x):
            return x + add

        base = type("Base", (), {"step": step})
        return type("Mine", (base,), {"run": lambda self, x: inner(x), "__module__": "__main__"})

    names = {name_of(made(step, add)) for step in (1, 2) for add in (1, 2)}
    assert len(names) == 4
    assert name_of(made(1, 1)) in names


def test_a_function_defined_anew_changes_a_class_that_stays():
    mine = defined()
    before = name_of(mine)
    exec(HELPER.replace("+ 1", "- 1"), mine.run.__globals__)
    assert name_of(mine) != before


def test_fields_and_recursion_are_followed_once():
    source = "class Mine:\n    def run(self, n):\n        return Mine().run(n - 1) if n else helper(n)"
    assert name_of(defined(source)) != name_of(defined(source.replace("n - 1", "n - 2")))


MODULES = {
    "helpers": "import deeper\nunused = 1\ndef helper(x):\n    return deeper.shifted(x)\n",
    "deeper": "STEP = 1\ndef shifted(x):\n    return x + STEP\n",
}
USES = {
    "module": ("helpers.helper(stream)", "import helpers\nFACTOR = 2"),
    "name": ("helper(stream)", "from helpers import helper\nFACTOR = 2"),
    "inside": ("helper(stream)", "FACTOR = 2"),
}


@pytest.mark.parametrize("use", USES)
def test_what_other_modules_do_counts_as_it_was_loaded(use, tmp_path, monkeypatch):
    """A file that was edited after it was imported is not what runs."""
    monkeypatch.syspath_prepend(tmp_path)
    for name, source in MODULES.items():
        (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.delitem(sys.modules, name, raising=False)
    call, before = USES[use]
    source = PLAIN.replace("helper(stream)", call)
    if use == "inside":
        source = source.replace("return", "from helpers import helper\n            return")

    def key() -> str:
        return name_of(defined(source, before))

    def edited(name: str, old: str, new: str) -> None:
        (tmp_path / f"{name}.py").write_text(MODULES[name].replace(old, new))
        assert key() == first
        for module in ("deeper", "helpers"):  # as a new kernel would
            del sys.modules[module]
        sys.path_importer_cache.clear()

    first = key()
    edited("helpers", "unused = 1", "unused = 20")
    assert key() == first
    edited("deeper", "STEP = 1", "STEP = 20")
    assert key() != first


def test_an_import_that_fails_and_a_logger_do_not_stop_it():
    absent = PLAIN.replace("return", "from no_such_module import that\n            return")
    assert name_of(defined(absent)) != name_of(defined())
    relative = PLAIN.replace("return", "from . import that\n            return")
    assert name_of(defined(relative)) != name_of(defined())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logged = defined(
            PLAIN.replace("return", "LOG.debug('')\n            return"),
            HELPER + "import logging\nLOG = logging.getLogger('mine')\nFACTOR = 2",
        )
        before = name_of(logged)
        logged().run(None, None, None, 1)
        assert name_of(logged) == before


def test_what_cannot_be_seen_is_said():
    with pytest.warns(UserWarning, match="Mine uses FACTOR, whose content the cache cannot see"):
        name_of(defined(before=HELPER + "FACTOR = torch.Generator()"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        name_of(defined())
        name_of(Protocol)
        name_of(defined(before=HELPER + "FACTOR = torch.nn.Linear(2, 2)"))


def test_being_sent_to_a_process_changes_nothing():
    """Copying and pickling an object keep the names of its slots in its class."""
    mine = defined()
    before = name_of(mine)
    copy.copy(mine())
    assert "__slotnames__" in vars(mine)
    assert name_of(mine) == before


def test_where_code_was_compiled_does_not_matter():
    """Pickling by value may give code another file name: in what a dataclass writes, too, which has no name of its own there."""
    mine = defined()
    before = name_of(mine)
    for value in (inspect.unwrap(value) for value in vars(mine).values() if callable(value)):
        value.__code__ = value.__code__.replace(co_filename="<elsewhere>")
    assert mine.__init__.__code__.co_filename == "<elsewhere>"
    assert name_of(mine) == before


def test_a_method_with_underscores_counts():
    """One of the author's own is none that a dataclass writes, wherever it was compiled."""
    called = PLAIN.replace("def run", "def __call__")
    assert name_of(defined(called)) != name_of(defined(called.replace("* FACTOR", "/ FACTOR")))


def test_processes_agree():
    """Sets of words and addresses differ from process to process, names of classes do not."""
    code = "import sys; sys.path.insert(0, '.')\nfrom tests.cache.test_identity import *\n"
    code += "print(name_of(defined(PLAIN, HELPER + \"FACTOR = frozenset({'a', 'b', 'c', 'd'})\")), name_of(Protocol))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": str(seed), "PATH": ""}, capture_output=True, text=True, check=True
        ).stdout
        for seed in (1, 2)
    }
    assert len(found) == 1


DECORATED = """
    import functools

    def scaled(k):
        def decorate(function):
            @functools.wraps(function)
            def wrapper(*arguments):
                return SIGN * k * function(*arguments)

            return wrapper

        return decorate

    class Mine:
        @scaled(2)
        @torch.no_grad()
        def run(self, task, state, personal, stream):
            return stream
"""


def test_decorators_of_ones_own_count():
    before = name_of(defined(DECORATED, "SIGN = 1"))
    assert before == name_of(defined(DECORATED, "SIGN = 1"))
    assert before != name_of(defined(DECORATED, "SIGN = -1"))
    assert before != name_of(defined(DECORATED.replace("@scaled(2)", "@scaled(3)"), "SIGN = 1"))
    assert before != name_of(defined(DECORATED.replace("SIGN * k", "k * SIGN"), "SIGN = 1"))
    # The decorator's function may name what it decorates, or find it as its own attribute.
    for call in ("function(*", "wrapper.__wrapped__(*"):
        source = DECORATED.replace("function(*", call)
        assert name_of(defined(source, "SIGN = 1")) != name_of(defined(source.replace("return stream", "return -stream"), "SIGN = 1"))


@pytest.mark.parametrize(
    ("read", "told"),
    [
        ('open("k.txt").read()', "open"),
        ('os.environ["K"]', "os.environ"),
        ('np.load("k.npy")', "np.load"),
        ('Path("k.txt").read_text()', r"\w+.read_text"),
    ],
)
def test_what_a_method_reads_from_outside_is_said(read, told):
    source = PLAIN.replace("helper(stream)", f"stream * float({read})")
    with pytest.warns(UserWarning, match=rf"Mine uses {told} in Mine.run, whose content the cache cannot see"):
        name_of(defined(source, "import os\nimport numpy as np\nfrom pathlib import Path\nFACTOR = 2"))


def test_a_protocol_may_read_files():
    """Its images tell what it has read."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        name_of(defined("class Mine:\n    def build(self, seed, root=None):\n        return open(root)\n"))


def test_arrays_of_words_count():
    names = ['WORDS = np.array(["a", "b"])', 'WORDS = np.array(["a", "c"])', 'WORDS = np.array(["a", "b"], dtype=object)']
    source = PLAIN.replace("FACTOR", "len(WORDS)")
    assert len({name_of(defined(source, f"import numpy as np\n{HELPER}{words}")) for words in names}) == 3


@pytest.mark.parametrize(
    ("before", "one", "other"),
    [
        ("def flat(x):\n    return x\ndef moved(x):\n    return -x\n{}", "first, FACTOR = flat, flat", "first, FACTOR = flat, moved"),
        (
            "class Rule:\n    def __init__(self, k):\n        self.k = k\n    def apply(self):\n        pass\nFACTOR = Rule({}).apply",
            "2",
            "3",
        ),
        ("{}", "FACTOR = {1: 2}.get", "FACTOR = {1: 3}.get"),
        ("from collections import defaultdict\n{}", "FACTOR = defaultdict(lambda: 0.5)", "FACTOR = defaultdict(lambda: 0.7)"),
        ("class Table(dict):\n    def __missing__(self, k):\n        return {}\nFACTOR = Table(a=1)", "1", "2"),
        (
            "from typing import NamedTuple\nclass Pair(NamedTuple):\n    a: int\n    def sum(self):\n        return {}\nFACTOR = Pair(1)",
            "1",
            "2",
        ),
        ("def FACTOR(x):\n    return x\nFACTOR.k = {}", "2", "3"),
        ("import re\nFACTOR = re.compile('a' * 300 + '{}')", "b", "c"),
        ("import numpy as np\nFACTOR = {}", "np.int64(3)", "np.int64(5)"),
        ("FACTOR = {}", "range(3)", "range(4)"),
    ],
    ids=["alias", "bound", "builtin", "factory", "dictionary", "named tuple", "attribute", "pattern", "scalar", "range"],
)
def test_nothing_that_it_names_hides_what_it_does(before, one, other):
    source = PLAIN.replace("helper(stream) * FACTOR", "FACTOR") + "        first = None\n"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        names = [name_of(defined(source, before.replace("{}", words))) for words in (one, other, one)]
    assert names[0] == names[2] != names[1]


def test_an_alias_of_what_was_seen_counts():
    source = """
        class Mine:
            def flat(self, x):
                return x
            def moved(self, x):
                return -x
            rule = {}
    """
    assert name_of(defined(source.format("flat"))) != name_of(defined(source.format("moved")))


def test_a_global_that_only_shares_its_name_with_an_attribute_does_not_count():
    source = PLAIN.replace("helper(stream) * FACTOR", "stream.mean(0)")
    assert name_of(defined(source)) == name_of(defined(source, "mean = 0.7"))


def test_what_an_object_has_beside_its_fields_counts():
    inherited = """
        class Mine(Base):
            def __init__(self, shift):
                object.__setattr__(self, "shift", shift)
    """
    before = "@dataclass(frozen=True)\nclass Base:\n    version: int = 1"
    mine = defined(inherited, before)
    assert describe(mine(0)) != describe(mine(1))
    assert describe(mine(1)) == describe(mine(1))


def test_a_module_of_ones_own_may_be_called_like_one_of_pythons(tmp_path, monkeypatch):
    names = []
    for constant in (2, 30):
        (tmp_path / "colorsys.py").write_text(f"K = {constant}\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "colorsys", raising=False)
        names.append(name_of(defined(PLAIN.replace("helper(stream) * FACTOR", "colorsys.K"), "import colorsys")))
    monkeypatch.delitem(sys.modules, "colorsys")
    assert names[0] != names[1]


def test_what_comes_from_libraries_is_known_by_its_name():
    before = "import enum\nfrom math import sqrt\nfrom numpy import mean\nfrom torch import relu\nclass Kind(enum.Enum):\n    ONE = 1\n"
    source = PLAIN.replace("helper(stream) * FACTOR", "relu(stream) + sqrt(2) + mean(stream)") + "        kind = Kind.ONE\n"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert name_of(defined(source, before)) == name_of(defined(source, before))
        assert name_of(defined(source, before)) != name_of(defined(source.replace("relu(", "mean("), before))
