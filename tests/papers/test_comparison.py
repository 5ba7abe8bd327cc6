"""The comparison's data: parameters, coverage, and the steps from measured rows to tables, on made-up rows and on a tiny run."""

import itertools

import numpy as np
import pandas as pd
import papermill
import pytest

from fedlib.notebook import PROJECT
from fedlib.papers import comparison
from fedlib.papers.comparison import PROTOCOLS, REASONS, place, provenance, ranks, reason, resampled
from fedlib.recipes.comparison import CUT, METHODS, NONE, PLAIN
from fedlib.seeding import numpy_generator

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


def noisy(clients, seeds=1):
    """Gains of 0, 1 and 2 points on average, the latter two with a deviation of 5 over clients."""
    rng, one = np.random.default_rng(0), rows({NONE: 50, "Tent": 51, "BTFL": 52}, seeds=seeds, clients=clients, columns=["test"])
    return one.assign(accuracy=one["accuracy"] + 5 * rng.standard_normal(len(one)) * (one["method"] != NONE))


def test_profiles_fill_every_parameter():
    for profile in comparison.PROFILES:
        p = parameters(profile=profile)
        unset = {name for name in declared() if getattr(p, name) is None}
        assert unset == {"held_out", "methods", "protocols", "output"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dataset": "cifar"}, "cifar10"),
        ({"domains": "digits"}, "digits5"),
        ({"domains": "digits5", "held_out": "font"}, "fonts"),
        ({"methods": ["FedTAA"]}, "FedTTA"),
        ({"protocols": ["TTPFL"]}, "TTPFL label"),
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


def test_place():
    assert place(np.array([3.0, 9.0, 5.0])).tolist() == [100, 0, 50]
    assert place(np.array([[1.0, 1.0], [0.0, 2.0]])).tolist() == [[50, 50], [100, 0]]
    assert place(np.array([4.0])).tolist() == [0]


def test_bootstrap_intervals_contain_the_mean_and_shrink_with_clients():
    widths = []
    for clients in (40, 640):
        table = ranks(noisy(clients), draws=400)
        brfl = table[(table["protocol"] == "BRFL") & (table["method"] != NONE)]
        assert (brfl["gain_low"] < brfl["gain"]).all()
        assert (brfl["gain"] < brfl["gain_high"]).all()
        widths.append((brfl["gain_high"] - brfl["gain_low"]).mean())
    # The spread of a mean falls with the square root of the clients: here to a quarter.
    assert widths[1] == pytest.approx(widths[0] / 4, rel=0.2)


def test_bootstrap_spread_is_that_of_a_mean():
    scores = np.random.default_rng(1).standard_normal((1, 400, 1))
    replicates = resampled(scores, 2000, numpy_generator(0, "test"))
    assert replicates.mean() == pytest.approx(scores.mean(), abs=0.01)
    assert replicates.std() == pytest.approx(scores.std() / 20, rel=0.1)


def test_clients_that_all_seeds_share_are_drawn_once():
    """Three seeds of the same clients, without any noise, tell no more than one."""
    one = np.random.default_rng(1).standard_normal((1, 400, 1))
    scores = np.repeat(one, 3, axis=0)
    shared, apart = (resampled(scores, 2000, numpy_generator(0, "test"), redrawn=redrawn).std() for redrawn in (False, True))
    assert shared == pytest.approx(one.std() / 20, rel=0.1)
    assert apart == pytest.approx(shared / np.sqrt(3), rel=0.1)


def test_columns_in_the_place_of_cifar101_are_stand_ins():
    rows = pd.DataFrame({"setting": "BRFL", "method": NONE, "column": ["original", "natural"], "dataset": "cifar10_jpeg", "model": "cnn"})
    rows["stand_in"] = rows["column"] == "natural"
    status = provenance(rows, ["column"]).set_index("column")["status"]
    assert status.to_dict() == {"original": "ok", "natural": "stand-in"}
    assert provenance(rows, ["method"])["status"].tolist() == ["stand-in"]
    assert set(provenance(rows.assign(dataset="digits"), ["column"])["status"]) == {"stand-in"}


def test_seeds_that_differ_widen_only_the_interval_over_seeds():
    """Two seeds without any spread over clients."""
    scores = np.broadcast_to(np.array([0.0, 1.0])[:, None, None], (2, 30, 1))
    assert resampled(scores, 200, numpy_generator(0, "test")).std() == pytest.approx(0)
    both = resampled(scores, 2000, numpy_generator(0, "test"), seeds=True)
    assert sorted(set(both.ravel().round(6))) == [0, 0.5, 1]
    assert (both == 0).mean() == pytest.approx(0.25, abs=0.05)


def test_ranks_say_over_what_they_are_taken():
    assert set(ranks(noisy(4), draws=20)["over"]) == {"clients"}
    assert set(ranks(noisy(4, seeds=2), draws=20)["over"]) == {"clients", "clients and seeds"}


def test_ranks_average_over_the_protocols_of_a_method():
    first = rows({NONE: 50, "Tent": 60, "BTFL": 70, CUT: 50, "MEMO": 40, PLAIN: 0, "FedTTA": 1})
    measured = pd.concat([first, rows({NONE: 50, "Tent": 40}, "TTPFL label")])
    table = ranks(measured, draws=10).set_index(["protocol", "method"])
    assert table.loc["BRFL", "place"].to_dict() == {NONE: 75, "Tent": 25, "BTFL": 0, "MEMO": 100, "FedTTA": 50}
    assert table.loc[("TTPFL label", "Tent"), "place"] == 100
    assert table.loc[("all", "Tent"), ["place", "protocols", "gain"]].tolist() == [62.5, 2, 0]
    assert table.loc[("all", "BTFL"), ["place", "protocols"]].tolist() == [0, 1]


def test_cost_takes_the_mean_of_the_tests():
    times = pd.DataFrame({"method": [NONE, "BTFL"], "run_model": "net", "seconds": [1.0, 2.0]})
    table = comparison.cost(rows({NONE: 50, "BTFL": 57}), times).set_index("method")
    # Columns 10 and clients 4 apart.
    assert table["accuracy"].to_dict() == {NONE: 57, "BTFL": 64}
    assert table["gain"].to_dict() == {NONE: 0, "BTFL": 7}
    assert set(table["status"]) == {"stand-in"}
    assert comparison.cost(rows({NONE: 50}, "BTGFL"), times).empty


def test_absent_data_are_named(tmp_path):
    p = parameters(protocols=["FedICON domain"], domains="digits5_fedbn", data_root=str(tmp_path), cache=str(tmp_path))
    with pytest.raises(FileNotFoundError, match="digits5_fedbn"):
        comparison.measure(p)


@pytest.mark.slow
def test_everything_runs_on_a_tiny_schedule(tmp_path):
    """All methods on a protocol of each kind, the times and the leak."""
    size = {
        "rounds": 2,
        "classifier_rounds": 1,
        "rate_rounds": 1,
        "local_epochs": 1,
        "images": 20,
        "clients": 4,
        "population": 10,
        "pool": 300,
    }
    chosen = ["BRFL", "TTPFL hybrid", "UPFL new clients", "FedICON covariate"]
    p = parameters(**size, costly_samples=1, timed_samples=8, protocols=chosen, cache=str(tmp_path))
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
