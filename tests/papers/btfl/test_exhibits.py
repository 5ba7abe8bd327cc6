"""What BTFL's tables, figures and studies run, and how rows become their numbers, on made-up rows."""

import itertools

import numpy as np
import pandas as pd
import pytest

from fedlib import study as studies
from fedlib.papers.btfl import PAPER, integral_error, mean_weights
from fedlib.papers.btfl.exhibits import bars, scores, weights
from fedlib.papers.btfl.recipes import ROWS
from fedlib.protocols.btgfl import COLUMNS, SHIFTED_COLUMNS
from fedlib.published import cells, claims_of
from fedlib.published.ledger import PROVENANCE
from fedlib.results import check_table
from tests.papers.btfl.test_settings import given, parameters

INCLUSIVE = "FedTHE, inclusive history"


def study(**changed):
    return studies.Study(PAPER, given(**changed))


def rows(setting="Dir(0.1)", methods=("FedAvg", "BTFL"), seeds=(0, 1), dataset="digits", model="cnn", columns=COLUMNS):
    """Two clients; the accuracy tells seed, method, column and client apart. shifted_ind has two draws, 2 points apart."""
    made = []
    for seed, (m, method), (c, column), client in itertools.product(seeds, enumerate(methods), enumerate(columns), (0, 1)):
        for draw in range(2 if column == "shifted_ind" else 1):
            accuracy = 20 + seed + m + 5 * c + 4 * client + 2 * draw
            row = {"setting": setting, "dataset": dataset, "model": model, "method": method, "seed": seed, "round": 4, "column": column}
            value = np.full(3, (c + 0.5) / 20)
            row |= {"draw": draw, "client": client, "n": 3, "accuracy": accuracy, "weight": value}
            made.append(row | {"similarity": value, "alignment": 2 * value})
    return pd.DataFrame(made)


@pytest.fixture
def asked(monkeypatch):
    """What would be run: (labels, methods) of every call."""
    calls = []

    def run(settings, recipes, seeds, **options):
        calls.append(([s.label for s in settings], list(recipes)))
        return pd.concat([rows(s.label, recipes) for s in settings], ignore_index=True)

    monkeypatch.setattr(studies, "run", run)
    return calls


def test_average_of_five_columns():
    """Of client 0 and seed 0: 20, 25 + 1 (two draws), 30, 35, 40, in the mean 30.2; client 1 has 4 more."""
    means = scores(parameters(), rows())
    average = means[(means["method"] == "FedAvg") & (means["column"] == "avg")].iloc[0]
    assert average["mean"] == pytest.approx(30.2 + 2 + 0.5)
    assert average["std"] == pytest.approx(np.sqrt(0.5))
    assert (average["n_seeds"], average["status"]) == (2, "stand-in")


def test_shifted_sets_of_cifar_are_stand_ins():
    frame = rows(dataset="cifar10_jpeg")
    frame["stand_in"] = frame["column"].isin(SHIFTED_COLUMNS)
    status = scores(parameters(), frame).set_index(["method", "column"])["status"]["BTFL"]
    assert status.to_dict() == dict.fromkeys(COLUMNS, "stand-in") | {"original_ind": "ok", "original_exd": "ok", "avg": "stand-in"}
    assert set(scores(parameters(), frame.assign(stand_in=False))["status"]) == {"ok"}


@pytest.mark.parametrize("name", ["T1", "T2", "T4", "T5", "T6", "T7"])
def test_tables_keep_the_contract(asked, name):
    printed = cells("btfl", name)
    methods = list(printed["method"].unique()[:2])
    table = study(tables=[name], methods=methods).frame(name)
    check_table(table)
    theirs = table["method"].isin(printed["method"])
    ran = table[theirs & table["mean"].notna()]
    assert set(ran["method"]) == set(methods)
    assert len(ran) == 2 * table["column"].nunique() * printed["setting"].nunique()
    assert theirs.sum() == len(printed)


def test_table_1_sets_the_usual_batches_beside_batches_of_one(asked):
    """The rows of Table 2 stand under another label there."""
    s = study()
    one, two = (s.frame(name).set_index(["setting", "method", "column"])["mean"].to_dict() for name in ("T1", "T2"))
    for column in ("original_ind", "shifted_exd"):
        assert one["Dir(0.1), bs=32", "BTFL", column] == two["Dir(0.1)", "BTFL", column]
        assert one["Dir(0.1), bs=1", INCLUSIVE, column] > 0
        assert ("Dir(0.1), bs=32", INCLUSIVE, column) not in one


def test_the_codes_reading_stands_beside_the_printed_rows(asked):
    table = study(tables=["T2"]).frame("T2")
    code = table[table["method"] == "BTFL (code)"]
    assert code["mean"].notna().sum() == 6
    assert code["published_mean"].isna().all()
    assert set(table["method"]) == set(ROWS)


def test_absent_data_are_no_error(tmp_path):
    table = study(officehome="officehome", data_root=str(tmp_path)).frame("T5")
    check_table(table)
    (status,) = table["status"].unique()
    assert status.startswith("not run: ")
    assert "OfficeHome/<domain>/<class>" in status
    assert set(study(imagenet32="none").frame("T4")["status"]) == {"not run: switched off by the parameter imagenet32"}
    assert set(study(tables=["T2"]).frame("T5")["status"]) == {"not run: not asked for"}


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
    s = study(tables=tables)
    frames = {name: s.frame(name) for name in ("T2", "T1", "F6")}
    main = [call for call in asked if call[0] == ["Dir(0.1)"]]
    assert main == ([] if expected is None else [(["Dir(0.1)"], list(expected))])
    assert frames["F6"].empty == ("F6" not in (tables or ["F6"]))
    assert frames["T1"]["mean"].isna().all() == ("T1" not in (tables or ["T1"]))


