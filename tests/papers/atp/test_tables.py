"""ATP's tables: from made-up rows to cells, and small runs of the ones that need learned rates."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from fedlib import study as studies
from fedlib.adapt.t3a import T3A
from fedlib.core import Recipe
from fedlib.papers.atp import PAPER, tables
from fedlib.papers.atp.recipes import RECIPES, TRAIN
from fedlib.published import cells
from fedlib.study import Study
from fedlib.train.fedavg import FedAvg
from tests.papers.atp.test_settings import namespace, parameters, study

SHIFTS = ("feature shift", "label shift", "hybrid shift")


def measured(shifts=SHIFTS, methods=tuple(RECIPES), dataset="digits", model="shallow_cnn"):
    """Rows whose accuracy tells method, shift, seed and client; the second client holds three times as many samples."""
    place = {method: i for i, method in enumerate(RECIPES)}
    return pd.DataFrame(
        {"setting": s, "method": m, "column": "test", "seed": seed, "client": c, "n": n}
        | {"accuracy": 50.0 + place[m] + seed + 8 * c + 5 * k, "dataset": dataset, "model": model}
        for (k, s), m, seed, (c, n) in product(enumerate(shifts), methods, (0, 2), ((0, 10), (1, 30)))
    )


@pytest.fixture
def made_up(monkeypatch):
    """Studies of made-up rows; there are no images of the data sets that are not embedded."""

    def run(settings, recipes, seeds, **options):
        assert seeds == [0, 2]
        data = settings[0].protocol.dataset
        if not data.startswith("digits") or data == "digits5_fedbn":
            raise FileNotFoundError("no images of that kind here")
        return measured([s.label for s in settings], list(recipes), data, settings[0].model)

    monkeypatch.setattr(studies, "run", run)
    return lambda **given: Study(PAPER, namespace(seeds=[0, 2], **given))


def test_mean_weighs_clients_by_samples_and_spreads_over_seeds():
    row = tables.average(measured()).iloc[0]
    assert row["mean"] == pytest.approx(50 + 0.75 * 8 + 1)
    assert row["std"] == pytest.approx(2**0.5)
    assert row["n_seeds"] == 2


def test_results_are_means_over_the_last_saved_models():
    rows = pd.DataFrame(
        {"setting": "s", "method": "EM", "column": "test", "seed": 0, "round": r, "client": c, "draw": 0, "n": n, "accuracy": a}
        for r, values in ((9, (40, 80)), (10, (60, 90)), (11, (50, 70)))
        for c, (n, a) in enumerate(zip((10, 30), values, strict=True))
    )
    row = tables.average(rows).iloc[0]
    assert row["mean"] == pytest.approx((50 / 4 + 70 * 3 / 4 + 60 / 4 + 90 * 3 / 4 + 40 / 4 + 80 * 3 / 4) / 3)
    assert row["n_seeds"] == 1
    assert row["n"] == 40


def test_ranks_recompute_the_printed_column():
    printed = cells("atp", "T1")
    test = printed[printed["column"] == "test"].assign(mean=lambda t: t["mean_value"])
    found = tables.ranks(test).set_index("method")["mean"].round(1)
    expected = printed[printed["column"] == "avg_rank"].set_index("method")["mean_value"]
    # SHOT and Tent tie at two digits under feature shift.
    assert (found - expected).abs().max() <= 0.21
    assert found["ATP-online"] == expected["ATP-online"] == 1


def test_tables_fill_every_printed_cell_and_say_what_was_run(made_up):
    table = made_up().frame("T1")
    assert table["mean"].notna().all()
    assert set(table["status"]) == {"stand-in"}
    assert set(table["run_model"]) == {"shallow_cnn"}
    ranks = table[table["column"] == "avg_rank"].set_index("method")["mean"]
    assert ranks["ATP-online"] == 1
    assert ranks["NoAdapt"] == 11


def test_ranks_are_on_the_images_that_all_methods_have_seen(monkeypatch):
    """MEMO has the highest number, on first images that are easier: the last of all on these."""
    rows = measured().assign(cut_n=5, cut=lambda frame: frame["method"] == "MEMO")
    rows = rows.assign(cut_accuracy=rows["accuracy"] + 20)
    memo = rows["cut"]
    rows.loc[memo, ["accuracy", "cut_accuracy", "n"]] = [69.0, 69.0, 5]
    monkeypatch.setattr(studies, "run", lambda settings, recipes, seeds, **options: rows[rows["method"].isin(recipes)])
    table = Study(PAPER, namespace(seeds=[0, 2], tables=["T1"])).frame("T1")
    ranks = table[table["column"] == "avg_rank"].set_index("method")["mean"]
    assert (ranks["MEMO"], ranks["ATP-online"]) == (11, 1)


def test_incomplete_runs_have_no_ranks_and_missing_images_a_reason(made_up):
    some = made_up(methods=[name for name in RECIPES if name != "MEMO"]).frame("T1")
    ranks = some["column"] == "avg_rank"
    assert some.loc[some["mean"].isna() & ~ranks, "status"].str.contains("parameter methods").all()
    assert some.loc[ranks, "status"].str.contains("ranks are among all eleven methods").all()
    assert some["mean"].isna().sum() == 3 + 11
    absent = made_up(cifar100="cifar100", digits5="digits5_fedbn", pacs="pacs")
    table = absent.frame("T5")
    assert set(table.loc[table["dataset"] == "cifar100", "status"]) == {"not run: no images of that kind here"}
    assert table.loc[table["dataset"] == "cifar10", "mean"].notna().all()
    assert set(absent.frame("T2")["status"]) == {"not run: no images of that kind here"}
    with pytest.raises(FileNotFoundError):
        made_up(dataset="cifar10").frame("T1")


def test_domains_stand_under_their_printed_names(made_up):
    table = made_up().frame("T2")
    assert table["mean"].notna().all()
    assert set(table["setting"]) == {"hybrid shift"}
    assert table.set_index(["column", "method"]).loc[("SVHN", "NoAdapt"), "mean"] == pytest.approx(62)


@pytest.mark.parametrize(
    ("data", "model", "block", "status"),
    [
        ("cifar10", "resnet18_imagenet", "cifar10", "ok"),
        ("cifar10", "shallow_cnn", "cifar10", "stand-in"),
        ("cifar10", "shallow_cnn", "cifar10_cnn", "ok"),
        ("cifar10", "resnet50_imagenet", "cifar100", "stand-in"),
        ("cifar100", "resnet50_imagenet", "cifar100", "ok"),
        ("digits", "resnet18_imagenet", "cifar10", "stand-in"),
    ],
)
def test_results_count_with_the_printed_images_and_network_only(data, model, block, status):
    assert tables.ran(data, model, block)["status"] == status


def test_readme_of_the_code_is_no_printed_table():
    frame = tables.readme()
    assert len(frame) == 18
    assert set(frame["table"]) == {"README"}
    assert "README" not in set(cells("atp")["table"])
    place = ["dataset", "model", "setting", "method", "column"]
    printed = pd.concat([cells("atp", "T1"), cells("atp", "T5")])
    gap = frame.merge(printed, on=place, suffixes=("", "_printed"))
    # One run lies within a point of the printed means of five.
    assert len(gap) == 18
    assert (gap["mean_value"] - gap["mean_value_printed"]).abs().max() < 1


def test_authors_own_run_stands_beside_seed_0_only(made_up):
    study = made_up(tables=["T1", "readme"], methods=["NoAdapt"])
    both = study.frame("readme")
    rows = measured(methods=["NoAdapt"])
    own = tables.average(rows[rows["seed"] == 0]).set_index("setting")["mean"]
    assert both.set_index("setting")["ours"].tolist() == own.reindex(both["setting"]).tolist()
    assert both["authors"].tolist() == [69.62, 72.58, 63.55]
    assert set(both["status"]) == {"stand-in"}
    assert len(made_up(methods=["NoAdapt"]).frame("readme")) == 6
    other = Study(PAPER, namespace(seeds=[1], tables=["readme"]))
    assert other.frame("readme").empty
    assert str(other.show("readme")) == "not run: the authors' run has seed 0, which the parameter seeds leaves out"


def test_authors_own_run_does_not_stand_beside_a_users_images(tmp_path):
    images, labels = np.zeros((9, 8, 8), np.uint8), np.arange(9)
    np.savez(tmp_path / "mine.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    study = Study(PAPER, namespace(dataset=str(tmp_path / "mine.npz"), tables=["readme"]))
    assert str(study.show("readme")) == "not run: the authors' run was not on mine.npz"


def test_a_users_domains_have_their_own_names_and_are_no_stand_ins(tmp_path):
    for place in (tmp_path / name / label for name in ("day", "night") for label in ("one", "two")):
        place.mkdir(parents=True)
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(place / "0.png")
    columns = tables.own_columns(parameters(dataset=str(tmp_path)))
    assert columns == {"MNIST": "day", "SVHN": "night", "Art": "day", "Cartoon": "night"}
    assert tables.own_columns(parameters()) == {}
    assert tables.ran(str(tmp_path), "shallow_cnn") == {"run_dataset": f"{tmp_path.name}/", "run_model": "shallow_cnn", "status": "ok"}


def test_printed_names_are_those_of_the_tables():
    assert {f"+{k} rounds" for k in tables.LATER} == set(cells("atp", "T6")["setting"])
    assert set(TRAIN) == set(cells("atp", "T7")["setting"])
    assert set(tables.OWN) < set(parameters().recipes())


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """Ten clients, two rounds of everything; all studies share one cache."""
    short = {"clients": 10, "domain_clients": 2, "rounds": 2, "rate_rounds": 2, "rate_lr": 0.1, "images": 600, "targets": 0}
    return short | {"costly_samples": 100, "cache": str(tmp_path_factory.mktemp("cache"))}


def of_atp_batch(study):
    """Table 1's cells of ATP-batch, by setting."""
    rows, _ = study.rows([tables.whole(study.p, "cifar10", names=("ATP-batch",))])
    return tables.average(rows).set_index("setting")["mean"]


