"""FedTHE's Table 1 through the stage cache against running each of its methods alone, on a few digits clients."""

import contextlib
import io
import tempfile
import time

from fedlib import experiment
from fedlib.core import Local, Schedule
from fedlib.papers.fedthe.recipes import RECIPES
from fedlib.protocols.brfl import BRFL
from fedlib.setting import Request, Setting
from tests.benchmarks.measure import compared

PROTOCOL = BRFL("digits", 4, corruption_draws=1, natural_size=300, train_size=0.4)
SETTING = Setting("Dir(0.1)", PROTOCOL, "cnn", Schedule(3, Local(), Local(epochs=1)))
REQUEST = Request(costly_samples=2)


def seconds(names: list[str]) -> float:
    """CPU seconds of the recipes ``names`` in a fresh cache."""
    with tempfile.TemporaryDirectory() as cache, contextlib.redirect_stderr(io.StringIO()):  # no progress bars
        start = time.process_time()
        experiment.run([SETTING], {name: RECIPES[name] for name in names}, [0], request=REQUEST, cache=cache)
        return time.process_time() - start


def rows() -> list[dict]:
    seconds(["FedAvg"])  # builds the benchmark, which is then shared
    alone = {name: seconds([name]) for name in RECIPES}
    together = seconds(list(RECIPES))
    dearest = max(alone, key=alone.get)
    costs = {"each alone": sum(alone.values()), "through the cache": together, f"dearest alone ({dearest})": alone[dearest]}
    costs |= {f"alone: {name}": value for name, value in alone.items()}
    return compared("FedTHE Table 1, 14 methods", costs, per="table")
