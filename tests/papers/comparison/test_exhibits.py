"""What each exhibit of the comparison needs, and that each comes when it is asked for alone."""

import pandas as pd
import pytest

from fedlib.papers.comparison import PAPER
from fedlib.papers.comparison.settings import CHEAP, PROTOCOLS
from tests.papers.comparison_cases import TINY, study


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("exhibit", [pytest.param(e.name, marks=[pytest.mark.slow] * (e.name not in CHEAP)) for e in PAPER.exhibits])
def test_every_exhibit_comes_alone(exhibit, tmp_path, cache):
    """On two protocols and five methods; what is asked for is all that is written."""
    methods = ["FedAvg", "T3A", "EM", "FedTHE", "FedTTA"]
    given = TINY | {"population": 12, "seeds": [0, 1], "timed_samples": 4, "methods": methods, "protocols": ["BRFL", "UPFL new clients"]}
    s = study(**given, tables=[exhibit], cache=cache, output=str(tmp_path))
    assert not str(s.show(exhibit)).startswith("not run"), s.show(exhibit)
    assert {path.stem for path in tmp_path.iterdir()} == {exhibit}
    assert len(pd.read_csv(tmp_path / f"{exhibit}.csv"))


def test_the_grid_and_its_costs_are_of_every_protocol():
    s = study()
    for name in ("heatmap", "cost"):
        assert {block.dataset for block in s.blocks(name)} == set(PROTOCOLS)


def test_absent_data_are_named(tmp_path):
    """In the cells of the heat map, and by what is made of the grid."""
    s = study(protocols=["FedICON domain"], domains="digits5_fedbn", data_root=str(tmp_path), cache=str(tmp_path))
    for name in ("heatmap", "ranks", "tests", "curve", "cost"):
        assert "digits5_fedbn" in s.show(name)
    with pytest.raises(FileNotFoundError, match="digits5_fedbn"):
        s.clients()
