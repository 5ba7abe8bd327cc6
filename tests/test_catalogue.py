import pandas as pd
import pytest

from fedlib.catalogue import bars, methods, recipes_of, table


def rows():
    """Two methods, two seeds, two clients, two tests; FedTHE is five points ahead."""
    made = []
    for method, lead in {"FedAvg": 0.0, "FedTHE": 5.0}.items():
        for seed in (0, 1):
            for client in (0, 1):
                for c, column in enumerate(("original", "ooc")):
                    row = {
                        "setting": "here",
                        "method": method,
                        "seed": seed,
                        "round": 3,
                        "column": column,
                        "draw": 0,
                        "client": client,
                        "n": 10,
                    }
                    made.append(row | {"accuracy": 50 + lead + 10 * c + seed + client, "dataset": "digits", "model": "cnn"})
    return pd.DataFrame(made)


def test_every_published_method_is_listed_with_its_paper_and_what_it_is():
    listed = methods()
    assert set(listed["paper"]) == {"fedthe", "upfl", "atp", "fedicon", "btfl", "comparison"}
    assert not listed.duplicated(["paper", "method"]).any()
    assert listed["about"].str.len().between(15, 220).all()
    about = listed.set_index(["paper", "method"])["about"]
    assert about["fedthe", "Ditto"].startswith("Ditto")
    assert about["fedthe", "FedRoD"].startswith("FedRoD")
    assert about["atp", "ATP-online"].startswith("ATP")
    # What is tuned, not the tuning, and not the training where there is more.
    assert about["atp", "SHOT"].startswith("SHOT")
    assert about["fedthe", "FedAvg+FT"].startswith("FedAvg+FT")
    # Of several methods in one module, the one that is meant.
    several = {("atp", "MEMO"): "ATP's MEMO", ("upfl", "Tent"): "Tent", ("upfl", "FedTTA++"): "FedTTA++", ("upfl", "FedTTA"): "FedTTA and"}
    assert all(about[key].startswith(start) for key, start in several.items())
    assert about["fedicon", "FedICON:online"].startswith("FedICON online")


def test_recipes_by_paper_and_name():
    assert list(recipes_of("fedthe", "FedTHE", "FedAvg")) == ["FedTHE", "FedAvg"]
    assert len(recipes_of("upfl")) == 14
    # By name, what a paper runs beside its methods.
    assert list(recipes_of("fedthe", "TSA", "FedTHE")) == ["TSA", "FedTHE"]
    assert "TSA" not in recipes_of("fedthe")
    for wrong, hint in ((("fedth",), "fedthe"), (("fedthe", "FedTHEE"), "FedTHE")):
        with pytest.raises(ValueError, match=f"Did you mean '{hint}'"):
            recipes_of(*wrong)


def test_a_table_has_methods_down_and_tests_across():
    assert table(rows()).to_dict("index") == {"FedAvg": {"original": 51, "ooc": 61}, "FedTHE": {"original": 56, "ooc": 66}}
    two = pd.concat([rows(), rows().assign(round=9)])
    assert table(two).index.names == ["round", "method"]


def test_the_picture_shows_the_table():
    figure = bars(rows(), "title")
    axis, facts = figure.axes[0], figure.texts[-1].get_text()
    assert "after 2 rounds, 2 seeds" in facts
    assert "Error bars: one standard error over clients and seeds." in facts
    assert sorted(bar.get_height() for group in axis.containers[:2] for bar in group) == [51, 56, 61, 66]
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["FedAvg", "FedTHE"]
    two = pd.concat([rows(), rows().assign(setting="other", round=9, accuracy=rows()["accuracy"] + 1)])
    axis = bars(two, "title").axes[0]
    assert sorted(bar.get_height() for group in axis.containers[:2] for bar in group) == [51, 52, 56, 57, 61, 62, 66, 67]
