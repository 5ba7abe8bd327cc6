"""The ``fedlib`` command: ``fedlib run``, ``list``, ``pairs``, ``claims``, ``verify``, ``cache`` and others, each with its ``--help``."""

import argparse
import importlib
import os
import sys

COMMANDS = {
    "run": ("fedlib.reproduce", "execute the papers' notebooks: fedlib run --profile smoke --paper fedthe"),
    "list": ("fedlib.commands.listing", "papers, methods, data sets, protocols, networks: fedlib list methods"),
    "cache": ("fedlib.cache.contents", "what the cache holds, and removing it: fedlib cache --remove --unused 30"),
    "verify": ("fedlib.commands.verify", "compare a run with a reference: fedlib verify figures/mine/fedicon figures/digits/fedicon"),
    "pairs": ("fedlib.commands.pairs", "how far methods are apart on the same images: fedlib pairs figures/mine/fedthe --against FedTHE"),
    "claims": (
        "fedlib.commands.claims",
        "a paper's claims on several runs together: fedlib claims figures/mine/fedthe figures/other",
    ),
    "join": ("fedlib.commands.join", "one run of several that were made apart: fedlib join figures/seed0 figures/seed1 --out figures/both"),
    "ledger": ("fedlib.commands.ledger", "all claims on one page, with what each run says: fedlib ledger figures/mine/*"),
    "agreement": (
        "fedlib.commands.agreement",
        "a picture of measured and printed accuracies: fedlib agreement figures/mine/fedthe",
    ),
    "answer": ("fedlib.commands.answer", "what helps under which shift, over runs of the comparison: fedlib answer figures/mine/*"),
    "campaign": ("fedlib.campaign", "the full schedules on real images: fedlib campaign --list"),
    "export": ("fedlib.commands.export", "trained federations of a run, to start from later: fedlib export figures/mine/fedthe"),
    "import": ("fedlib.commands.imports", "trained federations into the cache, to train on: fedlib import cifar10-jpeg/comparison-ttpfl"),
}


def main(arguments: list[str] | None = None) -> None:
    given = sys.argv[1:] if arguments is None else arguments
    lines = "\n".join(f"  {name:10}{about}" for name, (_, about) in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="fedlib",
        description=__doc__.splitlines()[0],
        epilog=f"commands:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS, metavar="command", help=", ".join(COMMANDS))
    if not given:
        sys.exit(parser.format_help())
    command = parser.parse_args(given[:1]).command
    module = importlib.import_module(COMMANDS[command][0])
    if command in ("run", "campaign"):
        module.end_on_signals()
    try:
        module.main(given[1:])
    except KeyboardInterrupt:
        sys.exit("\nstopped")
    except BrokenPipeError:
        # Who reads has seen enough (``| head``); what is still to be flushed goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    main()
