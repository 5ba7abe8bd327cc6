"""The comparison's data: parameters, coverage, and the steps from measured rows to tables, on made-up rows and on a tiny run."""

import itertools

import numpy as np
import pandas as pd
import papermill
import pytest

from fedlib.notebook import PROJECT
from fedlib.papers import comparison
from fedlib.papers.comparison import PROTOCOLS, REASONS, provenance, ranks, reason
from fedlib.papers.fedthe import recipes as fedthe
from fedlib.recipes.comparison import CUT, METHODS, NONE, PLAIN

NOTEBOOK = PROJECT / "notebooks" / "comparison.ipynb"


def declared():
    return {name: eval(entry["default"]) for name, entry in papermill.inspect_notebook(NOTEBOOK).items()}


def parameters(**given):
    return comparison.parameters(declared() | {"jobs": 1, "cache": "nowhere"} | given)


def rows(values, protocol="BRFL", seeds=1, clients=2, columns=("original", "ooc"), n=10):
    """values: method -> accuracy of client 0 on the first column; a client has 4 more than the one before, a column 10, a seed 1."""
    made = []
    for (method, value), seed, client, (c, column) in itertools.product(values.items(), range(seeds), range(clients), enumerate(columns)):
        row = {"setting": protocol, "method": method, "seed": seed, "client": client, "column": column, "draw": 0, "n": n}
        made.append(row | {"accuracy": value + seed + 4 * client + 10 * c, "dataset": "digits", "model": "net", "stand_in": False})
    return pd.DataFrame(made)


def test_profiles_fill_every_parameter():
    for profile in comparison.PROFILES:
        p = parameters(profile=profile)
        unset = {name for name in declared() if getattr(p, name) is None}
        assert unset == {"batch_size", "extra", "start", "held_out", "methods", "protocols", "tables", "output"}


def test_the_last_domain_is_held_out_unless_another_is_named():
    assert parameters().clients_of()["FedICON domain"].held_out == "blend"
    assert parameters(held_out="fonts").clients_of()["FedICON domain"].held_out == "fonts"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dataset": "cifar"}, "cifar10"),
        ({"domains": "digits"}, "digits5"),
        ({"domains": "digits5", "held_out": "font"}, "fonts"),
        ({"methods": ["FedTAA"]}, "FedTTA"),
        ({"protocols": ["TTPFL"]}, "TTPFL label"),
        ({"tables": ["rank"]}, "ranks"),
        ({"population": 5}, "even"),
        ({"images": 0}, "images must be at least 1"),
    ],
)
def test_bad_parameters(given, message):
    with pytest.raises(ValueError, match=message):
        parameters(**given)


def test_every_method_runs_or_has_a_reason():
    """What the settings run and what the reasons exclude is every method, on every protocol, and nothing twice."""
    p = parameters()
    for protocol in PROTOCOLS:
        runs = {*p.recipes(protocol), *p.plain_recipes(protocol)} - {CUT}
        excluded = {method for method in METHODS if reason(method, protocol)}
        assert runs | excluded == set(METHODS), protocol
        assert not runs & excluded, protocol
        assert all(len(reason(method, protocol)) > 20 for method in excluded)
    assert set(REASONS) == set(PROTOCOLS.values())
    assert {method for table in REASONS.values() for method in table} <= set(METHODS)


def test_coverage_names_the_reasons():
    table = comparison.coverage()
    assert table.shape == (len(METHODS), len(PROTOCOLS))
    assert table.loc["BTFL", "BRFL"] == "runs"
    assert "no label" not in table.loc["EATA", "TTPFL label"]
    assert table.loc["ATP-batch", "FedICON domain"] == REASONS["labels"]["ATP-batch"]


def test_a_choice_of_methods_keeps_their_baselines():
    p = parameters(methods=["MEMO", "FedTTA"])
    assert list(p.recipes("BRFL")) == [CUT, "MEMO"]
    assert list(p.plain_recipes("BRFL")) == [PLAIN, "FedTTA"]
    assert p.recipes("TTPFL label")["MEMO"].personalize is None


def test_the_method_without_adaptation_has_one_name():
    """FedAvg, as in all tables but ATP's, under whose name the same recipe would be looked for in vain."""
    assert NONE == "FedAvg"
    assert "NoAdapt" not in METHODS
    assert fedthe.RECIPES["FedAvg"].adapt == parameters().recipes("BRFL")[NONE].adapt


