"""Costs: times, memory, and what travels."""

import numpy as np
import pandas as pd
import pytest

from fedlib.papers.comparison import cost
from fedlib.papers.comparison.recipes import METHODS, NONE
from tests.papers.comparison_cases import TINY, parameters, rows


def test_cost_takes_the_mean_of_the_tests():
    times = pd.DataFrame({"method": [NONE, "BTFL"], "run_model": "net", "seconds": [1.0, 2.0]})
    times = pd.concat([times.assign(protocol="BRFL"), times.assign(protocol="BTGFL", seconds=[3.0, 5.0])])
    measured = pd.concat([rows({NONE: 50, "BTFL": 57}, seeds=2), rows({NONE: 30, "BTFL": 31}, "BTGFL", seeds=2)])
    both = cost.cost(measured, times).set_index(["protocol", "method"])
    assert both.loc["BTGFL", ["seconds", "accuracy", "gain"]].to_numpy().tolist() == [[3, 37.5, 0], [5, 38.5, 1]]
    assert cost.seconds_on(both.reset_index()).to_dict() == {NONE: 2, "BTFL": 3.5}
    assert cost.seconds_on(both.reset_index(), ["BTGFL", "TTPFL label"]).to_dict() == {NONE: 3, "BTFL": 5}
    table = both.loc["BRFL"]
    # Columns 10 and clients 4 apart.
    assert table["accuracy"].to_dict() == {NONE: 57.5, "BTFL": 64.5}
    assert table["gain"].to_dict() == {NONE: 0, "BTFL": 7}
    assert table["images"].to_dict() == {NONE: 20, "BTFL": 20}
    assert table["accuracy_std"].tolist() == pytest.approx([np.sqrt(0.5)] * 2)
    assert table["gain_std"].tolist() == [0, 0]
    assert set(table["status"]) == {"stand-in"}


def test_what_travels_and_what_is_held(tmp_path):
    """FedTTA sends its adaptation model beside the network, FedTHE's clients a mean feature; both halves of a training count."""
    p = parameters(**TINY, timed_samples=4, costly_samples=1, methods=["FedTHE", "FedTTA", "BBSE", "MEMO"], cache=str(tmp_path))
    table = cost.times(p, ["BRFL", "UPFL new clients"], repeats=1).set_index("method")
    new = table[table["protocol"] == "UPFL new clients"]
    # FedTHE needs labels, which new clients do not bring.
    assert set(new.index) == {"FedAvg", "FedAvg:plain", "FedTTA", "BBSE", "MEMO"}
    assert (new["seconds"] > 0).all()
    assert new.loc["BBSE", "shared"] > 0
    table = table[table["protocol"] == "BRFL"]
    assert set(table.index) == {"FedAvg", "FedAvg:plain", "FedTHE", "FedTTA", "BBSE", "MEMO"} <= {*METHODS, "FedAvg:plain"}
    assert table.loc["FedTTA", "sent"] > table.loc["FedAvg:plain", "sent"]
    assert table["training"].to_dict() == {name: 2 if name == "FedTTA" else 1 for name in table.index}
    assert {name for name, size in table["shared"].items() if size > 0} == {"FedTHE", "BBSE"}
    # MEMO holds a tuned copy of the network, and gradients of it.
    assert table.loc["MEMO", "memory"] * 1024 > 2 * table.loc["FedAvg", "sent"]
