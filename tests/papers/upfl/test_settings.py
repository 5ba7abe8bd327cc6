"""UPFL's notebook data: parameters, settings, and the steps from measured rows to tables and figures, on made-up rows."""

import itertools

import numpy as np
import pandas as pd
import pytest

from fedlib.papers.upfl import figures as upfl_figures
from fedlib.papers.upfl import settings as upfl
from fedlib.published import cells, claims_of
from fedlib.published.ledger import PROVENANCE, ledger
from fedlib.results import check_table

NAMES = (
    "dataset",
    "clients",
    "rounds",
    "steps",
    "local_epochs",
    "lr",
    "batch_size",
    "extra",
    "every",
    "images",
    "seeds",
    "costly_samples",
    "methods",
    "tables",
    "data_root",
    "output",
)
COLUMNS = ("validation", "test")


def parameters(**given):
    return upfl.parameters(dict.fromkeys(NAMES) | {"profile": "smoke", "jobs": 1, "device": "cpu", "cache": "cache"} | given)


def rows(
    settings=("digits, pathological",), methods=("FedAvg", "FedTTA"), columns=("validation", "test"), seeds=(0, 1), rounds=(6, 11, 16)
):
    """Two clients of 10 and 30 images; validation is best in the second round, the test in the last."""
    made = []
    for s, m, seed, (r, t), column, n in itertools.product(settings, methods, seeds, enumerate(rounds), columns, (10, 30)):
        peak = {0: 0, 1: 8, 2: 4}[r] if column == "validation" else 5 * r
        accuracy = 40 + 2 * methods.index(m) + peak + seed + (4 if n == 30 else 0)
        row = {"setting": s, "dataset": "digits", "model": "mlp", "method": m, "seed": seed, "round": t, "finished": t - 1}
        made.append(row | {"column": column, "client": n, "n": n, "accuracy": float(accuracy), "cached": False, "train_cached": False})
    return pd.DataFrame(made)


def test_accuracy_is_pooled_over_images():
    """Client accuracies 40 and 44 with 10 and 30 images: 43, and one point more with seed 1."""
    frame = rows(methods=("FedAvg",), columns=("validation",), rounds=(6,))
    (row,) = upfl.pooled(frame, ["setting", "method"]).to_dict("records")
    assert (row["mean"], row["n_seeds"], row["run_dataset"], row["run_model"]) == (43.5, 2, "digits", "mlp")
    assert row["std"] == pytest.approx(0.5**0.5)


def test_the_round_is_chosen_by_validation_and_the_first_of_equals():
    best = upfl.selected(rows())
    assert set(best["round"]) == {11}
    assert set(best["column"]) == {"validation", "test"}
    flat = rows()
    flat.loc[flat["column"] == "validation", "accuracy"] = 50.0
    assert set(upfl.selected(flat)["round"]) == {6}
    # Whatever the test does, the choice stays.
    moved = rows()
    moved.loc[moved["column"] == "test", "accuracy"] = np.random.default_rng(0).uniform(0, 100, (moved["column"] == "test").sum())
    assert set(upfl.selected(moved)["round"]) == {11}


def test_table1_fills_blocks_of_one_partition_from_one_stand_in():
    p = parameters()
    labels = [upfl.label(p, printed, block[0]) for printed, block in upfl.BLOCKS.items()]
    assert len(set(labels)) == 3
    table = upfl.table1(p, rows(tuple(dict.fromkeys(labels)), upfl.METHODS))
    check_table(table)
    assert len(table) == len(cells("upfl", "T1")) == table["mean"].notna().sum()
    assert set(table["status"]) == {"stand-in"}
    cell = table[(table["dataset"] == "femnist") & (table["method"] == "FedTTA") & (table["column"] == "test")].iloc[0]
    m = upfl.METHODS.index("FedTTA")
    assert cell["mean"] == pytest.approx(43.5 + 2 * m + 5)


def test_methods_that_were_not_run_say_so():
    table = upfl.table1(parameters(), rows())
    absent = table[table["mean"].isna()]
    assert absent["status"].str.startswith("not run: left out").all()
    assert len(table) - len(absent) == 2 * 2 * 3  # two methods and columns, three pathological blocks
    check_table(upfl.table1(parameters(), pd.DataFrame()))


