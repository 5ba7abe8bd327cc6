"""What there is, by name: ``fedlib list [papers | methods | data | protocols | networks]``."""

import argparse
import sys
from collections.abc import Callable

from fedlib import data, protocols
from fedlib.catalogue import methods
from fedlib.models import MODELS, PRETRAINED
from fedlib.reproduce import names
from fedlib.tools.names import check_name


def listed(kind: str) -> list[str]:
    """One line per item of a kind: its name and what it is."""
    if kind == "papers":
        return [f"{name:14}notebooks/{name}.ipynb" for name in names()]
    if kind == "methods":
        table = methods()
        width = table["method"].str.len().max() + 2
        return [f"{row.paper:12}{row.method:{width}}{row.about}" for row in table.itertuples()]
    if kind == "data":
        tables = {"embedded": data.EMBEDDED, "by torchvision": data.DOWNLOADABLE, "from files": data.FILES}
        return [f"{name:18}{where:16}{_first(loader.__doc__)}" for where, table in tables.items() for name, loader in table.items()]
    if kind == "protocols":
        return [f"{cls.__name__:14}{_module(cls)}" for cls in protocols.PROTOCOLS]
    weights = dict.fromkeys(PRETRAINED, " From ImageNet's weights.")
    return [f"{name:20}{_network(network)}{weights.get(name, '')}" for name, network in (MODELS | PRETRAINED).items()]


KINDS = ("papers", "methods", "data", "protocols", "networks")


def _first(text: str | None) -> str:
    """The first paragraph of a docstring in one line."""
    return " ".join((text or "").split("\n\n")[0].split())


def _network(network: Callable) -> str:
    """What a network is, and in which arguments it differs from its class."""
    given = ", ".join(f"{name}={value}" for name, value in getattr(network, "keywords", {}).items())
    return _module(getattr(network, "func", network)) + (f" Here {given}." if given else "")


def _module(thing: type) -> str:
    return _first(sys.modules[thing.__module__].__doc__)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="fedlib list", description=__doc__.splitlines()[0], epilog="example: fedlib list methods")
    parser.add_argument("kind", nargs="*", metavar="kind", help=f"of {', '.join(KINDS)} (default all)")
    options = parser.parse_args(arguments)
    try:
        kinds = [check_name(kind, KINDS, "kind") for kind in options.kind or KINDS]
    except ValueError as error:
        sys.exit(f"error: {error}")
    for kind in kinds:
        print(f"{kind}:", *listed(kind), "", sep="\n  ")