@pytest.mark.parametrize(("table", "alpha"), [("T5", 0.1), ("T6", 1.0), ("T4", 0.1), ("T7", 1.0)])
def test_one_table_of_another_data_set_runs_one_setting(asked, table, alpha):
    frame = study(tables=[table]).frame(table)
    assert [labels for labels, _ in asked] == [[f"Dir({alpha})"]]
    assert {*asked[0][1]} == {*cells("btfl", table)["method"], "BTFL (code)"}, "Table 6 has no MEMO-P"
    assert frame["mean"].notna().any()


@pytest.mark.parametrize("method", ROWS)
def test_one_method_alone(asked, method):
    """Nothing that is not there stops a table or figure; what lacks its rows says so."""
    s = study(methods=[method])
    for name in ("T1", "T2", "T5"):
        table = s.frame(name)
        check_table(table)
        assert set(table.loc[table["mean"].notna(), "method"]) <= {method, INCLUSIVE}
    needed = {"F6": "BTFL", "F1": "FedTHE"}
    assert {name: s.frame(name).empty for name in needed} == {name: method != needs for name, needs in needed.items()}
    assert set(s.frame("F4").get("method", ())) | set(s.frame("F5").get("method", ())) <= {method}
    assert all(set(methods) <= {method, INCLUSIVE} for _, methods in asked)
    assert s.frame("switches").empty == s.frame("B13").empty == (method != "BTFL")


def test_what_is_not_there_is_said(tmp_path):
    s = study(tables=["T5"], officehome="none", output=str(tmp_path))
    for name in ("T1", "F4", "F6"):
        assert s.show(name) == studies.NOT_HERE
    assert s.show("T5") == "not run: switched off by the parameter officehome"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["T5.csv", "T5.tex"]


def test_figure_frames_have_their_columns():
    several = pd.concat([rows("4"), rows("10")])
    made = {
        "F1": several,
        "F4": rows(),
        "F5": rows(),
        "F6": rows(methods=["BTFL"]),
        "B13": rows(methods=["BTFL, cap 2", "BTFL, cap 16", "BTFL (code), cap 16"]),
    }
    frames = {name: PAPER.exhibit(name).reduce(parameters(), measured) for name, measured in made.items()}
    for name, frame in frames.items():
        assert {*claims_of("btfl").FIGURE_COLUMNS[name], *PROVENANCE} <= set(frame.columns), name
    assert frames["F1"]["classes"].tolist()[:2] == [4, 4]
    assert frames["F1"].groupby("column")["mean"].max()["alignment"] == pytest.approx(2 * frames["F1"]["mean"].min())
    found = frames["B13"][["method", "strength"]].drop_duplicates().to_numpy().tolist()
    assert found == [["BTFL", 2], ["BTFL", 16], ["BTFL (code)", 16]]
    assert set(frames["F4"]["column"]) == {"avg"}
    assert set(bars(parameters(), rows(model="resnet20gn"))["model"]) == {"resnet20gn"}


def test_figure_1_plots_the_mean_of_each_term_over_all_samples():
    """Column c has the similarity (c + 0.5) / 20 throughout, and shifted_ind twice as many samples as the others."""
    made = rows("10", ["FedTHE"])
    frame = PAPER.exhibit("F1").reduce(parameters(), made).set_index("column")["mean"]
    weights = [1 + (column == "shifted_ind") for column in COLUMNS]
    assert frame["similarity"] == pytest.approx(np.average([0.025, 0.075, 0.125, 0.175, 0.225], weights=weights))
    # The second client's five tests hold three times as many samples, of three times the similarity.
    longer = made.assign(n=made["n"] * (1 + 2 * made["client"]), similarity=made["similarity"] * (1 + 2 * made["client"]))
    uneven = PAPER.exhibit("F1").reduce(parameters(), longer).set_index("column")["mean"]
    assert uneven["similarity"] == pytest.approx(2.5 * frame["similarity"])


def test_weights_average_the_first_four_columns():
    """Column c has all its weights in bin c, at density 20."""
    frame = weights(parameters(), rows(methods=["BTFL"]))
    average = frame[frame["column"] == "average"].set_index("weight")["density"]
    assert average.round(6).tolist() == [5] * 4 + [0] * 16
    assert frame[frame["column"] == "synthetical"].set_index("weight")["density"].idxmax() == pytest.approx(4.5 / 20)
    means = mean_weights(frame).loc["mean weight"]
    assert means[list(COLUMNS)].tolist() == pytest.approx([0.025, 0.075, 0.125, 0.175, 0.225])
    assert mean_weights(pd.DataFrame()).empty


def test_integral_error():
    errors = integral_error().set_index("alpha")
    assert errors.loc[15.0, "exact"] == pytest.approx(15 / 16)
    assert errors.loc[299.0, "trapezoid"] == pytest.approx(0.081, abs=1e-3)
    assert (errors["gap"] < 0).all()
