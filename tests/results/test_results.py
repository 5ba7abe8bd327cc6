import matplotlib
import numpy as np
import pandas as pd
import pytest

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from PIL import Image

from fedlib import results
from fedlib.plots import charts
from fedlib.published.compare import fill
from fedlib.published.units import Units

REASON = "this profile leaves it out"


@pytest.fixture
def table():
    row = {"setting": "Dir(0.1)", "method": "FedAvg", "column": "avg", "mean": 58.123456, "std": None, "n_seeds": 1, "n": 3000}
    run = {"run_dataset": "digits", "run_model": "cnn", "status": "stand-in"}
    return fill("btfl", "T2", pd.DataFrame([{**row, **run}]), reason=REASON)


def test_table_files(table, tmp_path):
    results.write_table(table, tmp_path, "T2")
    again = pd.read_csv(tmp_path / "T2.csv")
    assert tuple(again.columns) == results.TABLE_COLUMNS
    assert len(again) == 54
    assert again["mean"].dropna().tolist() == [58.1235]
    text = (tmp_path / "T2.tex").read_text()
    assert r"\toprule" in text
    assert "58.12 [58.67] (n=3000)" in text
    assert "--- [65.60]" in text
    assert r"original\_ind" in text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["T2.csv", "T2.tex"]


def test_clients_and_first_images_of_an_earlier_run_do_not_stay(table, tmp_path):
    mean = table["mean"].max()
    units = Units(((0, 0),), np.array([mean]), np.ones(1), np.full(1, 3000))
    results.write_table(table.assign(units=[None if np.isnan(m) else units for m in table["mean"]]), tmp_path, "T2")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["T2.csv", "T2.tex", "T2_clients.csv"]
    for kind in ("csv", "tex"):
        (tmp_path / f"T2_cut.{kind}").write_text("of one whose streams were cut")
    results.write_table(table, tmp_path, "T2")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["T2.csv", "T2.tex"]


def test_table_bytes_are_equal_on_repetition(table, tmp_path):
    results.write_table(table, tmp_path / "a", "T2")
    results.write_table(table, tmp_path / "b", "T2")
    for name in ("T2.csv", "T2.tex"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_rounding_error_above_100_is_written_as_100(table, tmp_path):
    table.loc[table["mean"].notna(), "mean"] = np.nextafter(100, 101)
    results.write_table(table, tmp_path, "T2")
    assert pd.read_csv(tmp_path / "T2.csv")["mean"].dropna().tolist() == [100.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mean": 100.5}, "outside 0..100"),
        ({"mean": 100.0001}, "outside 0..100"),
        ({"mean": -1.0}, "outside 0..100"),
        ({"mean": np.nan}, "not a finite number"),
        ({"mean": np.inf}, "not a finite number"),
        ({"std": -0.1}, "standard deviation"),
        ({"n_seeds": 0}, "n_seeds is below 1"),
        ({"n": None}, "number of test images, is absent"),
        ({"n": 0}, "number of test images, is absent"),
        ({"run_dataset": ""}, "run_dataset is empty"),
        ({"status": "not run: left out here"}, "was not run has a mean"),
        ({"status": "fine"}, "status is neither"),
        ({"status": "not run: short", "mean": np.nan}, "status is neither"),
    ],
)
def test_contract_is_checked(table, tmp_path, changes, message):
    row = table.index[table["status"] == "stand-in"][0]
    for name, value in changes.items():
        table.loc[row, name] = value
    with pytest.raises(ValueError, match=message):
        results.write_table(table, tmp_path, "T2")
    assert list(tmp_path.iterdir()) == []


def test_columns_are_checked(table, tmp_path):
    with pytest.raises(ValueError, match="a result table has the columns paper, table"):
        results.write_table(table.rename(columns={"n_seeds": "seeds"}), tmp_path, "T2")


def test_seconds_and_ranks_are_no_percentages():
    row = {"setting": "unspecified", "method": "TTT", "column": "seconds_per_1000", "mean": 211.0, "std": 1.0, "n_seeds": 3}
    run = {"run_dataset": "digits", "run_model": "cnn", "status": "stand-in"}
    results.check_table(fill("btfl", "T3", pd.DataFrame([{**row, **run}]), reason=REASON))


def test_a_method_without_a_printed_value_has_a_dash_in_latex():
    row = {"setting": "Dir(0.1)", "method": "BTFL (code)", "column": "avg", "mean": 60.0, "std": 1.0, "n_seeds": 3, "n": 7}
    run = {"run_dataset": "digits", "run_model": "cnn", "status": "stand-in"}
    frame = fill("btfl", "T2", pd.DataFrame([{**row, **run}]), reason=REASON)
    results.check_table(frame)
    (caption, line) = [line for line in results.latex(frame).splitlines() if "BTFL (code)" in line]
    assert "not printed in the paper: BTFL (code)" in caption
    assert "60.00 $\\pm$ 1.00 [---] (n=7)" in line