def test_fedicon_takes_the_views_of_the_data_it_runs_on():
    p = parameters(dataset="cifar10", domains="digits5")
    views = {name: p.recipes(name)["FedICON"] for name in ("BRFL", "FedICON domain", "FedICON covariate", "FedICON attribute")}
    assert [r.train.contrast.views for r in views.values()] == ["cifar", "digits", "digits", "cifar"]
    assert [r.adapt.contrast.views for r in views.values()] == ["cifar", "digits", "digits", "cifar"]


@pytest.mark.parametrize("exhibit", comparison.EXHIBITS)
def test_an_exhibit_alone_needs_its_protocols_only(exhibit):
    names = list(parameters(tables=[exhibit]).clients_of())
    assert names == (list(PROTOCOLS) if exhibit in ("heatmap", "ranks") else ["BRFL"])


def test_exhibits_of_brfl_need_it():
    with pytest.raises(ValueError, match="BRFL, which the parameter protocols leaves out"):
        parameters(tables=["leak"], protocols=["BTGFL"]).clients_of()


def test_methods_that_run_nowhere_are_refused(tmp_path):
    p = parameters(methods=["EATA"], protocols=["TTPFL label"], cache=str(tmp_path))
    with pytest.raises(ValueError, match="none of the methods"):
        comparison.measure(p)


TINY = {"rounds": 2, "classifier_rounds": 1, "rate_rounds": 1, "local_epochs": 1, "images": 20, "clients": 4, "population": 10, "pool": 300}


@pytest.mark.parametrize("method", ["FedAvg", "EATA", "FedTTA", "MEMO"])
def test_one_method_alone_runs_to_the_end(method, tmp_path):
    """Methods that are the baseline, that do not run on new clients, that run on the other network, that are cut."""
    chosen = ["BRFL", "TTPFL label"]
    p = parameters(**TINY, costly_samples=1, timed_samples=4, methods=[method], protocols=chosen, cache=str(tmp_path))
    measured, missing = comparison.measure(p)
    table = comparison.heatmap(measured, missing)
    assert {*table.loc[table["mean"].notna(), "protocol"]} == {name for name in chosen if reason(method, name) is None}
    assert method in set(comparison.cost(measured, comparison.times(p, repeats=1))["method"])
    leak, places = comparison.leak(p, measured), comparison.ranks(measured)
    assert leak.empty == (method in ("FedTTA", "MEMO"))
    assert places.empty or method in set(places["method"])


def test_cohorts_are_a_quarter_of_the_source_clients():
    p = parameters(clients=20, population=40)
    cohorts = {name: p.recipes(name)["ATP-batch"].personalize.cohort for name in ("BRFL", "TTPFL label", "UPFL new clients")}
    assert cohorts == {"BRFL": 5, "TTPFL label": 8, "UPFL new clients": 5}


def test_gains_count_against_the_same_images_and_network():
    measured = rows({NONE: 50, "BTFL": 57, PLAIN: 40, "FedTTA": 43})
    cut = rows({CUT: 60, "MEMO": 58}, n=2)
    gains = comparison.gains(pd.concat([measured, cut])).groupby("method")["accuracy"].agg(["min", "max"])
    assert gains["min"].to_dict() == {NONE: 0, CUT: 0, PLAIN: 0, "BTFL": 7, "FedTTA": 3, "MEMO": -2}
    assert (gains["min"] == gains["max"]).all()


def test_heatmap_has_a_row_for_every_cell():
    measured = pd.concat(
        [rows({NONE: 50, "BTFL": 57, PLAIN: 40, "FedTTA": 43}, seeds=2), rows({NONE: 60}, "TTPFL label", columns=["test"])]
    )
    table = comparison.heatmap(measured, {"UPFL new clients": "the images are elsewhere"})
    cell = table.set_index(["protocol", "column", "method"])
    assert len(cell) == len(METHODS) * (2 + 1 + len(PROTOCOLS) - 2)
    # Clients 0 and 1, seeds 0 and 1: 57 + 2 + 0.5.
    assert cell.loc[("BRFL", "original", "BTFL"), ["mean", "gain", "n_seeds", "images", "status"]].tolist() == [59.5, 7, 2, 20, "stand-in"]
    assert cell.loc[("BRFL", "original", "BTFL"), "std"] == pytest.approx(np.sqrt(0.5))
    assert cell.loc[("TTPFL label", "test", "BTFL"), "status"] == f"not run: {reason('BTFL', 'TTPFL label')}"
    assert cell.loc[("TTPFL label", "test", "Tent"), "status"] == f"not run: {comparison.LEFT_OUT}"
    assert cell.loc[("UPFL new clients", "", "Tent"), "status"] == "not run: the images are elsewhere"
    assert (table["mean"].isna() == table["status"].str.startswith("not run")).all()


