import re

import numpy as np
import pandas as pd
import pytest

from fedlib.common import average, labelled
from fedlib.published.compare import REQUIRED, fill
from fedlib.published.ledger import ledger
from fedlib.published.reading import Note, Page, apart, claims_page, latex, leaders, legend, on_cut, same_images, summary
from fedlib.results import check_table, write_table

REASON = "this profile leaves it out"
# Accuracy on all images and on the first two, by method; MEMO-P saw only these.
SEEN = {"FedAvg+FT": (70.0, 80.0), "FedAvg": (60.0, 50.0), "MEMO-P": (76.0, 76.0)}


def rows(columns=("original_ind",)):
    made = []
    for method, (whole, cut) in SEEN.items():
        partial = method == "MEMO-P"
        for seed in (0, 1):
            for client in range(3):
                row = {"method": method, "seed": seed, "client": client, "n": 2 if partial else 10, "cut": partial, "cut_n": 2}
                noise = 0.1 * client + 0.05 * seed if method == "FedAvg+FT" else 0.1 * (2 - client) + 0.05 * (1 - seed)
                row |= {"accuracy": whole + noise, "cut_accuracy": cut + noise}
                made += [{**row, "column": column, "draw": 0} for column in columns]
    return pd.DataFrame(made).assign(setting="Dir(0.1)", dataset="digits", model="cnn")


@pytest.fixture
def table():
    return fill("btfl", "T2", labelled(average(rows()), rows(), []), reason=REASON)


def of(frame, method):
    return frame[(frame["method"] == method) & (frame["column"] == "original_ind")].iloc[0]


def test_all_methods_on_the_images_that_all_saw(table):
    """On all images the costly method seems 6 ahead of fine-tuning; on the same ones it is 4 behind."""
    assert of(table, "MEMO-P")["mean"] - of(table, "FedAvg+FT")["mean"] == pytest.approx(6)
    cut = on_cut(table)
    check_table(cut)
    assert of(cut, "MEMO-P")["mean"] - of(cut, "FedAvg+FT")["mean"] == pytest.approx(-4)
    assert [of(cut, method)["n"] for method in SEEN] == [12, 12, 12]
    assert [of(table, method)["n"] for method in SEEN] == [60, 60, 12]
    assert set(cut.loc[cut["mean"].isna(), "status"]) == {f"not run: {REASON}"}, "what was not run keeps its reason"
    assert on_cut(table[table["method"] != "MEMO-P"]) is None
    assert on_cut(fill("btfl", "T2", table.iloc[:0], reason=REASON)) is None


