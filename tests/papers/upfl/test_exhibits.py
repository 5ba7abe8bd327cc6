"""What UPFL's tables and figures run, and how rows become their numbers: on made-up rows, and on a whole, tiny run on the digits."""

import itertools

import numpy as np
import pandas as pd
import pytest
import torch

from fedlib import study as studies
from fedlib.explore import Cases
from fedlib.papers.upfl import PAPER, final
from fedlib.papers.upfl.claims import ONE_MODEL
from fedlib.papers.upfl.exhibits import EXHIBITS, KEPT, SHARES, concept_shift, histories, pooled, ran, selected, unequal
from fedlib.papers.upfl.recipes import STRENGTHS
from fedlib.papers.upfl.settings import BLOCKS, METHODS
from fedlib.published import cells, claims_of
from fedlib.published.ledger import PROVENANCE, ledger
from fedlib.results import check_table
from tests.papers.upfl.test_settings import given, parameters

ALPHAS = tuple(f"test_alpha_{a}" for a in ("0.01", "0.03", "0.05", "0.1", "0.3", "0.5"))
COLUMNS = {"dirichlet": ("validation", *ALPHAS)}


def rows(setting="digits, pathological", methods=("FedAvg", "FedTTA"), columns=("validation", "test"), seeds=(0, 1), dataset="digits"):
    """Two clients of 10 and 30 images; of the states after 5, 10 and 15 rounds validation is best in the second, the test in the last."""
    made = []
    for m, seed, (r, t), column, n in itertools.product(methods, seeds, enumerate((6, 11, 16)), columns, (10, 30)):
        peak = {0: 0, 1: 8, 2: 4}[r] if column == "validation" else 5 * r
        accuracy = 40 + 2 * list(methods).index(m) + peak + seed + (4 if n == 30 else 0)
        row = {"setting": setting, "dataset": dataset, "model": "mlp", "method": m, "seed": seed, "round": t, "column": column}
        row |= {"client": n, "n": n, "accuracy": float(accuracy), "cached": False, "train_cached": False, "steps": np.array([3.0])}
        made.append(row | {"printed_dataset": "cifar10", "printed_model": "convnet"})
    return pd.DataFrame(made)


@pytest.fixture
def asked(monkeypatch):
    """What would be run: (label, methods) of every call; the rows are made up."""
    calls = []

    def run(settings, recipes, seeds, **options):
        (setting,) = settings
        calls.append((setting.label, list(recipes)))
        columns = options["request"].columns or COLUMNS.get(setting.protocol.partition, ("validation", "test"))
        made = rows(setting.label, tuple(recipes), columns, seeds, setting.protocol.dataset)
        return made.drop(columns=["printed_dataset", "printed_model"])

    monkeypatch.setattr(studies, "run", run)
    return calls


def study(**changed):
    return studies.Study(PAPER, given(**changed))


def test_accuracy_is_pooled_over_images():
    """Client accuracies 40 and 44 with 10 and 30 images: 43, and one point more with seed 1."""
    frame = rows(methods=("FedAvg",), columns=("validation",))
    (row,) = pooled(frame[frame["round"] == 6], ["setting", "method"]).to_dict("records")
    assert (row["mean"], row["n_seeds"], row["run_dataset"], row["run_model"]) == (43.5, 2, "digits", "mlp")
    assert row["std"] == pytest.approx(0.5**0.5)


def test_the_round_is_chosen_by_validation_and_the_first_of_equals():
    best = selected(rows())
    assert set(best["round"]) == {11}
    assert set(best["column"]) == {"validation", "test"}
    flat = rows()
    flat.loc[flat["column"] == "validation", "accuracy"] = 50.0
    assert set(selected(flat)["round"]) == {6}
    # Whatever the test does, the choice stays.
    moved = rows()
    moved.loc[moved["column"] == "test", "accuracy"] = np.random.default_rng(0).uniform(0, 100, (moved["column"] == "test").sum())
    assert set(selected(moved)["round"]) == {11}


