"""Folders of results, for the commands that read them."""

import json

import numpy as np
import pytest

from fedlib.papers.fedthe import PAPER
from fedlib.published.units import Units
from fedlib.results import write_table

# As run.json has them: resolved, and without where files are.
PARAMETERS = PAPER.parameters(profile="paper", seeds=[0]).resolved(PAPER.profiles).facts()
RECORD = {
    **{"profile": "paper", "device": "cpu", "dataset": "cifar10", "notes": [], "date": "2026-11-26T10:00:00+00:00"},
    **{"versions": {"fedlib": "0.3.0"}, "processor": "", "cpu_threads": 1, "duration_seconds": 2.0, "cache_hits": 1},
}


@pytest.fixture
def run(as_measured, tmp_path):
    """Writes a folder with FedTHE's Table 3 as if only ``methods`` had been run, with one seed and 20 clients; ``ahead``: of 50 percent."""

    def write(name, ahead, more=(), seed=0, commit=None, **parameters):
        frame = as_measured("fedthe", status="ok", data="cifar10", n_seeds=1, keep=lambda f: f["method"].isin(ahead))["T3"]
        noise = np.tile([-1.0, 1.0], 10)

        def units(row):
            keys = tuple((seed, client) for client in range(20))
            return Units(keys, 50 + ahead[row["method"]] + noise * (row["method"] != "TSA"), np.ones(20), np.full(20, 500))

        ran = frame["mean"].notna()
        frame["units"] = [units(row) if row["method"] in ahead else None for row in frame.to_dict("records")]
        frame.loc[ran, "mean"] = [u.mean for u in frame.loc[ran, "units"]]
        frame.loc[ran, "std"] = np.nan
        folder = tmp_path / name
        folder.mkdir()
        write_table(frame, folder, "T3")
        for table in more:
            write_table(frame.assign(units=None), folder, table)
        (folder / "run.json").write_text(
            json.dumps(RECORD | {"identity": name, "commit": commit, "seeds": [seed], "parameters": PARAMETERS | parameters})
        )
        return folder

    return write
