"""BTFL's notebook data: parameters, settings, and the steps from measured rows to tables and figures, on made-up rows."""

import itertools
import math
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest

from fedlib.papers.btfl import settings as btfl
from fedlib.papers.btfl.recipes import ROWS
from fedlib.protocols.btgfl import COLUMNS, SHIFTED_COLUMNS
from fedlib.published import cells, claims_of
from fedlib.published.ledger import PROVENANCE
from fedlib.results import check_table
from fedlib.train.fedavg import FedAvg


def parameters(**given):
    fixed = {"profile": "smoke", "split": "fixed", "shift_mix": "all", "jobs": 1, "device": "cpu", "cache": "cache"}
    chosen = {"alphas": [0.1, 0.7], "architectures": ["resnet20gn"], "label_counts": [4, 10]}
    return btfl.parameters(dict.fromkeys(field.name for field in fields(btfl.Parameters)) | fixed | chosen | given)


def rows(setting="Dir(0.1)", methods=("FedAvg", "BTFL"), seeds=(0, 1), dataset="digits", model="cnn", columns=COLUMNS):
    """Two clients; the accuracy tells seed, method, column and client apart. shifted_ind has two draws, 2 points apart."""
    made = []
    for seed, (m, method), (c, column), client in itertools.product(seeds, enumerate(methods), enumerate(columns), (0, 1)):
        for draw in range(2 if column == "shifted_ind" else 1):
            accuracy = 20 + seed + 10 * m + 5 * c + 4 * client + 2 * draw
            row = {"setting": setting, "dataset": dataset, "model": model, "method": method, "seed": seed, "round": 4, "column": column}
            made.append(row | {"draw": draw, "client": client, "n": 3, "accuracy": accuracy, "weight": np.full(3, (c + 0.5) / 20)})
    return pd.DataFrame(made)


def test_profile_fills_in():
    p = parameters()
    assert (p.dataset, p.rounds, p.other_rounds, p.officehome) == ("digits", 4, 2, "digits5")
    assert btfl.other_rounds(parameters(profile="paper")) == 130
    assert btfl.other_rounds(parameters(profile="paper"), "officehome") == 50
    assert parameters(rounds=7).rounds == 7


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"profile": "smok"}, "smoke"),
        ({"methods": ["BTLF"]}, "BTFL"),
        ({"architectures": ["resnet20"]}, "resnet20gn"),
        ({"alphas": [-0.7]}, "alphas"),
        ({"alphas": [math.nan]}, "alphas"),
        ({"label_counts": [10, -3]}, "label_counts"),
        ({"tables": ["T8"]}, "T7"),
        ({"split": "leak"}, "resplit"),
        ({"timed_samples": 0}, "timed_samples"),
    ],
)
def test_bad_parameters(given, message):
    with pytest.raises(ValueError, match=message):
        parameters(**given)


def test_settings_follow_the_paper():
    p = parameters(profile="paper")
    main = btfl.setting(p, 0.1, rounds=p.rounds)
    assert (main.label, main.protocol.n_clients, main.schedule.rounds, main.schedule.local.lr) == ("Dir(0.1)", 20, 130, 0.01)
    image = btfl.setting(p, 1.0, block="imagenet32", model=p.wide_model)
    assert (image.model, image.protocol.n_clients, image.schedule.local.batch_size) == ("resnet20gn_w4", 10, 128)
    assert (image.schedule.local.momentum, image.schedule.rounds) == (0.9, 100)
    cct = btfl.setting(p, 0.1, model="cct4_relu").schedule
    assert (cct.local.optimizer, cct.personal.lr, cct.personal.epochs) == ("adam", 0.001, 1)


def test_stand_ins_hold_out_different_domains():
    office, image = (btfl.setting(parameters(), 0.1, block=block).protocol for block in ("officehome", "imagenet32"))
    assert office.dataset == image.dataset == "digits5"
    assert (office.domain, image.domain) == (None, "clutter")