def test_table1_fills_blocks_of_one_partition_from_one_stand_in(asked):
    table = study(seeds=[0, 1]).frame("T1")
    check_table(table)
    assert [label for label, _ in asked] == ["digits, pathological", "digits, natural", "digits, superclass"]
    assert len(table) == len(cells("upfl", "T1")) == table["mean"].notna().sum()
    assert set(table["status"]) == {"stand-in"}
    cell = table[(table["dataset"] == "femnist") & (table["method"] == "FedTTA") & (table["column"] == "test")].iloc[0]
    assert cell["mean"] == pytest.approx(43.5 + 2 * METHODS.index("FedTTA") + 5)


def test_methods_that_were_not_run_say_so(asked):
    table = study(methods=["FedAvg", "FedTTA"], dataset="mnist").frame("T1")
    check_table(table)
    absent = table[table["mean"].isna()]
    assert absent["status"].str.startswith("not run: left out").all()
    assert len(table) - len(absent) == 2 * 2
    check_table(study(tables=["F4"]).frame("T1"))


def test_table2_has_one_test_value_for_one_model(asked):
    s = study()
    table, alphas = s.frame("T2"), s.frame("U6")
    check_table(table)
    assert table["mean"].notna().all()
    assert (table["method"] == "FedAvg").sum() == 2
    assert (table["method"] == "Tent").sum() == 7
    assert set(alphas["method"]) == set(ONE_MODEL)
    assert sorted(set(alphas["alpha"])) == [0.01, 0.03, 0.05, 0.1, 0.3, 0.5]
    assert asked == [("digits, dirichlet", list(METHODS))]  # one run for both


def test_figure_frames_have_what_the_claims_read(asked):
    s = study()
    figures = {name: s.frame(name) for name in ("AF2", "F3", "F4", "F5", "U6", "U14")}
    for name, frame in figures.items():
        assert set(claims_of("upfl").FIGURE_COLUMNS[name]) | set(PROVENANCE) <= set(frame), name
    assert set(figures["F3"]["share"]) == set(SHARES)
    assert set(figures["F5"]["strength"]) == set(STRENGTHS)
    assert set(figures["F5"][figures["F5"]["method"] == "Tent"]["strength"]) == {0.0}
    assert set(figures["AF2"]["dataset"]) == {"mnist, cifar10, fashion_mnist", "femnist", "cifar100"}
    # Two clients become one, and no run is counted again: 3 runs of 14 methods, 3 rounds and 2 columns.
    assert len(figures["AF2"]) == 3 * 14 * 3 * 2
    del figures["F3"], figures["U14"]
    judged = ledger("upfl", {"T1": s.frame("T1")}, figures).set_index("claim")
    assert judged.loc["U6", "ours"] == "holds"  # the same accuracy at all alphas by construction
    assert judged.loc["F3", "ours"] == "not run"
    assert set(final(figures["F5"])["method"]) == {"Tent", "HeteroFedTTA"}


def test_runs_of_unequal_length_are_curves_of_their_own(asked):
    """Without a number of rounds digits run as long as each printed data set."""
    p = parameters(profile="paper", dataset="digits")
    found = PAPER.exhibit("AF2").blocks(p)
    assert {block.dataset: block.settings[0].schedule.rounds for block in found} == {name: block[2] for name, block in BLOCKS.items()}


def test_figure_3_shows_every_method_at_its_round_of_the_main_table(asked):
    frame = study(methods=["FedAvg", "Tent", "FedTTA"]).frame("F3")
    assert set(frame["method"]) == {"Tent", "FedTTA"}
    # The test after 10 rounds, where validation is best; Tent is the first in the order of the rows.
    assert frame[frame["method"] == "Tent"]["mean"].tolist() == [43.0 + 5] * len(SHARES)


NEEDED = {
    "T1": {"pathological": METHODS, "natural": METHODS, "superclass": METHODS},
    "AF2": {"pathological": METHODS, "natural": METHODS, "superclass": METHODS},
    "T2": {"dirichlet": METHODS},
    "U6": {"dirichlet": ONE_MODEL},
    "U14": {"pathological": ["FedTTA++"]},
    "F3": {"pathological": KEPT},
    "F4": {"concept": METHODS},
    "F5": {"public": ["Tent", *(f"HeteroFedTTA:{s:g}" for s in STRENGTHS)]},
    **{"AT1": {}, "AT2": {}, "AT3": {}},
}


