"""``python -m tests.benchmarks [name ...] [--out figures/bench]``: run benchmarks, print them, write one CSV each and the figure.

Only ratios within one run mean anything. Names: streams, tuning, local, data, table, growth, shares; without names, all.
"""

import argparse
import importlib
import time
from pathlib import Path

import pandas as pd
import torch

from fedlib.tools.files import atomic
from fedlib.tools.names import check_name
from fedlib.tools.parameters import PROJECT
from tests.benchmarks import figure
from tests.benchmarks.measure import machine

NAMES = ("streams", "tuning", "local", "data", "table", "growth", "shares")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="*", help=f"of {', '.join(NAMES)} (default all)")
    parser.add_argument("--out", type=Path, default=PROJECT / "figures" / "bench", help="folder of the results (default figures/bench)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in [check_name(n, NAMES, "benchmark") for n in options.name or NAMES]:
        start, where = time.perf_counter(), machine()
        frame = pd.DataFrame(importlib.import_module(f"tests.benchmarks.{name}").rows())
        print(f"\n== {name}, {time.perf_counter() - start:.0f} s, load {where['load']}", flush=True)
        print(frame.to_string(index=False, float_format="{:.4g}".format), flush=True)
        with atomic(options.out / f"{name}.csv") as path:
            frame.assign(**where).to_csv(path, index=False, float_format="%.4g", lineterminator="\n")
    figure.write(options.out)


if __name__ == "__main__":
    main()
