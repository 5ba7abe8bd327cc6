"""Trainings by adaptations: what fits, and what the gains are counted against."""

import numpy as np
import pytest

from fedlib.papers.comparison import halves
from fedlib.papers.comparison.halves import NETWORKS, NONE_AT_TEST, STEPS, TRAININGS
from fedlib.papers.comparison.recipes import METHODS
from fedlib.train.fedtta import FedTTA
from tests.papers.comparison_cases import ALL, TINY, by_training, of_one_test, parameters, rows, study


def test_what_fits():
    p = parameters(**ALL)
    norm, plain, new = (halves.recipes(p, *of) for of in (("BRFL", False), ("BRFL", True), ("UPFL new clients", True)))
    assert {training for training, _ in norm} == set(TRAININGS) - {"FedTTA's"}
    assert {training for training, _ in plain} == set(TRAININGS)
    assert {step for _, step in norm} == {NONE_AT_TEST, *STEPS} - {"FedTTA's step", "FedTTA++'s steps"}
    assert {training for training, step in plain if step == "FedTTA's step"} == {"FedTTA's"}
    assert {"Tent", "EATA", "ATP-batch"}.isdisjoint({step for _, step in plain})
    assert {"fine-tuning", "FedTHE", "BTFL", "kNN memory"}.isdisjoint({step for _, step in new})
    assert ("FedTTA's", "fine-tuning") not in plain
    assert ("FedTTA's", "BTFL") in plain
    assert all(isinstance(recipe.train, FedTTA) == (training == "FedTTA's") for (training, _), recipe in plain.items())
    assert set(STEPS.values()) <= set(METHODS)


def test_only_the_methods_asked_for():
    made = halves.recipes(parameters(**ALL, methods=["T3A"]), "BRFL", False)
    assert {step for _, step in made} == {NONE_AT_TEST, "T3A"}


@pytest.mark.parametrize(("method", "networks"), [("T3A", NETWORKS[:1]), ("FedTTA", NETWORKS)])
def test_a_network_that_no_method_needs_is_not_trained(method, networks):
    assert {block.model for block in halves.pairs(parameters(**ALL, methods=[method]))} == {*networks}


def test_gain_is_within_a_training_trained_within_an_adaptation_and_total_over_neither():
    values = {
        "cross-entropy | none": 50,
        "cross-entropy | T3A": 53,
        "contrastive | none": 60,
        "contrastive | T3A": 61,
        "FedTTA's | step": 58,
    }
    table = halves.factorial(parameters(), rows(values).assign(printed_model="batch norm")).set_index(["training", "adaptation"])
    assert table["gain"].fillna(-1).tolist() == [0, 3, 0, 1, -1]
    assert table["trained"].fillna(-1).tolist() == [0, 0, 10, 8, -1]
    assert table["total"].tolist() == [0, 3, 10, 11, 8]
    assert table["n"].tolist() == [40] * 5
    assert set(table["total_verdict"].dropna()) == {"too few images"}


def test_the_worst_client_and_calibration_are_told_of_tests_with_images_enough():
    made = rows({"cross-entropy | none": 50, "cross-entropy | T3A": 53}, clients=3, n=100).assign(printed_model="batch norm")
    sure, right = (made["n"].map(lambda n, share=share: np.full(n, share)) for share in (0.9, 0.5))
    made = made.assign(confidence=sure, right=right)
    table = halves.factorial(parameters(), made).set_index("adaptation")
    assert table["worst"].tolist() == [55, 58]  # the means of 50 and 60, 53 and 63
    assert table.loc["none", "ece"] == pytest.approx(40)
    assert np.isnan(table.loc["T3A", "ece"])  # similarities to prototypes
    few = made["column"] == "ooc"
    made.loc[few, "n"] = 10
    assert halves.factorial(parameters(), made)[halves.BESIDE].isna().all(axis=None)