def test_recipes_share_trainings():
    p = parameters()
    assert len({recipe.train for recipe in p.recipes("cnn").values()}) == 4
    assert p.recipes("officehome")["BTFL"].train == FedAvg()
    assert p.recipes("imagenet32")["BTFL"].train.feature_l1 == 1e-4
    assert p.recipes("cct4_relu")["FedTHE"].adapt.lr == 0.01
    assert list(parameters(methods=["BTFL", "FedAvg"]).recipes()) == ["FedAvg", "BTFL"]
    assert list(parameters(methods=["BTFL (code)"]).recipes()) == ["BTFL (code)"]


def test_average_of_five_columns():
    """Of client 0 and seed 0: 20, 25 + 1 (two draws), 30, 35, 40, in the mean 30.2; client 1 has 4 more."""
    scores = btfl.scores(rows())
    average = scores[(scores["method"] == "FedAvg") & (scores["column"] == "avg")].iloc[0]
    assert average["mean"] == pytest.approx(30.2 + 2 + 0.5)
    assert average["std"] == pytest.approx(np.sqrt(0.5))
    assert (average["n_seeds"], average["status"]) == (2, "stand-in")


def test_shifted_sets_of_cifar_are_stand_ins():
    frame = rows(dataset="cifar10_jpeg")
    frame["stand_in"] = frame["column"].isin(SHIFTED_COLUMNS)
    status = btfl.scores(frame).set_index(["method", "column"])["status"]["BTFL"]
    assert status.to_dict() == dict.fromkeys(COLUMNS, "stand-in") | {"original_ind": "ok", "original_exd": "ok", "avg": "stand-in"}
    assert set(btfl.scores(frame.assign(stand_in=False))["status"]) == {"ok"}


@pytest.mark.parametrize("name", ["T1", "T2", "T4", "T5", "T6", "T7"])
def test_tables_keep_the_contract(name):
    settings = cells("btfl", name)["setting"].unique()
    methods = cells("btfl", name)["method"].unique()[:2]
    table = btfl.table(name, pd.concat([rows(setting, methods) for setting in settings]))
    check_table(table)
    columns = table["column"].nunique()
    assert table["mean"].notna().sum() == 2 * columns * len(settings)
    assert len(table) == len(cells("btfl", name))


def test_table_without_rows_gives_the_reason():
    table = btfl.table("T5", pd.DataFrame(), "data set 'officehome': not here")
    check_table(table)
    assert set(table["status"]) == {"not run: data set 'officehome': not here"}


def test_the_codes_reading_stands_beside_the_printed_rows():
    table = btfl.table("T2", rows(methods=("FedAvg", "BTFL", "BTFL (code)", "kNN-Per of ours")))
    check_table(table)
    code = table[table["method"] == "BTFL (code)"]
    assert code["mean"].notna().sum() == 6
    assert code["published_mean"].isna().all()
    assert "kNN-Per of ours" not in set(table["method"])


def test_absent_data_are_no_error(tmp_path):
    measured, reason = btfl.other_rows(parameters(officehome="officehome", data_root=str(tmp_path)), "officehome")
    assert measured.empty
    assert "OfficeHome/<domain>/<class>" in reason
    measured, reason = btfl.other_rows(parameters(imagenet32="none"), "imagenet32")
    assert measured.empty
    assert "imagenet32" in reason
    assert btfl.other_rows(parameters(tables=["T2"]), "officehome")[1] == "not asked for"


@pytest.fixture
def asked(monkeypatch):
    """What would be run: (labels, methods) of every call."""
    calls = []

    def run(settings, recipes, seeds, **options):
        calls.append(([s.label for s in settings], list(recipes)))
        return pd.concat([rows(s.label, recipes) for s in settings])

    monkeypatch.setattr(btfl, "run", run)
    return calls


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        (["T1"], ["FedTHE", "BTFL", "BTFL (code)"]),
        (["F6"], ["BTFL"]),
        (["T1", "F6"], ["FedTHE", "BTFL", "BTFL (code)"]),
        (None, ROWS),
        (["T3", "F4"], None),
    ],
)
def test_only_what_is_asked_for_is_run(asked, tables, expected):
    p = parameters(tables=tables)
    measured = btfl.main_rows(p, btfl.setting(p, 0.1))
    assert asked == ([] if expected is None else [(["Dir(0.1)"], list(expected))])
    assert measured.empty == (expected is None)