def matched(study):
    """Table 3's cells of rates that meet their own shift, in the order of the shifts."""
    cells = study.frame("T3")
    own = cells[cells["setting"].str.removeprefix("train=") == cells["column"].str.removeprefix("test_")]
    return own.set_index("column")["mean"].reindex([f"test_{shift.split()[0]}" for shift in SHIFTS])


@pytest.mark.slow
def test_rates_of_one_shift_serve_the_model_of_another(given):
    found = study(given)
    assert found.frame("T3")["mean"].notna().all()
    own = {s.label: tables.learned(found.p, [s])[s.label, 0]["shared.rates"] for s in found.p.settings()}
    used = torch.tensor(found.blocks("T3")[0].recipes["train=label"].adapt.rates, dtype=torch.float32)
    torch.testing.assert_close(used, own["label shift"], rtol=0, atol=0)


def test_matched_rates_are_those_of_the_method_itself(given):
    found = study(given)
    assert matched(found).tolist() == of_atp_batch(found).tolist()


def test_table_7_has_methods_of_ones_own_that_start_from_fedavg(given):
    """On the models of all three trainings; one with a training of its own stays out."""
    own = {"Mine": Recipe(FedAvg(), None, T3A()), "Trained apart": Recipe(FedAvg(lr=0.01), None, T3A())}
    blocks = tables.global_training(study(given, extra=own).p)
    assert [list(block.recipes) for block in blocks] == [["NoAdapt", "ATP-batch", "ATP-online", "Mine"]] * 3
    assert [{recipe.train for recipe in block.recipes.values()} for block in blocks] == [{train} for train in TRAIN.values()]