def test_the_cut_table_is_written_beside_the_full_one(table, tmp_path):
    write_table(table, tmp_path, "T2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["T2.csv", "T2.tex", "T2_clients.csv", "T2_cut.csv", "T2_cut.tex"]
    full, cut = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("T2", "T2_cut"))
    assert list(full.columns) == list(cut.columns)
    assert "units" not in full
    write_table(table[table["method"] != "MEMO-P"], tmp_path, "T2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["T2.csv", "T2.tex", "T2_clients.csv"], "no file of an earlier run stays"


def test_a_picture_takes_the_same_images_where_streams_are_cut(table):
    shown = same_images(table)
    assert of(shown, "FedAvg+FT")["mean"] == pytest.approx(80.125)
    whole = table[table["method"] != "MEMO-P"]
    assert same_images(whole) is whole
    assert len(same_images(pd.DataFrame())) == 0


def test_the_leader_is_bold_only_beyond_the_margin_and_on_the_same_images(table):
    assert table.loc[leaders(table), "method"].tolist() == ["FedAvg+FT"]
    close = rows()
    close.loc[close["method"] == "FedAvg", "cut_accuracy"] = 80.1 + 0.05 * np.arange(6)
    near = fill("btfl", "T2", labelled(average(close), close, []), reason=REASON)
    assert not leaders(near).any()


@pytest.mark.parametrize(("differences", "bold"), [([1.0, 2.0, 0.0, 1.2], False), ([1.0, 2.0, 0.9, 1.2], True)])
def test_a_leader_by_two_standard_errors_of_four_clients_is_not_bold(differences, bold):
    """t = 2.6 and 5.2 with three degrees of freedom, two-sided: 0.08 and 0.01."""
    made = [
        {"method": m, "seed": 0, "client": k, "n": 10, "column": "original_ind", "draw": 0, "accuracy": 60.0 + d * (m == "BTFL")}
        for m in ("BTFL", "FedAvg")
        for k, d in enumerate(differences)
    ]
    frame = pd.DataFrame(made).assign(setting="Dir(0.1)", dataset="digits", model="cnn")
    table = fill("btfl", "T2", labelled(average(frame), frame, []), reason=REASON)
    assert leaders(table).any() == bold


def test_a_notebooks_table(table):
    page = summary(table)._repr_html_()
    assert page.count("<table") == 2
    assert "<b>70.12 ± 0.04</b><br>" in page
    assert "76.12 ± 0.04†<br>" in page
    assert "on the first images of each stream only, 12 in all" in page
    assert "position: sticky" in page
    assert "nan" not in page.lower().replace("nanum", "")
    assert "…" not in page
    assert "–<br>" in page
    single = summary(table[table["method"] != "MEMO-P"])
    assert single._repr_html_().count("<table") == 1


def test_a_users_images_stand_alone():
    """No dashes for a print, no gap to one, and no list of methods that it lacks."""
    seen = rows().assign(dataset="photos/")
    table = fill("btfl", "T2", labelled(average(seen), seen, []), reason=REASON)
    page = summary(table)._repr_html_()
    assert "<b>70.12 ± 0.04</b></td>" in page
    assert "–<br>" not in page
    assert "Ours (± standard deviation over seeds); photos/; 2 seeds" in page
    assert "print" not in page
    text = latex(table)
    assert "\\textbf{70.12 $\\pm$ 0.04} (n=60)" in text
    assert "[" not in text
    assert "print" not in text


def test_blocks_of_a_users_images_have_no_other_data_sets_name():
    cell = {"setting": "feature shift", "method": "EM", "column": "test", "std": None, "n_seeds": 1, "n": 5, "status": "ok"}
    ran = [{**cell, "model": model, "run_dataset": "mine.npz", "run_model": "cnn"} for model in ("shallow_cnn", "resnet50")]
    alike = pd.DataFrame(ran).assign(dataset=["cifar10", "cifar100"], mean=50.0)
    for means, names in (([50.0, 50.0], []), ([50.0, 60.0], ["mine.npz", "mine.npz (as cifar100)"])):
        table = fill("atp", "T5", alike.assign(mean=means), reason=REASON)
        text = latex(table)
        assert "resnet50" not in text
        assert "cifar10 " not in text
        assert all(f"\n{name} & " in text for name in names)
        rows = re.findall(r"^(.* & )?EM &", text, re.MULTILINE)
        assert len(rows) == max(1, len(names)), "the one shift that ran, not the print's others"
        for shown in (summary(table)._repr_html_(), text):
            assert "shallow" not in shown


def test_blocks_that_did_not_run_are_not_shown_beside_a_users_images():
    cell = {"setting": "pathological", "method": "FedAvg", "column": "test", "std": None, "n_seeds": 1, "n": 5, "status": "ok"}
    ran = pd.DataFrame([{**cell, "mean": 50.0, "dataset": "cifar10", "model": "convnet", "run_dataset": "mine.npz", "run_model": "mlp"}])
    table = fill("upfl", "T1", ran, reason=REASON)
    assert {"mnist", "cifar10"} <= set(table["dataset"])
    for shown in (summary(table)._repr_html_(), latex(table)):
        assert "mnist" not in shown
        assert "cifar10" not in shown


def test_the_own_methods_lead_unfolds_below_its_table():
    """BTFL is ten ahead of FedAvg, over clients that differ by less, and level with kNN-Per, of which it knows the first images alone."""
    seen = [("FedAvg", 60.0, False), ("BTFL", 70.0, False), ("kNN-Per", 70.0, True)]
    made = [
        {"method": m, "seed": 0, "client": k, "n": 2 if cut else 10, "cut": cut, "cut_n": 2, "column": "original_ind", "draw": 0}
        | {"accuracy": level + k * (m == "BTFL"), "cut_accuracy": 70.0 + k * (m == "BTFL") * (-1) ** k}
        for m, level, cut in seen
        for k in range(4)
    ]
    frame = pd.DataFrame(made).assign(setting="Dir(0.1)", dataset="digits", model="cnn")
    table = fill("btfl", "T2", labelled(average(frame), frame, []), reason=REASON)
    page = apart(table)._repr_html_()
    assert "<summary>Ahead of BTFL on the same clients and images, in points</summary>" in page
    assert "<b>-11.50 ± 0.65</b>" in page
    assert "+0.50 ± 1.04†" in page
    assert "† on the first images of each stream; 1 seed." in page
    assert apart(table.drop(columns="units"))._repr_html_() == Page()._repr_html_()
    assert apart(table[table["method"] != "BTFL"]).parts == ()
    assert apart(table.assign(column="avg_rank")).parts == (), "not in points"
    assert apart(table[table["method"] == "BTFL"]).parts == ()


def test_leads_are_bold_where_they_stay_beyond_chance_among_all_methods():
    """The difference has p = 0.03: it stands alone, and not among three."""
    for names, bold in ((["FedAvg"], True), (["FedAvg", "kNN-Per", "FedAvg+FT"], False)):
        made = [
            {"method": m, "seed": 0, "client": k, "n": 10, "column": "original_ind", "draw": 0, "accuracy": 60.0 + d * (m == "FedAvg")}
            for m in ("BTFL", *names)
            for k, d in enumerate([1.0, 2.0, 0.4, 1.2])
        ]
        frame = pd.DataFrame(made).assign(setting="Dir(0.1)", dataset="digits", model="cnn")
        page = apart(fill("btfl", "T2", labelled(average(frame), frame, []), reason=REASON))._repr_html_()
        assert "+1.15 ± 0.33" in page
        assert ("<b>+1.15 ± 0.33</b>" in page) == bold


def test_nothing_is_cut_off_in_a_long_table():
    cell = {"setting": "feature shift", "column": "test", "mean": 50.0, "std": None, "n_seeds": 1, "n": 5}
    run = {"run_dataset": "digits", "run_model": "cnn", "status": "stand-in"}
    measured = pd.DataFrame([{"method": f"M{i}", **cell, **run} for i in range(90)])
    page = summary(fill("atp", "T1", measured, reason=REASON))._repr_html_()
    assert all(f">M{i}<" in page for i in range(90))
    assert "one seed" not in page


def test_latex_says_what_it_shows(table):
    text = latex(table)
    assert "\\begin{table}" in text
    assert "\\caption{BTFL T2. Ours ($\\pm$ standard deviation over seeds), printed values in brackets" in text
    assert "digits (stand-in)" in text
    assert "\\textbf{70.12 $\\pm$ 0.04} [" in text
    assert "76.12 $\\pm$ 0.04$^\\dagger$ [" in text
    assert "(n=60)" in text
    cut = latex(on_cut(table))
    assert "dagger" not in cut, "where all are on the first images the caption says it"
    assert "on the first images of each stream." in cut
    assert "original\\_ind" in text


def test_a_printed_method_whose_numbers_are_lost_is_printed_all_the_same():
    frame = fill("fedthe", "T7", pd.DataFrame(columns=[*REQUIRED, "dataset", "model"]), reason=REASON)
    assert frame.query("method == 'T3A'")["published_mean"].isna().all()
    assert "not printed" not in legend(frame, False)


def test_claims_put_verdicts_first_and_fold_their_numbers(as_measured):
    frame = ledger("btfl", as_measured("btfl"))
    page = claims_page(frame)._repr_html_()
    assert page.count("<details>") == len(frame)
    assert page.index("Our verdicts on") < page.index("<details>")
    assert "&lt; 2" in page, "evidence is text, not markup"


def test_a_note_is_text():
    assert Note("a <b>\nc")._repr_html_() == "<p>a &lt;b&gt;<br>c</p>"
    assert Note("a") == "a"


def test_a_frame_is_shown_whole_and_readable():
    """Neither rows nor words are cut; a dash where there is nothing, two decimals, three of small numbers."""
    rows = {"gain": [1.23456, None], "error": [0.01234, 0.5], "labels": [True, False], "note": ["a long reason " * 20, "<b>"]}
    page = Page(pd.DataFrame(rows))._repr_html_()
    cells = re.findall(r"<td[^>]*>(.*?)</td>", page)
    assert cells == ["1.23", "0.012", "yes", "a long reason " * 20, "–", "0.500", "–", "&lt;b&gt;"]
    several = Page(pd.DataFrame({"mean": range(500)}), Page(Note("said"), pd.DataFrame({"mean": [2]})))
    assert len(several.parts) == 3
    assert several._repr_html_().count("<td") == 501
