"""``make gpu``, or ``python -m tests.gpu``: everything that a GPU is wanted for, in one command that ends by itself.

Parts, each a process with its share of the time: the tests marked ``gpu``; local training per network and streams, every form checked
against the plain one before it is timed; the fastest form per network, which the engine then takes for its default on GPUs; every recipe
twice; at last, until the time is up, FedTHE's Table 1 at the full schedule, with which the next call goes on. Results: a folder of CSV,
JSON and PNG files. Needs the packages of requirements.txt but for those of notebooks, no network and no installation.
"""

import argparse
import contextlib
import csv
import importlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
NEEDED = (
    *("torch", "torchvision", "numpy", "scipy", "pandas", "matplotlib", "seaborn", "sklearn", "PIL"),
    *("safetensors", "filelock", "joblib", "tqdm", "pytest", "hypothesis"),
)
NETWORKS = ("mlp", "cnn", "shallow_cnn", "resnet20gn")
# part -> share of the time at most; what it leaves, and all that remains, is Table 1's.
SHARES = {"tests": 0.12, **{f"local-{network}": 0.09 for network in NETWORKS}, "streams": 0.1, "recipes": 0.15, "table1": 1.0}


def command(part: str, o: argparse.Namespace) -> list[str]:
    """What a part runs."""
    if part in ("tests", "recipes"):
        tests = ["-m", "gpu and not slow" if part == "tests" else "gpu and slow", "tests/test_cuda.py"]
        return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "default", *tests]
    given = {"device": o.device, "seconds": o.seconds, "out": o.out, "cache": o.cache, "data": o.data, "part": part}
    options = [f"--{name}={value}" for name, value in given.items()]
    return [sys.executable, "-m", "tests.gpu", *options, *(["--tiny"] if o.tiny else [])]


def work(part: str, o: argparse.Namespace) -> None:
    """A part inside its process."""
    name, _, network = part.partition("-")
    module = importlib.import_module(f"tests.gpu.{name}")
    # Per network beside the cache, from where one table is made of them.
    out = (o.cache if network else o.out) / f"{part}.csv"
    if name == "table1":
        module.main(o.device, str(o.cache), str(o.data), out, o.tiny)
    else:
        module.main(*([network] if network else []), o.device, 0.9 * o.seconds * (1 if o.tiny else SHARES[part]), out, o.tiny)


def run(part: str, o: argparse.Namespace, seconds: float) -> dict:
    """Start a part and end it, with all its processes, when its time is up; how it went."""
    start, log = time.monotonic(), o.out / "log.txt"
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "PYTHONPATH": paths}
    with log.open("a", encoding="utf-8") as file:
        print(f"== {part}, {seconds:.0f} s at most", file=file, flush=True)
        process = subprocess.Popen(command(part, o), cwd=ROOT, stdout=file, stderr=file, env=environment, start_new_session=True)
        try:
            code = process.wait(max(1.0, seconds))
            state = "ok" if code == 0 else f"failed, exit status {code}"
        except subprocess.TimeoutExpired:
            state = "stopped when its time was up"
        # Also what it has left behind, such as worker processes.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    print(f"{part}: {state}, {time.monotonic() - start:.0f} s", flush=True)
    return {"part": part, "state": state, "seconds": round(time.monotonic() - start, 1)}


def collect(o: argparse.Namespace) -> None:
    """Local training of all networks as one table and figure, and the fastest form of each.

    The table that the engine reads is written where there is none: other forms would give the trainings of Table 1 other keys.
    """
    from fedlib.stages.engine import FASTEST
    from tests.gpu.local import choose
    from tests.gpu.measure import write

    found = [o.cache / f"local-{network}.csv" for network in NETWORKS]
    rows = [row for path in found if path.exists() for row in csv.DictReader(path.read_text().splitlines())]
    if not rows:
        return
    write(o.out / "local.csv", rows)
    if table := choose(rows):
        draw(rows, o.out / "local.png")
        write(o.out / FASTEST.name, table)
    if table and o.device.startswith("cuda") and not FASTEST.exists():
        kept = o.cache / FASTEST.name
        write(FASTEST, list(csv.DictReader(kept.read_text().splitlines())) if kept.exists() else table)
        shutil.copy(FASTEST, kept)


def draw(rows: list[dict], path: Path) -> None:
    """Speed over the plain loop, a panel per network."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    networks = list(dict.fromkeys(row["network"] for row in rows))
    figure, panels = plt.subplots(1, len(networks), figsize=(4 * len(networks), 4), squeeze=False, layout="constrained")
    for panel, network in zip(panels[0], networks, strict=True):
        shown = [row for row in rows if row["network"] == network and row["status"] == "ok"]
        panel.barh([f"{row['variant']}, {row['size']} clients" for row in shown][::-1], [float(row["ratio"]) for row in shown][::-1])
        panel.axvline(1, color="black", linewidth=0.8)
        panel.set(title=network, xlabel="speed over the plain loop")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def about(o: argparse.Namespace, parts: list[dict]) -> dict:
    import torch

    name = torch.cuda.get_device_name() if o.device.startswith("cuda") else "CPU"
    facts = {"date": datetime.now(UTC).strftime("%Y-%m-%d"), "device": name, "torch": torch.__version__, "cuda": torch.version.cuda}
    return facts | {"seconds": o.seconds, "tiny": o.tiny, "parts": parts}


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu (default cuda)")
    parser.add_argument("--seconds", type=float, default=560, help="when to end (default 560)")
    out = ROOT / (os.environ.get("OUT") or "figures/gpu")
    parser.add_argument("--out", type=Path, default=out, help="folder of the results (default $OUT, else figures/gpu)")
    parser.add_argument("--cache", type=Path, default=ROOT / "cache" / "gpu", help="of Table 1 (default cache/gpu)")
    parser.add_argument(
        "--data", type=Path, default=ROOT / (os.environ.get("FEDLIB_DATA") or "data"), help="default $FEDLIB_DATA, else data"
    )
    parser.add_argument("--only", nargs="+", metavar="PART", choices=SHARES, help=f"of {', '.join(SHARES)} (default all)")
    parser.add_argument("--tiny", action="store_true", help="sizes at which nothing is measured, to see that everything runs")
    parser.add_argument("--part", choices=SHARES, help=argparse.SUPPRESS)
    return parser


def main() -> None:
    o = parser().parse_args()
    if o.part:
        return work(o.part, o)
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        sys.exit(f"error: missing packages: {', '.join(missing)}; bring them as wheels (pip install --no-index --target)")
    import torch

    if o.device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit("error: no usable CUDA device; --device cpu --tiny shows that the command runs")
    end, parts = time.monotonic() + o.seconds, []
    o.out.mkdir(parents=True, exist_ok=True)
    for part in o.only or SHARES:
        # What writes the results takes a few seconds at the end.
        left = end - time.monotonic() - 10
        parts.append(run(part, o, left if o.tiny else min(left, o.seconds * SHARES[part])))
        (o.out / "run.json").write_text(json.dumps(about(o, parts), indent=1) + "\n")
        if part.startswith("local"):  # before Table 1, which trains in the forms found here
            collect(o)
    if failed := [part["part"] for part in parts if part["state"].startswith("failed")]:
        sys.exit(f"error: {', '.join(failed)} failed, see {o.out / 'log.txt'}")


if __name__ == "__main__":
    main()
