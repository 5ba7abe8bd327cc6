"""The grid: measured rows and the tables that are means of them, on made-up rows and on a tiny run."""

import numpy as np
import pandas as pd
import pytest

from fedlib.adapt import em
from fedlib.papers.comparison import grid
from fedlib.papers.comparison.grid import provenance
from fedlib.papers.comparison.recipes import CUT, METHODS, NONE, PLAIN
from fedlib.papers.comparison.settings import LEFT_OUT, PROTOCOLS, reason
from tests.papers.comparison_cases import TINY, parameters, rows, study


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


def test_methods_that_run_nowhere_are_refused(tmp_path):
    with pytest.raises(ValueError, match="none of the methods"):
        study(methods=["EATA"], protocols=["TTPFL label"], cache=str(tmp_path)).frame("heatmap")


@pytest.mark.parametrize("method", ["FedAvg", "EATA", "FedTTA", "MEMO"])
def test_one_method_alone_runs_to_the_end(method, tmp_path):
    """Methods that are the baseline, that do not run on new clients, that run on the other network, that are cut."""
    chosen = ["BRFL", "TTPFL label"]
    tables = ["heatmap", "cost", "ranks"]
    s = study(**TINY, costly_samples=1, timed_samples=4, methods=[method], protocols=chosen, tables=tables, cache=str(tmp_path))
    table = s.frame("heatmap")
    assert {*table.loc[table["mean"].notna(), "protocol"]} == {name for name in chosen if reason(method, name, s.p) is None}
    assert method in set(s.frame("cost")["method"])
    places = s.frame("ranks")
    assert places.empty or method in set(places["method"])


def test_gains_count_against_the_same_images_and_network():
    measured = rows({NONE: 50, "BTFL": 57, PLAIN: 40, "FedTTA": 43})
    cut = rows({CUT: 60, "MEMO": 58}, n=2)
    gains = grid.gains(pd.concat([measured, cut])).groupby("method")["accuracy"].agg(["min", "max"])
    assert gains["min"].to_dict() == {NONE: 0, CUT: 0, PLAIN: 0, "BTFL": 7, "FedTTA": 3, "MEMO": -2}
    assert (gains["min"] == gains["max"]).all()


def test_an_image_counts_by_the_share_of_several_predictors_that_are_right():
    told = {"seed": 0, "column": "unseen domain", "client": 0, "n": 2, "setting": "FedICON domain", "network": "mlp", "accuracy": 50.0}
    right = {NONE: [1.0, 0.0], "Mine": [1.0, 0.0, 1.0, 1.0]}
    measured = pd.DataFrame([told | {"method": method, "right": np.array(values)} for method, values in right.items()])
    found = grid.gains(measured, {NONE: NONE, "Mine": NONE}).set_index("method")["by_image"]
    assert found["Mine"].tolist() == [0, 50]


def test_heatmap_has_a_row_for_every_cell():
    measured = pd.concat(
        [rows({NONE: 50, "BTFL": 57, PLAIN: 40, "FedTTA": 43}, seeds=2), rows({NONE: 60}, "TTPFL label", columns=["test"])]
    )
    table = grid.of_cells(measured, parameters(), {("UPFL new clients",) * 2: "the images are elsewhere"})
    cell = table.set_index(["protocol", "column", "method"])
    assert len(cell) == len(METHODS) * (2 + 1 + len(PROTOCOLS) - 2)
    # Clients 0 and 1, seeds 0 and 1: 57 + 2 + 0.5.
    assert cell.loc[("BRFL", "original", "BTFL"), ["mean", "gain", "n_seeds", "images", "status"]].tolist() == [59.5, 7, 2, 20, "stand-in"]
    assert cell.loc[("BRFL", "original", "BTFL"), "std"] == pytest.approx(np.sqrt(0.5))
    assert cell.loc[("TTPFL label", "test", "BTFL"), "status"] == f"not run: {reason('BTFL', 'TTPFL label', parameters())}"
    assert cell.loc[("TTPFL label", "test", "Tent"), "status"] == f"not run: {LEFT_OUT}"
    assert cell.loc[("UPFL new clients", "", "Tent"), "status"] == "not run: the images are elsewhere"
    assert (table["mean"].isna() == table["status"].str.startswith("not run")).all()
    # What happened on one protocol is no reason on others.
    p = parameters(protocols=["BRFL", "BTGFL"], methods=[NONE, "BTFL", "Tent"])
    why = {("BRFL", "Tent"): "diverged in round 2", ("BTGFL", "Tent"): "diverged in round 7"}
    fell = grid.of_cells(rows({NONE: 50, "BTFL": 57}), p, why).query("method == 'Tent'").set_index("protocol")["status"]
    assert set(fell["BRFL"]) == {"not run: diverged in round 2"}
    assert fell["BTGFL"] == "not run: diverged in round 7"
    assert fell["TTPFL label"] == f"not run: {LEFT_OUT}"