def test_an_exhibit_alone_runs_what_it_needs_and_nothing_else(asked):
    assert {*NEEDED, "F2"} == {exhibit.name for exhibit in EXHIBITS}
    for name, needed in NEEDED.items():
        s = study(tables=[name])
        for exhibit in EXHIBITS:
            assert exhibit.name == name or s.is_printed(exhibit) or s.frame(exhibit.name).empty
        s.frame(name)
        ran_alone = {(label.removeprefix("digits, "), method) for label, methods in asked for method in methods}
        assert ran_alone == {(partition, method) for partition, methods in needed.items() for method in methods}, name
        asked.clear()


def test_training_clients_of_unequal_networks_know_what_new_clients_hold():
    """With two classes each, ten training clients know none of some of the new clients' digits, and every learner scores zero there."""
    (block,) = unequal(parameters())
    clients = block.settings[0].protocol.build(seed=0).clients
    known = set(torch.cat([client.train.labels for client in clients if client.source]).tolist())
    assert known == set(range(10))


def test_what_needs_no_method_of_a_figure_is_left_out(asked):
    s = study(methods=["FedAvg"])
    for name in ("F2", "F3", "U14"):
        assert s.frame(name).empty
        assert str(s.show(name)).startswith("not run: left out by the parameters")


def test_a_named_part_of_mnist_fills_the_mnist_column(asked):
    s = study(profile="paper", dataset="mnist_5k")
    table = s.frame("T1")
    done = table[table["mean"].notna()]
    assert set(done["dataset"]) == {"mnist"}
    assert len(done) == 28
    assert (set(done["run_dataset"]), set(done["status"])) == ({"MNIST (5,000 images)"}, {"ok"})
    assert s.about(PAPER.exhibit("T1")).startswith("MNIST (5,000 images), mlp, 100 clients, 200 rounds x 20 minibatches")


def test_rotated_images_of_a_data_set_are_that_data_sets():
    made = pd.DataFrame({"mean": [50.0]})
    names = ("mnist", "mnist_rotated", "mnist_5k_rotated", "digits")

    def status(dataset, printed):
        return ran(made, rows(dataset=dataset).assign(printed_dataset=printed)).iloc[0]

    assert status("mnist_5k_rotated", "mnist")["run_dataset"] == "MNIST (5,000 images), rotated"
    assert [status(name, "mnist")["status"] for name in names] == ["ok", "ok", "ok", "stand-in"]
    assert [status(name, "cifar10")["status"] for name in names] == ["stand-in"] * 4


