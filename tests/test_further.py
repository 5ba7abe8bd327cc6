import fedlib
from fedlib.adapt.bn_adapt import BNAdapt
from fedlib.core import Recipe
from fedlib.extras import gather
from fedlib.further import METHODS
from fedlib.paper import paper_of
from fedlib.published import PAPERS
from fedlib.train.fedavg import FedAvg


def test_a_method_of_the_kit_that_no_paper_prints_is_everywhere(monkeypatch):
    """With one line: gathered like a user's own, a row where it fits and the reason where not, and among the methods that are listed."""
    monkeypatch.setitem(METHODS, "Mine", Recipe(FedAvg(), None, BNAdapt()))
    assert gather(None)["Mine"].needs == ("batch norm",)
    for paper in (*PAPERS, "comparison"):
        p = paper_of(paper).standard("smoke")
        assert "Mine" in p.own
        assert p.refused("cnn") == {"Mine": "needs batch norm, and the network has none"}
        assert p.refused("shallow_cnn") == {}
    assert fedlib.methods().set_index("method").loc["Mine", ["paper", "adapt"]].tolist() == ["all", "BNAdapt"]