def test_domains_of_the_clients_are_one_test():
    """Every client of the covariate protocol is tested on its own domain: the worst of them all counts, as in the heat map."""
    values = {"cross-entropy | none": 50, "cross-entropy | T3A": 53}
    made = rows(values, "FedICON covariate", clients=3, n=100, columns=("test",), noise=0.01).assign(printed_model="batch norm")
    table = halves.factorial(parameters(), made.assign(column="domain " + made["client"].astype(str))).set_index("adaptation")
    assert table["worst"].tolist() == pytest.approx([50, 53], abs=0.1)
    assert table.loc["T3A", "gain_verdict"] == "helps"


def test_trainings_without_an_adaptation():
    values = {"cross-entropy | none": 50, "contrastive | none": 60}
    table = halves.factorial(parameters(), rows(values).assign(printed_model="batch norm"))
    assert table[["gain", "trained", "total"]].to_numpy().tolist() == [[0, 0, 0], [0, 10, 10]]


def test_what_a_pair_gains_is_tested_on_the_same_clients():
    values = {"cross-entropy | none": 50, "cross-entropy | T3A": 53, "contrastive | none": 60, "contrastive | T3A": 61}
    made = rows(values, clients=8, n=100, noise=0.01).assign(printed_model="batch norm")
    lucky = made["method"] == "contrastive | T3A"
    made.loc[lucky, "accuracy"] += 9 * (made.loc[lucky, "client"] % 2) - 4.5
    table = halves.factorial(parameters(), made).set_index(["training", "adaptation"])
    assert table["gain_verdict"].fillna("").tolist() == ["", "helps", "", "undecided"]
    assert table["total_verdict"].fillna("").tolist() == ["", "helps", "helps", "helps"]
    assert table.loc[("contrastive", "T3A"), ["gain_low", "gain_high"]].tolist() == pytest.approx([-3, 5], abs=1.5)


def test_pairs_are_tested_where_all_clients_share_their_test():
    names = {"FedAvg": "cross-entropy | none", "EM": "cross-entropy | EM", "BBSE": "contrastive | none", "T3A": "contrastive | EM"}
    made = of_one_test(0, EM=20, BBSE=0, T3A=0)
    made = made.assign(method=made["method"].map(names), printed_model="batch norm")
    table = halves.factorial(parameters(), made).set_index(["training", "adaptation"])
    assert table["gain_verdict"].fillna("").tolist() == ["", "helps", "", "undecided"]
    assert (table["total_high"] - table["total_low"]).dropna().between(10, 22).all()
    untold = halves.factorial(parameters(), made.drop(columns="right"))
    assert set(untold["gain_verdict"].dropna()) == {"undecided"}


def pairs_run(**given):
    """Whether the pairs in the table are those that fit."""
    s = study(**TINY, tables=["halves"], **given)
    table, p = s.frame("halves"), s.p
    assert table["mean"].between(0, 100).all()
    for protocol in p.clients_of():
        for plain, network in enumerate(halves.NETWORKS):
            own = table[(table["protocol"] == protocol) & (table["network"] == network)]
            assert set(zip(own["training"], own["adaptation"], strict=True)) == set(halves.recipes(p, protocol, bool(plain)))


def test_pairs_run(tmp_path):
    pairs_run(protocols=["UPFL new clients"], methods=["T3A", "FedTTA"], cache=str(tmp_path))


@pytest.mark.slow
def test_every_pair_that_fits_runs(tmp_path):
    """Every training with every adaptation on both networks, on a protocol of each kind."""
    pairs_run(protocols=["BRFL", "UPFL new clients"], cache=str(tmp_path))


def test_differences_are_tested_over_trainings():
    case = {"protocol": "UPFL new clients", "seeds": 3, "clients": 8, "n": 100, "columns": ("test",)}
    made = by_training(rows({"cross-entropy | none": 50, "cross-entropy | T3A": 60}, **case), "cross-entropy | T3A")
    table = halves.factorial(parameters(), made.assign(printed_model="batch norm")).set_index("adaptation")
    assert table.loc["T3A", ["gain_verdict", "over"]].tolist() == ["undecided", "clients and seeds"]