def test_table2_has_one_test_value_for_one_model():
    columns = ("validation", *(f"test_alpha_{a}" for a in ("0.01", "0.03", "0.05", "0.1", "0.3", "0.5")))
    frame = rows(("digits, dirichlet",), upfl.METHODS, columns)
    table = upfl.table2(parameters(), frame)
    check_table(table)
    assert table["mean"].notna().all()
    assert (table["method"] == "FedAvg").sum() == 2
    assert (table["method"] == "Tent").sum() == 7
    alphas = upfl.alphas(frame)
    assert set(alphas["method"]) == set(upfl.ONE_MODEL)
    assert sorted(set(alphas["alpha"])) == [0.01, 0.03, 0.05, 0.1, 0.3, 0.5]


def test_figure_frames_have_what_the_claims_read():
    p = parameters()
    main = rows(tuple(upfl.label(p, d, b[0]) for d, b in list(upfl.BLOCKS.items())[:4] if d != "cifar10"), upfl.METHODS)
    hetero = rows(("digits, public",), ("Tent", *(f"HeteroFedTTA:{s:g}" for s in upfl.STRENGTHS)), ("test",))
    figures = {"AF2": upfl_figures.curves(p, main), "F5": upfl_figures.figure5(hetero)}
    figures["F4"] = upfl_figures.figure4(rows(("digits, concept",), upfl.METHODS))
    figures["U6"] = upfl.alphas(rows(("digits, dirichlet",), upfl.METHODS, ("validation", "test_alpha_0.1", "test_alpha_0.5")))
    for name, frame in figures.items():
        assert set(claims_of("upfl").FIGURE_COLUMNS[name]) | set(PROVENANCE) <= set(frame)
    assert set(figures["F5"]["strength"]) == set(upfl.STRENGTHS)
    assert set(figures["F5"][figures["F5"]["method"] == "Tent"]["strength"]) == {0.0}
    assert set(figures["AF2"]["dataset"]) == {"mnist, cifar10, fashion_mnist", "femnist", "cifar100"}
    assert len(figures["AF2"]) == len(main) // 4  # two clients and two seeds become one, and no run is counted again
    judged = ledger("upfl", {"T1": upfl.table1(p, main)}, figures).set_index("claim")
    assert judged.loc["U6", "ours"] == "holds"  # the same accuracy at all alphas by construction
    assert judged.loc["F3", "ours"] == "not run"
    assert set(upfl_figures.final(figures["F5"])["method"]) == {"Tent", "HeteroFedTTA"}


def test_the_curves_of_a_users_images_bear_their_name(tmp_path):
    images = np.zeros((20, 8, 8, 1), np.uint8)
    np.savez(tmp_path / "mine.npz", x_train=images, y_train=np.arange(20) % 2, x_test=images, y_test=np.arange(20) % 2)
    frame = upfl_figures.curves(
        parameters(dataset=str(tmp_path / "mine.npz")), rows(("mine.npz, pathological",)).assign(dataset="mine.npz")
    )
    assert set(frame["dataset"]) == {"mine.npz"}


def test_settings_follow_the_paper():
    p = parameters(profile="paper")
    s = upfl.setting(p, "cifar100", "superclass")
    local = s.schedule.local
    assert (s.protocol.dataset, s.protocol.n_clients, s.model, s.schedule.rounds) == ("cifar100", 100, "convnet", 1500)
    assert (local.steps, local.batch_size, local.weight_decay, local.clip, local.continued) == (20, 64, 1e-4, 10, True)
    assert local.decay**10 == pytest.approx(0.99)
    assert upfl.setting(p, "mnist", "pathological").protocol.deck
    concept = upfl.setting(p, "mnist", "concept").protocol
    assert (concept.n_clients, concept.shards, concept.images) == (50, 10, None)
    assert upfl.setting(p, "femnist", "natural").model == "convnet_2048"


def test_sections_that_are_not_asked_for_do_not_run():
    p = parameters(tables=["T2"])
    assert (p.asks("T2"), p.asks("F4")) == (True, False)
    assert upfl.unequal(p).empty
    assert upfl_figures.figure3(p, rows()).empty
    assert parameters().asks("F5")
    with pytest.raises(ValueError, match=r"unknown table or figure 'T3'\. Did you mean 'T2'"):
        parameters(tables=["T3"])


