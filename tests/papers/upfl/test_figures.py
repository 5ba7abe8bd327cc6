"""UPFL's figures and appendix tables, most of them on a whole, tiny run on the digits."""

from dataclasses import replace

import pandas as pd
import pytest

from fedlib.papers.upfl import figures as upfl_figures
from fedlib.papers.upfl import settings as upfl
from fedlib.results import check_table
from tests.papers.upfl.test_settings import parameters


@pytest.fixture(scope="module")
def p(tmp_path_factory):
    methods = ["FedAvg", "PFL-Sampled", "PFL-Ensemble", "Tent", "FedTTA", "FedTTA-Prox", "FedTTA++"]
    return parameters(clients=10, rounds=2, steps=2, every=1, methods=methods, cache=str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def main(p):
    return upfl.measure(p, [("cifar10", "pathological"), ("mnist", "pathological")])


def test_one_run_serves_equal_settings(p, main):
    assert set(main["setting"]) == {"digits, pathological"}
    assert set(main["finished"]) == {1, 2}
    assert main.groupby("column")["client"].nunique().to_dict() == {"test": 5, "validation": 5}
    again = upfl.measure(p, [("fashion_mnist", "pathological")])
    assert again["cached"].all()
    assert again["train_cached"].all()


@pytest.mark.slow
def test_all_images_kept_is_the_main_table(p, main):
    figure = upfl_figures.figure3(p, main)
    table = upfl.table1(p, main)
    cell = table[(table["dataset"] == "cifar10") & (table["column"] == "test")].set_index("method")["mean"]
    whole = figure[figure["share"] == 1.0].set_index("method")["mean"]
    for method in ("Tent", "FedTTA", "FedTTA-Prox", "FedTTA++"):
        assert whole[method] == pytest.approx(cell[method])
    assert set(figure["share"]) == set(upfl.SHARES)


def test_what_needs_no_method_of_figure_3_or_2_is_left_out(p, main):
    assert upfl_figures.figure3(p, main[main["method"] == "FedAvg"]).empty
    kept = upfl_figures.kept_steps(p)
    assert len(kept) == 5
    assert kept["mean"].between(0, 49).all()
    assert upfl_figures.kept_steps(replace(p, methods=["FedAvg"])).empty


def test_fifty_steps_start_at_the_model_and_end_where_they_lead(p, main):
    figure = upfl_figures.figure2(p)
    final = main[(main["method"] == "FedTTA") & (main["column"] == "test") & (main["finished"] == 2) & (main["seed"] == p.seeds[0])]
    for client, rows in figure[figure["column"] == "accuracy"].groupby("client"):
        accuracy = rows.set_index("step")["mean"]
        assert list(accuracy.index) == list(range(51))
        assert accuracy[1] == pytest.approx(final.set_index("client").loc[client, "accuracy"])
    assert set(figure["client"]) == set(final["client"])
    assert figure["mean"].notna().all()


def test_evaluations_are_after_whole_rounds():
    assert upfl.evaluated(upfl.setting(parameters(rounds=7, every=3), "cifar10", "pathological")) == (4, 7, 8)
    assert upfl_figures.evaluations(parameters(rounds=7, every=3)) == "after rounds 3, 6, 7"


def test_the_client_of_figure_2_is_the_first_that_peaks_inside():
    paths = {3: range(51), 5: [*range(20), *range(31, 0, -1)], 7: [*range(40), *range(11, 0, -1)]}
    frame = pd.DataFrame(
        [{"client": c, "step": t, "column": "accuracy", "mean": v} for c, path in paths.items() for t, v in enumerate(path)]
    )
    assert set(upfl_figures.peaked(frame)["client"]) == {5}
    assert set(upfl_figures.peaked(frame[frame["client"] == 3])["client"]) == {3}


def test_appendix_tables_count_the_kits_own_clients_and_networks():
    p = parameters(clients=10)
    at1, at2, at3 = upfl_figures.clients(p), upfl_figures.rotated(p), upfl_figures.widths()
    for table in (at1, at2, at3):
        check_table(table)
        assert table["mean"].notna().all()
    counts = at1[at1["dataset"] == "mnist"].set_index("column")["mean"]
    assert counts.to_dict() == {"classes": 10, "clients": 10, "samples": 1797, "samples_per_client": 180}
    assert at2["mean"].tolist()[0] == 5
    assert at2[at2["column"] == "samples"]["mean"].sum() == 1000
    pd.testing.assert_series_equal(at3["mean"], at3["published_mean"], check_names=False)
    assert set(at3["status"]) == {"ok"}