@plt.rc_context({"savefig.bbox": None})
def test_figure_files_are_reproducible(tmp_path):
    data = pd.DataFrame({"round": [1, 2], "mean": [50.0, 60.123456]})
    for folder in ("a", "b"):
        figure, axes = plt.subplots(figsize=(2, 1))
        axes.plot(data["round"], data["mean"], label="x")
        axes.fill_between(data["round"], data["mean"], hatch="/")
        results.write_figure(figure, data, tmp_path / folder, "F1", "accuracy by round")
        plt.close(figure)
    for name in ("F1.png", "F1.svg", "F1.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert (tmp_path / "a" / "F1.csv").read_text() == "round,mean\n1,50.0\n2,60.1235\n"
    svg = (tmp_path / "a" / "F1.svg").read_text()
    assert "accuracy by round" in svg
    assert "dc:date" not in svg
    # 2 x 1 inches at 150 dpi, and what the labels take beyond.
    height, width = plt.imread(tmp_path / "a" / "F1.png").shape[:2]
    assert 150 < height < 200
    assert 250 < width < 350


def test_a_picture_takes_a_palette_and_still_shows_what_was_drawn(tmp_path):
    figure, axes = plt.subplots(figsize=(3, 2))
    rng = np.random.default_rng(0)
    axes.scatter(*rng.random((2, 400)), s=200, c=rng.random((400, 3)))
    results.write_figure(figure, pd.DataFrame({"a": [1]}), tmp_path, "F1", "dots in colours")
    figure.savefig(tmp_path / "full.png", dpi=150, bbox_inches=figure.get_tightbbox().padded(plt.rcParams["savefig.pad_inches"]))
    plt.close(figure)
    small, full = (Image.open(tmp_path / name) for name in ("F1.png", "full.png"))
    assert (small.mode, small.text["Description"]) == ("P", "dots in colours")
    assert small.size == full.size
    difference = np.asarray(small.convert("RGB"), float) - np.asarray(full.convert("RGB"), float)
    assert abs(difference).mean() < 12
    assert 2 * (tmp_path / "F1.png").stat().st_size < (tmp_path / "full.png").stat().st_size


def test_colours_that_are_numbers_are_kept_but_for_what_no_eye_sees(tmp_path):
    figure, both = plt.subplots(2, 1, figsize=(6, 8))
    for axes, colours in zip(both, ("viridis", "RdBu"), strict=True):
        figure.colorbar(axes.imshow(np.linspace(0, 100, 160).reshape(10, 16), cmap=colours), ax=axes)
        for x, y in np.ndindex(16, 10):
            axes.text(x, y, f"{x * y}", ha="center", va="center", fontsize=7, color="white" if y < 5 else "black")
    results.write_figure(figure, pd.DataFrame({"a": [1]}), tmp_path, "F1", "a scale")
    figure.savefig(tmp_path / "full.png", dpi=150, bbox_inches=figure.get_tightbbox().padded(plt.rcParams["savefig.pad_inches"]))
    plt.close(figure)
    small, full = (np.asarray(Image.open(tmp_path / name).convert("RGB"), float) for name in ("F1.png", "full.png"))
    away = abs(small - full).max(-1)
    assert np.percentile(away, 99) <= 15
    assert away.mean() < 2
    assert (small[(full == 255).all(-1)] == 255).all()


@pytest.mark.parametrize(
    ("data", "caption"),
    [(pd.DataFrame({"a": []}), "text"), (pd.DataFrame({"a": [1]}), " "), (pd.DataFrame({"a": [np.inf]}), "text")],
)
def test_figure_without_numbers_or_caption_is_refused(data, caption, tmp_path):
    figure = plt.figure()
    with pytest.raises(ValueError, match="figure F1"):
        results.write_figure(figure, data, tmp_path, "F1", caption)
    plt.close(figure)


def test_a_picture_names_the_data_that_it_shows(tmp_path):
    data = pd.DataFrame({"x": [1, 2], "mean": [1.0, 2.0], "run_dataset": ["digits", "digits"]})
    for caption, added in (("Figure 3: PACS (64 px), 5 seeds", True), ("Figure 3: Digits, 5 seeds", False)):
        figure = plt.figure(figsize=(2, 1))
        results.write_figure(figure, data, tmp_path, "F3", caption)
        svg = (tmp_path / "F3.svg").read_text()
        assert (f"{caption}\nshown: digits" in svg) == added
        assert ([text.get_text() for text in figure.texts] == ["shown: digits"]) == added
        plt.close(figure)


def test_a_picture_of_cut_streams_says_so(tmp_path):
    units = Units(((0, 0),), np.array([50.0]), np.ones(1), np.ones(1), partial=True)
    for some, words in ((units, "shown: all on the first images"), (None, "shown: methods with per-sample gradients on the first images")):
        data = pd.DataFrame({"mean": [1.0, 2.0], "units": [units, some]})
        figure = plt.figure(figsize=(2, 1))
        results.write_figure(figure, data, tmp_path, "F3", "Figure 3")
        assert words in (tmp_path / "F3.svg").read_text()
        assert (tmp_path / "F3.csv").read_text() == "mean\n1.0\n2.0\n"
        plt.close(figure)
    # A caption that says it already is enough.
    figure = plt.figure(figsize=(2, 1))
    results.write_figure(figure, data, tmp_path, "F3", "Figure 3: per-sample methods on 16 images of each stream")
    assert "shown:" not in (tmp_path / "F3.svg").read_text()
    plt.close(figure)


def test_a_notebook_shows_the_written_picture_and_draws_no_other(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(matplotlib, "get_backend", lambda: "inline")
    monkeypatch.setattr("IPython.display.display", shown.append)
    figure, axis = plt.subplots(figsize=(4, 3))
    axis.plot([1, 2, 3])
    results.write_figure(figure, pd.DataFrame({"x": [1]}), tmp_path, "f", "A figure.")
    (picture,) = shown
    assert picture.data == (tmp_path / "f.png").read_bytes()
    with Image.open(tmp_path / "f.png") as image:
        assert picture.width == pytest.approx(image.width * figure.dpi / 150, abs=0.5)
    # An open one would be laid out and drawn again when its cell ends.
    assert figure.number not in plt.get_fignums()


def test_a_figure_with_nothing_to_compare_is_not_drawn(tmp_path):
    data = pd.DataFrame({"classes": [10, 4], "column": "alignment", "method": "FedTHE", "mean": [0.5, 0.2]})
    options = {"compares": "classes", "x": "classes", "panels": "column", "xlabel": "classes"}
    said = results.draw_figure(charts.curves, data, tmp_path, "F1", "Figure 1: terms\non digits", **options)
    assert said == "Figure 1: terms\non digits"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["F1.csv", "F1.png", "F1.svg"]
    said = results.draw_figure(charts.curves, data.head(1), tmp_path, "F1", "Figure 1: terms\non digits", **options)
    assert said == "Figure 1: terms: not drawn, since it compares several values of classes and only classes 10 was run."
    assert list(tmp_path.iterdir()) == [], "nor does an earlier picture stay"
    assert "nothing of it was run" in results.draw_figure(charts.curves, data.head(0), tmp_path, "F1", "Figure 1", **options)


def test_claims_file(tmp_path):
    frame = pd.DataFrame([["H1", "better", "holds", "not run", "not run: lacks T1", "paper: 1 of 1"]], columns=results.CLAIM_COLUMNS)
    results.write_claims(frame, tmp_path)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "claims.csv"), frame, check_dtype=False)
    with pytest.raises(ValueError, match="each claim"):
        results.write_claims(pd.concat([frame, frame]), tmp_path)
    with pytest.raises(ValueError, match="no empty field"):
        results.write_claims(frame.assign(evidence=""), tmp_path)
    with pytest.raises(ValueError, match="has the columns"):
        results.write_claims(frame.drop(columns="ours"), tmp_path)


def test_claims_of_incomplete_and_of_mixed_runs_are_left_out(tmp_path):
    frame = pd.DataFrame([["H1", "better", "holds", "not run", "not run: lacks T1", "paper: 1 of 1"]], columns=results.CLAIM_COLUMNS)
    for paper in ("atp", "btfl", "upfl"):
        results.write_claims(frame, tmp_path / paper)
        if paper != "btfl":
            results.write_run(tmp_path / paper, profile="smoke", seeds=[0], device="cpu", duration_seconds=1, cache_hits=0, accounts=[])
    frame.to_csv(tmp_path / "upfl" / "claims.csv", index=False, sep=",", float_format="%.1f", lineterminator="\r\n")
    with pytest.warns(UserWarning, match="claims of btfl, upfl are left out"):
        assert results.gather_claims(tmp_path)["paper"].tolist() == ["atp"]
