"""FedTHE's Table 1 at the full schedule, method after method; what is finished goes to the table, what is not stays in the cache."""

from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path

import torch

from fedlib import experiment
from fedlib.data import load
from fedlib.papers.fedthe import PAPER
from fedlib.papers.fedthe.recipes import RECIPES
from fedlib.papers.fedthe.settings import setting as setting_of
from fedlib.protocols.shifts import SPLITS
from fedlib.setting import Request, Setting
from fedlib.stages.engine import Engine
from tests.gpu.measure import write

# Methods that tune per sample come last.
ORDER = sorted(RECIPES, key=lambda name: RECIPES[name].costly)


def dataset(root: str) -> str:
    """The best images that ``root`` holds: CIFAR-10, its JPEG-coded copy, else the embedded digits."""
    for name in ("cifar10", "cifar10_jpeg"):
        try:
            # A file of either name would be read for both; the JPEG-coded one says what it is.
            if name == "cifar10_jpeg" or (Path(root) / "cifar-10-batches-py").is_dir():
                load(name, root)
                return name
        except FileNotFoundError:
            continue
    return "digits"


def settings(images: str, tiny: bool) -> Iterable[Setting]:
    """Dir(0.1) on the honest and on the published splits, as the notebook's profile ``paper`` has them."""
    given = {f.name: None for f in fields(PAPER.parameters)} | {"profile": "paper", "dataset": images, "jobs": 1, "device": "cpu"}
    small = {"rounds": 1, "local_epochs": 1, "clients": 4, "costly_samples": 1} if tiny else {}
    for split in SPLITS:
        p = PAPER.read(given | small | {"split": split, "cache": "cache"})
        yield replace(setting_of(p, "Dir(0.1)"), label=split)


def main(device: str, cache: str, root: str, out: Path, tiny: bool) -> None:
    torch.set_num_threads(1)
    images, rows = dataset(root), []
    request = Request(costly_samples=1 if tiny else None)
    methods = ORDER[:2] if tiny else ORDER
    for setting in settings(images, tiny):
        for method in methods:
            frame = experiment.run(
                [setting], {method: RECIPES[method]}, [0], request=request, cache=cache, root=root, engine=Engine(device=device)
            )
            for column, part in frame.groupby("column", sort=False):
                clients = part.groupby("client")["accuracy"].mean()
                facts = {"dataset": images, "split": setting.label, "rounds": setting.schedule.rounds, "method": method, "column": column}
                rows.append(facts | {"accuracy": clients.mean(), "n": int(part["n"].sum()), "seconds": part["seconds"].sum()})
            write(out, rows)
            print(setting.label, method, f"{frame['accuracy'].mean():.2f}", flush=True)