def test_columns_in_the_place_of_cifar101_are_stand_ins():
    rows = pd.DataFrame({"setting": "BRFL", "method": NONE, "column": ["original", "natural"], "dataset": "cifar10_jpeg", "model": "cnn"})
    rows["stand_in"] = rows["column"] == "natural"
    status = provenance(rows, ["column"]).set_index("column")["status"]
    assert status.to_dict() == {"original": "ok", "natural": "stand-in"}
    assert provenance(rows, ["method"])["status"].tolist() == ["stand-in"]
    assert set(provenance(rows.assign(dataset="digits"), ["column"])["status"]) == {"stand-in"}


def test_only_what_stands_on_enough_images_is_ranked():
    """MEMO has seen the first two images of each stream: 80 in all, where the others have 400."""
    full = rows({NONE: 50, "Tent": 60, "BTFL": 70}, clients=40)
    few = rows({CUT: 50, "MEMO": 90}, clients=40, n=2)
    table = ranks(pd.concat([full, few]))
    assert set(table["method"]) == {NONE, "Tent", "BTFL"}
    assert table.loc[table["method"] == "BTFL", "place"].eq(0).all()
    assert comparison.unranked(pd.concat([full, few])).to_dict("records") == [{"setting": "BRFL", "method": "MEMO", "images": 80}]
    assert ranks(rows({NONE: 50, "Tent": 60})).empty


def test_cost_takes_the_mean_of_the_tests():
    times = pd.DataFrame({"method": [NONE, "BTFL"], "run_model": "net", "seconds": [1.0, 2.0]})
    table = comparison.cost(rows({NONE: 50, "BTFL": 57}, seeds=2), times).set_index("method")
    # Columns 10 and clients 4 apart.
    assert table["accuracy"].to_dict() == {NONE: 57.5, "BTFL": 64.5}
    assert table["gain"].to_dict() == {NONE: 0, "BTFL": 7}
    assert table["images"].to_dict() == {NONE: 20, "BTFL": 20}
    assert table["accuracy_std"].tolist() == pytest.approx([np.sqrt(0.5)] * 2)
    assert table["gain_std"].tolist() == [0, 0]
    assert set(table["status"]) == {"stand-in"}
    assert comparison.cost(rows({NONE: 50}, "BTGFL"), times).empty


def test_absent_data_are_named(tmp_path):
    p = parameters(protocols=["FedICON domain"], domains="digits5_fedbn", data_root=str(tmp_path), cache=str(tmp_path))
    with pytest.raises(FileNotFoundError, match="digits5_fedbn"):
        comparison.measure(p)


@pytest.mark.slow
def test_everything_runs_on_a_tiny_schedule(tmp_path):
    """All methods on a protocol of each kind, the times and the leak."""
    chosen = ["BRFL", "TTPFL hybrid", "UPFL new clients", "FedICON covariate"]
    p = parameters(**TINY, costly_samples=1, timed_samples=8, protocols=chosen, cache=str(tmp_path))
    measured, missing = comparison.measure(p)
    assert not missing
    table = comparison.heatmap(measured, missing)
    ran = table[table["mean"].notna()]
    assert {(r.protocol, r.method) for r in ran.itertuples()} == {(n, m) for n in chosen for m in METHODS if reason(m, n) is None}
    assert set(table.loc[table["protocol"] == "FedICON covariate", "column"]) == {"corrupted"}
    cost = comparison.cost(measured, comparison.times(p, repeats=1))
    assert set(cost["method"]) == set(METHODS)
    assert (cost["seconds"] > 0).all()
    leak = comparison.leak(p, measured)
    assert {*leak["method"]} == {m for m in METHODS if m not in ("TTT", "MEMO", "FedTHE+", *comparison.ON_PLAIN)}
    assert leak["difference"].abs().max() > 0