def test_a_method_without_its_baseline_has_an_accuracy_and_no_gain():
    """As FedTTA where FedAvg on its network diverged."""
    p = parameters(protocols=["UPFL new clients"], methods=[NONE, "FedTTA"])
    found = grid.of_cells(rows({NONE: 50, "FedTTA": 57}, "UPFL new clients", columns=("test",)), p, {})
    alone = found.query("method == 'FedTTA' and protocol == 'UPFL new clients'")
    assert alone["mean"].tolist() == [59]
    assert alone["gain"].isna().all()


def test_columns_in_the_place_of_cifar101_are_stand_ins():
    rows = pd.DataFrame({"setting": "BRFL", "method": NONE, "column": ["original", "natural"], "dataset": "cifar10_jpeg", "model": "cnn"})
    rows["stand_in"] = rows["column"] == "natural"
    status = provenance(rows, ["column"]).set_index("column")["status"]
    assert status.to_dict() == {"original": "ok", "natural": "stand-in"}
    assert provenance(rows, ["method"])["status"].tolist() == ["stand-in"]
    assert set(provenance(rows.assign(dataset="digits"), ["column"])["status"]) == {"stand-in"}


def test_a_method_that_diverges_leaves_the_others_alone(tmp_path, monkeypatch):
    """EM's scores are made infinite: its cells say so, and T3A's are what they were."""
    given = TINY | {"methods": ["EM", "T3A"], "protocols": ["UPFL new clients"]}
    before = grid.measured(study(**given, cache=str(tmp_path)))
    adjust = em.adjust
    monkeypatch.setattr(em, "adjust", lambda probabilities, **how: adjust(probabilities, **how) * float("nan"))
    s = study(**given, cache=str(tmp_path / "new"))
    measured = grid.measured(s)
    assert set(measured["method"]) == {NONE, "T3A"}
    kept = before[before["method"].isin([NONE, "T3A"])]
    assert measured["accuracy"].tolist() == pytest.approx(kept["accuracy"].tolist())
    status = s.frame("heatmap").set_index(["protocol", "method"])["status"]
    assert status["UPFL new clients", "EM"].startswith("not run: diverged: EM")
    assert "not finite" in status["UPFL new clients", "EM"]


@pytest.mark.slow
def test_everything_runs_on_a_tiny_schedule(tmp_path):
    """All methods on a protocol of each kind, and the times."""
    chosen = ["BRFL", "TTPFL hybrid", "UPFL new clients", "FedICON covariate"]
    asked = {"tables": ["heatmap", "cost"], "protocols": chosen, "cache": str(tmp_path)}
    s = study(**TINY, costly_samples=1, timed_samples=8, **asked)
    table = s.frame("heatmap")
    ran = table[table["mean"].notna()]
    assert {(r.protocol, r.method) for r in ran.itertuples()} == {(n, m) for n in chosen for m in METHODS if reason(m, n, s.p) is None}
    assert set(table.loc[table["protocol"] == "FedICON covariate", "column"]) == {"corrupted"}
    priced = s.frame("cost")
    assert set(priced["method"]) == set(METHODS)
    assert (priced["seconds"] > 0).all()


