"""``python -m tests.benchmarks``: every benchmark of this folder, one after the other. Only ratios within one run mean anything."""

import runpy
from pathlib import Path

import torch

torch.set_num_threads(1)
for script in sorted(Path(__file__).parent.glob("bench_*.py")):
    print(f"\n== {script.stem.removeprefix('bench_')}", flush=True)
    runpy.run_path(str(script), run_name="__main__")