@pytest.mark.slow
def test_ablations_and_other_trainings_fill_their_tables(given):
    found = study(given)
    for name in ("T4", "T7"):
        table = found.frame(name)
        assert table["mean"].notna().all()
        assert set(table["run_dataset"]) == {"digits"}
    usual, root = (found.frame(name).set_index(["method", "setting"])["mean"] for name in ("T4", "scale"))
    assert root["ATP-batch"].tolist() == usual["ATP-batch"].tolist()


@pytest.mark.slow
def test_outdated_rates_meet_later_models(given):
    found = study(given)
    table = found.frame("T6")
    assert table["mean"].notna().all()
    rows, _ = found.rows(found.blocks("T6"))
    assert sorted(rows["round"].unique()) == [3, 4, 5, 6, 7]
    first = table[(table["setting"] == "+0 rounds") & (table["method"] == "ATP-batch")]
    assert first["mean"].item() == of_atp_batch(found)["hybrid shift"]


def test_means_over_models_learn_the_rates_of_each(given):
    both = study(given, last_rounds=2)
    usual = of_atp_batch(both)
    assert matched(both).tolist() == usual.tolist()
    assert usual.tolist() != of_atp_batch(study(given)).tolist()


@pytest.mark.parametrize("methods", [["Tent"], ["NoAdapt"], ["ATP-online"]])
def test_studies_run_with_one_method(given, methods):
    found = study(given, methods=methods)
    for name in ("T3", "T4", "T6"):
        table = found.frame(name)
        ran = set(table.loc[table["mean"].notna(), "method"])
        assert ran <= set(methods)
        assert table.loc[table["mean"].isna(), "status"].str.contains("parameter methods").all()


def test_hyperparameters_are_filed_with_every_candidate(given, tmp_path):
    some = study(given, tables=["T1", "hyperparameters"], methods=["Tent", "EM", "ATP-batch"], output=str(tmp_path))
    (page,), frame = some.show("hyperparameters").parts, some.frame("hyperparameters")
    assert set(frame["method"]) == {"Tent", "EM"}
    assert set(frame["dataset"]) == {"cifar10"}
    assert sorted(frame[(frame["method"] == "Tent") & (frame["setting"] == "label shift")]["candidate"]) == ["lr=0.01", "lr=0.1"]
    by = frame.groupby(["setting", "method", "seed", "state"])
    assert (by["chosen"].sum() == 1).all()
    picked = frame[frame["chosen"]].set_index(["setting", "method"])["validation"]
    assert (picked == by["validation"].max().droplevel(["seed", "state"]).reindex(picked.index)).all()
    kept = pd.read_csv(tmp_path / "hyperparameters.csv")
    assert kept["candidate"].tolist() == frame["candidate"].tolist()
    assert page.loc[("cifar10", "resnet18", "Tent"), "label shift"].startswith("lr=")
    mine = tables.chosen(frame.assign(run_dataset="mine.npz"))
    assert {index[:2] for index in mine.index} == {("mine.npz", "shallow_cnn")}