def test_the_worst_client_is_the_mean_over_seeds_of_each_seeds_own():
    """Clients 50, 54, 58; in seed 1 one point more each, and its last client falls to 20."""
    measured = rows({NONE: 50}, seeds=2, clients=3, columns=("original",), n=200)
    last = (measured["seed"] == 1) & (measured["client"] == 2)
    measured.loc[last, ["accuracy", "n"]] = [20.0, 180]
    found = grid.beside_the_mean(measured, ["method"]).iloc[0]
    assert found[["worst", "worst_n"]].tolist() == [35, 190]
    assert found["worst_std"] == pytest.approx(30 / np.sqrt(2))
    assert np.isnan(found["ece"])
    # Neither of a few images, nor of streams that others see whole.
    assert np.isnan(grid.beside_the_mean(rows({NONE: 50}, n=6), ["method"]).iloc[0]["worst"])
    assert np.isnan(grid.beside_the_mean(measured.assign(cut=True), ["method"]).iloc[0]["worst"])
    assert grid.beside_the_mean(measured.assign(cut=False), ["method"]).iloc[0]["worst"] == 35


def test_scores_that_are_no_logits_have_no_calibration_error():
    measured = rows({NONE: 50, "T3A": 50}, columns=("original",), n=200)
    measured = measured.assign(confidence=[np.full(200, 0.9)] * len(measured), right=[np.arange(200) % 2 == 0] * len(measured))
    found = grid.beside_the_mean(measured, ["method"]).set_index("method")
    assert found.loc[NONE, "ece"] == pytest.approx(40)
    assert np.isnan(found.loc["T3A", "ece"])
    assert found["worst"].notna().all()


def test_without_a_test_of_images_enough_there_is_nothing_beside_the_mean():
    key = ["setting", "column", "method"]
    measured = pd.concat([rows({NONE: 50}, n=200), rows({"MEMO": 50}, n=6)])
    both = grid.beside_the_mean(measured, key)
    assert grid.beside(both.assign(units=None)).equals(both)
    assert grid.beside(both[both["method"] == "MEMO"]).empty
    assert grid.beside(pd.DataFrame()).empty


def test_accuracies_hold_every_client_once_and_give_the_means():
    measured = pd.concat([rows({NONE: 50, "BTFL": 57}, seeds=2, noise=3.0), rows({CUT: 50, "MEMO": 52}, n=2, seeds=2)])
    found = grid.accuracies(measured)
    assert list(found.columns) == ["protocol", "column", "seed", "client", NONE, "BTFL", CUT, "MEMO", "n", "run_dataset", "status"]
    assert not found[["protocol", "column", "seed", "client"]].duplicated().any()
    assert found["n"].eq(measured["n"].max()).all()
    gain = (found["BTFL"] - found[NONE]).groupby([found["column"], found["seed"]]).mean()
    gains = grid.gains(measured)
    own = gains[gains["method"] == "BTFL"].groupby(["column", "seed"])["accuracy"].mean()
    pd.testing.assert_series_equal(gain, own, check_names=False)


@pytest.mark.parametrize("plain_model", ["convnet_small", "mlp"])
def test_the_curve_is_that_of_the_models_that_rounds_have_left(plain_model, tmp_path):
    """Its last point is the final model, on which the grid is measured; slopes are per ten rounds."""
    s = study(**TINY, methods=["FedAvg", "FedTTA"], protocols=["BRFL"], model="mlp", plain_model=plain_model, cache=str(tmp_path))
    curve, measured = s.frame("curve"), grid.measured(s)
    assert curve["round"].tolist() == [1, 2, 1, 2]
    assert curve["run_model"].tolist() == ["mlp"] * 2 + [plain_model] * 2
    ends = curve[curve["round"] == 2].set_index("method")
    for method in (NONE, PLAIN):
        own = measured[measured["method"] == method].groupby("client")["accuracy"].mean().mean()
        assert ends.loc[method, "mean"] == pytest.approx(own)
    first = curve[curve["round"] == 1].set_index("method")["mean"]
    assert ends["slope"].to_numpy() == pytest.approx(10 * (ends["mean"] - first).to_numpy())


def test_confidence_reaches_the_heat_map(tmp_path):
    s = study(**TINY, methods=["FedAvg", "EM"], protocols=["UPFL new clients"], cache=str(tmp_path))
    measured, table = grid.measured(s), s.frame("heatmap").dropna(subset=["mean"])
    assert len(table) == 2
    assert table["ece"].between(0, 100).all()
    for row in measured.itertuples():
        assert 100 * np.mean(row.right) == pytest.approx(row.accuracy)
        assert row.confidence.min() >= 0.1 - 1e-9