def test_data_sets():
    assert [upfl.run_on(parameters(), d) for d in upfl.BLOCKS] == ["digits"] * 5
    assert [upfl.run_on(parameters(dataset="published"), d) for d in upfl.BLOCKS] == list(upfl.BLOCKS)
    one = parameters(dataset="cifar10_jpeg")
    assert [upfl.run_on(one, d) for d in upfl.BLOCKS] == [None, "cifar10_jpeg", None, None, None]
    assert upfl_figures.rotated(one)["status"].str.startswith("not run").all()
    assert upfl.measure(one, [("mnist", "pathological")]).empty
    assert upfl.chosen(one, "cifar10_jpeg")["FedTTA"].train.rates.outer == 0.05
    assert list(upfl.chosen(parameters(methods=["Tent", "FedTTA"]), "digits")) == ["Tent", "FedTTA"]


def test_a_named_part_of_mnist_runs_the_mnist_column():
    """With MNIST's network, deck, rates and rounds; its cells are MNIST's, named, and its number of images counts as changed."""
    p = parameters(profile="paper", dataset="mnist_5k")
    assert [upfl.run_on(p, d) for d in upfl.BLOCKS] == ["mnist_5k", None, None, None, None]
    s = upfl.setting(p, "mnist", "pathological")
    assert (s.protocol.dataset, s.protocol.deck, s.protocol.n_clients, s.model, s.schedule.rounds) == ("mnist_5k", True, 100, "mlp", 200)
    assert upfl.chosen(p, "mnist_5k") == upfl.chosen(p, "mnist")
    table = upfl.table1(p, rows(("mnist_5k, pathological",), upfl.METHODS).assign(dataset="mnist_5k"))
    ran = table[table["mean"].notna()]
    assert set(ran["dataset"]) == {"mnist"}
    assert len(ran) == 28
    assert (set(ran["run_dataset"]), set(ran["status"])) == ({"MNIST (5,000 images)"}, {"ok"})
    assert p.changed(upfl.PROFILES) == ["images"]
    assert parameters(profile="paper", dataset="mnist").changed(upfl.PROFILES) == []
    assert "MNIST (5,000 images)" in upfl.about(p)


def test_figure_4_alone_with_a_method_that_it_does_not_draw():
    for methods, drawn in ((("PFL-Sampled", "PFL-Ensemble"), set()), (("PFL-Sampled", "FedTTA"), {"FedTTA"})):
        frame = upfl_figures.figure4(rows(("digits, concept",), methods))
        assert set(frame["method"]) == set(methods)
        assert set(upfl_figures.in_figure4(frame)["method"]) == drawn
    assert upfl_figures.in_figure4(pd.DataFrame()).empty


def test_rotated_images_of_a_data_set_are_that_data_sets():
    frame = pd.DataFrame({"run_dataset": upfl.named(pd.Series(["mnist", "mnist_rotated", "mnist_5k_rotated", "digits"]))})
    assert frame["run_dataset"][2] == "MNIST (5,000 images), rotated"
    assert upfl.status(frame, "mnist_rotated")["status"].tolist() == ["ok", "ok", "ok", "stand-in"]
    assert upfl.status(frame, "cifar10")["status"].tolist() == ["stand-in"] * 4


def test_the_tables_call_the_same_images_by_one_name(tmp_path):
    """Clients' numbers and accuracies of one run: data set and status agree, cell block by cell block."""
    rng, labels = np.random.default_rng(0), np.arange(400) % 10
    images = rng.integers(0, 256, (400, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "cifar10.npz", x_train=images[:300], y_train=labels[:300], x_test=images[300:], y_test=labels[300:])
    p = parameters(dataset="cifar10_jpeg", data_root=str(tmp_path))
    at1 = upfl.shown(upfl_figures.clients(p))
    table1 = upfl.shown(upfl.table1(p, rows(("cifar10_jpeg, pathological",)).assign(dataset="cifar10_jpeg")))
    names = [set(zip(t["run_dataset"], t["status"], strict=True)) for t in (at1, table1)]
    assert names == [{("CIFAR-10 (JPEG)", "ok")}] * 2


@pytest.mark.parametrize(
    "given", [{"clients": 7}, {"steps": 0}, {"every": 0}, {"images": -1}, {"methods": ["FedTAA"]}, {"dataset": "imagenet"}]
)
def test_bad_parameters(given):
    with pytest.raises(ValueError, match=r"parameter|unknown"):
        parameters(**given)
