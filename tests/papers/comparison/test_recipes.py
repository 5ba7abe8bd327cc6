from dataclasses import replace

from fedlib.adapt.fedicon import Contrastive
from fedlib.papers.comparison import recipes as comparison
from fedlib.papers.fedicon.recipes import BALANCED, FEDAVG
from fedlib.papers.fedthe import recipes as fedthe
from fedlib.papers.upfl import recipes as upfl
from fedlib.train.fedicon import FedICON

# What the comparison promises: the methods of the five papers and the common baselines.
PAPERS = {"FedTHE", "FedTHE+", "BTFL", "ATP-batch", "ATP-online", "FedTTA", "FedTTA++", "FedICON"}
COMMON = {"FedAvg", "FedAvg+FT", "Tent", "EATA", "T3A", "MEMO", "TTT", "EM", "BBSE", "kNN-Per"}


def test_every_method_is_there_once():
    assert len(comparison.METHODS) == len(set(comparison.METHODS))
    assert set(comparison.METHODS) == PAPERS | COMMON | {comparison.PLAIN, comparison.HEAD}


def test_methods_without_a_training_of_their_own_share_one():
    own = dict.fromkeys(("FedTHE", "FedTHE+", comparison.HEAD), BALANCED)
    for name, recipe in comparison.recipes().items():
        if name not in ("BTFL", "FedICON"):
            assert recipe.train == own.get(name, FEDAVG), name


def test_adaptation_is_that_of_the_papers():
    table = comparison.recipes()
    for name in ("FedTHE", "FedTHE+", "TTT", "MEMO", "T3A", "kNN-Per"):
        published = fedthe.METHODS["MEMO-P (paper)" if name == "MEMO" else name]
        # Its paper's steps on its network have no momentum; the bench's local training has some.
        assert table[name].adapt == (replace(published.adapt, momentum=0.0) if name == "MEMO" else published.adapt)
        assert table[name].personalize == published.personalize
    assert comparison.without_batch_norm("digits")["FedTTA++"] == upfl.recipes("digits")["FedTTA++"]


def test_new_clients_have_no_labelled_part():
    labelled, new = comparison.recipes(), comparison.recipes(labelled=False)
    assert set(labelled) - set(new) == set(comparison.PERSONAL)
    assert {name for name, recipe in new.items() if recipe.personalize} == {"BBSE", "ATP-batch", "ATP-online"}
    assert isinstance(new["FedICON"].train, FedICON)
    assert isinstance(new["FedICON"].adapt, Contrastive)


def test_baselines_share_the_network_and_the_cut():
    """The gain of a method counts against no adaptation from the same table, cut where the method's streams are."""
    for table in (comparison.recipes(), comparison.without_batch_norm("digits")):
        for name, recipe in table.items():
            base = table[comparison.baseline(name)]
            assert base.costly == recipe.costly
            assert base.personalize is None
    assert comparison.baseline("FedTHE+") == comparison.CUT
    assert comparison.baseline("BTFL") == comparison.NONE
    assert comparison.baseline("FedTTA") == comparison.PLAIN
