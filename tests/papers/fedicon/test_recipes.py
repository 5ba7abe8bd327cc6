from fedlib.papers.fedicon.recipes import MAIN, RECIPES, recipes
from fedlib.published import cells


def test_every_printed_method_has_a_recipe():
    printed = cells("fedicon")
    assert set(printed["method"]) <= set(RECIPES)
    for table in ("T1", "T2", "T3"):
        assert list(printed[printed["table"] == table]["method"].unique()) == list(MAIN)


def test_trainings_are_shared():
    for names in (
        ("FedAvg", "FedAvg+FT", "Tent", "EATA", "T3A", "FedICON:GIS+TTA"),
        ("Local", "FedICON:TTA"),
        ("FedICON", "FedICON:LIE+GIS"),
    ):
        assert len({RECIPES[name].train for name in names}) == 1
    assert len({RECIPES[name].train for name in MAIN}) == 7


def test_switches_of_table_5():
    """LIE: contrastive encoder; GIS: shared; TTA: tuned at test time."""
    assert not RECIPES["FedICON:LIE"].train.share
    assert RECIPES["FedICON:LIE+GIS"].train == RECIPES["FedICON"].train
    tuned = RECIPES["FedICON"].adapt
    for switches in ("LIE", "TTA", "LIE+GIS", "GIS+TTA", "LIE+TTA"):
        assert (RECIPES[f"FedICON:{switches}"].adapt == tuned) == ("TTA" in switches)
    assert RECIPES["FedICON-us"].train.supervised is False


def test_rate_of_training_leaves_that_of_tuning():
    table = recipes("objects", classifier_rounds=2, lr=0.1)
    assert table["FedICON"].train.contrast.lr == 0.1
    assert table["FedICON"].train.classifier_rounds == 2
    assert table["FedICON"].adapt.contrast.lr == 0.005
    assert table["FedICON"].adapt.contrast.views == "objects"