def test_the_tables_call_the_same_images_by_one_name(asked, tmp_path):
    """Clients' numbers and accuracies of one run: data set and status agree, cell block by cell block."""
    rng, labels = np.random.default_rng(0), np.arange(400) % 10
    images = rng.integers(0, 256, (400, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "cifar10.npz", x_train=images[:300], y_train=labels[:300], x_test=images[300:], y_test=labels[300:])
    s = study(dataset="cifar10_jpeg", data_root=str(tmp_path))
    done = [table[table["mean"].notna()] for table in (s.frame("AT1"), s.frame("T1"))]
    assert [set(zip(t["run_dataset"], t["status"], strict=True)) for t in done] == [{("CIFAR-10 (JPEG)", "ok")}] * 2


def test_steps_of_all_seeds_count_as_those_of_all_seeds(asked):
    kept = study(seeds=[0, 1]).frame("U14")
    assert kept["n_seeds"].tolist() == [2] * len(kept)


def test_figure_4_keeps_the_methods_that_it_does_not_draw():
    frame = concept_shift(parameters(), rows("digits, concept", ("PFL-Sampled", "FedTTA")))
    assert set(frame["method"]) == {"PFL-Sampled", "FedTTA"}


def test_the_parameter_images_is_told(asked):
    assert "digits (stand-in), mlp, 900 images, 20 clients" in study(images=900).about(PAPER.exhibit("F3"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A whole run of a few rounds."""
    methods = ["FedAvg", "PFL-Sampled", "PFL-Ensemble", "Tent", "FedTTA", "FedTTA-Prox", "FedTTA++"]
    cache = str(tmp_path_factory.mktemp("cache"))
    return study(clients=10, rounds=2, steps=2, every=1, methods=methods, cache=cache)


def measured(tiny):
    blocks = PAPER.exhibit("T1").blocks(tiny.p)
    found, _ = tiny.rows([block for block in blocks if block.dataset in ("cifar10", "mnist")])
    return found


def test_one_run_serves_equal_settings(tiny):
    main = measured(tiny)
    assert set(main["setting"]) == {"digits, pathological"}
    assert set(main["round"]) == {2, 3}
    assert main.groupby("column")["client"].nunique().to_dict() == {"test": 5, "validation": 5}
    parts = [part.drop(columns=["printed_dataset", "printed_model"]) for _, part in main.groupby("printed_dataset")]
    pd.testing.assert_frame_equal(*(part.reset_index(drop=True) for part in parts))


@pytest.mark.slow
def test_all_images_kept_is_the_main_table(tiny):
    figure, table = tiny.frame("F3"), tiny.frame("T1")
    cell = table[(table["dataset"] == "cifar10") & (table["column"] == "test")].set_index("method")["mean"]
    whole = figure[figure["share"] == 1.0].set_index("method")["mean"]
    for method in ("Tent", "FedTTA", "FedTTA-Prox", "FedTTA++"):
        assert whole[method] == pytest.approx(cell[method])
    assert set(figure["share"]) == set(SHARES)


def test_steps_are_kept_on_every_new_client(tiny):
    kept = tiny.frame("U14")
    assert len(kept) == 5
    assert kept["mean"].between(0, 49).all()


def test_fifty_steps_start_at_the_model_and_end_where_they_lead(tiny):
    figure, main = tiny.frame("F2"), measured(tiny).query("printed_dataset == 'cifar10'")
    last = main[(main["method"] == "FedTTA") & (main["column"] == "test") & (main["round"] == 3) & (main["seed"] == tiny.p.seeds[0])]
    for client, path in figure[figure["column"] == "accuracy"].groupby("client"):
        accuracy = path.set_index("step")["mean"]
        assert list(accuracy.index) == list(range(51))
        assert accuracy[1] == pytest.approx(last.set_index("client").loc[client, "accuracy"])
    assert set(figure["client"]) == set(last["client"])
    assert figure["mean"].notna().all()


def test_the_explorer_sees_every_method_at_the_end(tiny):
    block = PAPER.exhibit("T1").blocks(tiny.p)[0]
    assert block.request["rounds"][0] == tiny.p.rounds + 1
    cases = Cases(block.settings, block.recipes, tiny.p.seeds, tiny.p.request(**block.request), tiny.p.cache)
    for method in block.recipes:
        seen = next(iter(cases.streams("digits, pathological", 0, method, "test").values()))
        assert list(seen.stages)[-1] == method
        # What PFL's and ODPFL-HN's clients receive is no network, and FedAvg's does all itself.
        alone = method in ("FedAvg", "PFL-Sampled", "PFL-Ensemble", "ODPFL-HN", "FedADG")
        assert len(seen.stages) == (1 if alone else 2), method


def test_the_curves_of_a_users_images_bear_their_name(tmp_path):
    images = np.zeros((20, 8, 8, 1), np.uint8)
    np.savez(tmp_path / "mine.npz", x_train=images, y_train=np.arange(20) % 2, x_test=images, y_test=np.arange(20) % 2)
    blocks = histories(PAPER.read(given(dataset=str(tmp_path / "mine.npz"))))
    assert {block.dataset for block in blocks} == {"mine.npz"}


@pytest.mark.parametrize(("method", "learners"), [("FedAvg", 0), ("Tent", 1), ("FedTTA", 6)])
def test_figure_5_has_the_learners_of_the_methods_asked_for(method, learners):
    (block,) = PAPER.exhibit("F5").blocks(study(methods=[method]).p)
    assert len(block.recipes) == learners
