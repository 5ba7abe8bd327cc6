"""The papers' full schedules in one command: ``python -m fedlib.paper_scale [--run fedthe ...] [-p name value ...]``.

Each run is a notebook in profile ``paper`` whose results go to ``figures/paper/<run>``. Every round and every stage is cached, so a
command that was stopped goes on where it was when it is given again. Blocks whose data set is absent say "not run" and why. Parameters
given with -p go to every chosen run. ``--profile smoke`` does the same on the embedded digits in minutes.
"""

import argparse
import os
import sys

import torch
import yaml
from papermill.exceptions import PapermillExecutionError

from fedlib import reproduce
from fedlib.names import check_name
from fedlib.notebook import PROFILES

FEDTHE = {"tables": ["T1", "F2a", "F2b"]}
# Run -> its notebook and what it asks of it: FedTHE's Table 1 on honest and on published splits, BTFL's Tables 1-3, ATP's blocks, UPFL's
# CIFAR-10 column.
RUNS = {
    "fedthe": ("fedthe", FEDTHE),
    "fedthe-resplit": ("fedthe", FEDTHE | {"split": "resplit"}),
    "btfl": ("btfl", {"officehome": "none", "imagenet32": "none", "alphas": [0.1], "architectures": [], "label_counts": [10]}),
    "atp": ("atp", {}),
    "upfl": ("upfl", {"dataset": "cifar10"}),
}


def parameters(run: str, profile: str, given: dict) -> dict:
    """The notebook parameters of ``run``, those ``given`` by the caller last."""
    own = {name: value for name, value in RUNS[run][1].items() if name != "dataset" or profile == "paper"}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return {"profile": profile, "device": device, "output": f"figures/{profile}/{run}"} | own | given


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", action="append", help=f"one of {', '.join(RUNS)}; may be repeated (default all)")
    parser.add_argument("--profile", default="paper", help=f"one of {', '.join(PROFILES)} (default paper)")
    parser.add_argument("-p", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"), help="a notebook parameter, YAML value")
    options = parser.parse_args(arguments)
    try:
        profile = check_name(options.profile, PROFILES, "profile")
        runs = [check_name(run, RUNS, "run") for run in options.run or RUNS]
        given = {name: yaml.safe_load(value) for name, value in options.p}
        chosen = {run: parameters(run, profile, given) for run in runs}
        for run, values in chosen.items():
            reproduce.check_parameters(RUNS[run][0], values)
    except ValueError as error:
        sys.exit(f"error: {error}")
    # One thread per process: two busy threads on a shared machine cost several times what they gain.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    failed = []
    for run, values in chosen.items():
        try:
            print(f"{run}: {reproduce.execute(RUNS[run][0], values)}", flush=True)
        except PapermillExecutionError as error:  # the other runs do not depend on it
            failed.append(run)
            print(f"{run}: failed, {error.ename}: {error.evalue}", file=sys.stderr, flush=True)
    if failed:
        sys.exit(f"error: {len(failed)} of {len(chosen)} runs failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