@pytest.mark.parametrize("table", btfl.OTHERS)
def test_one_table_of_another_data_set_runs_one_setting(asked, table):
    block, alpha = btfl.OTHERS[table]
    measured, _ = btfl.other_rows(parameters(tables=[table]), block)
    assert [labels for labels, _ in asked] == [[f"Dir({alpha})"]]
    assert btfl.table(table, measured)["mean"].notna().any()


@pytest.mark.parametrize("method", ROWS)
def test_one_method_alone(asked, method):
    """Nothing that is not there stops a table or figure; what lacks its rows says so."""
    p = parameters(methods=[method])
    main = btfl.main_rows(p, btfl.setting(p, 0.1))
    single = btfl.batch_sizes(p, btfl.setting(p, 0.1), main)
    for name, measured in (("T1", single), ("T2", main)):
        table = btfl.table(name, measured, p.absent(name))
        check_table(table)
        assert set(table.loc[table["mean"].notna(), "method"]) <= {method, "FedTHE, inclusive history"}
    assert btfl.weights(main).empty == (method != "BTFL")
    for step in (btfl.bars, btfl.terms, btfl.strengths):
        assert step(pd.DataFrame()).empty
    assert all(set(methods) <= {method, "FedTHE, inclusive history"} for _, methods in asked)


def test_what_is_not_there_is_said(tmp_path):
    p = parameters(tables=["T2"], output=str(tmp_path))
    assert btfl.publish_table(p, btfl.table("T1", pd.DataFrame(), p.absent("T1")), "") == "not run: not asked for"
    assert btfl.publish_figure(p, "F4", pd.DataFrame(), None, "") == "not run: not asked for"
    assert btfl.publish_figure(p, "F6", btfl.weights(rows(methods=["BTFL"])), None, "") == "not run: not asked for"
    nothing = btfl.table("T2", pd.DataFrame(), p.absent("T2"))
    assert btfl.publish_table(p, nothing, "") == "not run: left out by the parameter methods"
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["T2.csv", "T2.tex"]


def test_figure_frames_have_their_columns():
    several = pd.concat([rows("4"), rows("10")])
    several = several.assign(similarity=several["weight"], alignment=several["weight"] * 2)
    frames = {
        "F1": btfl.terms(several),
        "F4": btfl.bars(rows()),
        "F5": btfl.bars(rows()),
        "F6": btfl.weights(rows(methods=["BTFL"])),
        "B13": btfl.strengths(rows(methods=["BTFL, cap 2", "BTFL, cap 16", "BTFL (code), cap 16"])),
    }
    for name, frame in frames.items():
        assert {*claims_of("btfl").FIGURE_COLUMNS[name], *PROVENANCE} <= set(frame.columns), name
    assert frames["F1"]["classes"].tolist()[:2] == [4, 4]
    assert frames["F1"].groupby("column")["mean"].max()["alignment"] == pytest.approx(2 * frames["F1"]["mean"].min())
    found = frames["B13"][["method", "strength"]].drop_duplicates().to_numpy().tolist()
    assert found == [["BTFL", 2], ["BTFL", 16], ["BTFL (code)", 16]]
    assert set(frames["F4"]["column"]) == {"avg"}


def test_weights_average_the_first_four_columns():
    """Column c has all its weights in bin c, at density 20."""
    frame = btfl.weights(rows(methods=["BTFL"]))
    average = frame[frame["column"] == "average"].set_index("weight")["density"]
    assert average.round(6).tolist() == [5] * 4 + [0] * 16
    assert frame[frame["column"] == "synthetical"].set_index("weight")["density"].idxmax() == pytest.approx(4.5 / 20)


def test_integral_error():
    errors = btfl.integral_error().set_index("alpha")
    assert errors.loc[15.0, "exact"] == pytest.approx(15 / 16)
    assert errors.loc[299.0, "trapezoid"] == pytest.approx(0.081, abs=1e-3)
    assert (errors["gap"] < 0).all()
