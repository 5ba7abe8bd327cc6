import matplotlib.pyplot as plt
import pandas as pd
import pytest

from fedlib.commands.agreement import agreement, main


def test_runs_of_one_table_share_a_panel_and_the_first_ones_cell_counts(run):
    first, second = run("first", {"FedTHE": 5}), run("second", {"TSA": 0, "FedTHE": 40})
    figure = agreement(first, second)
    (axis,) = figure.axes
    drawn = {tuple(at) for dots in axis.collections for at in dots.get_offsets() if dots.get_zorder() == 3}
    printed = pd.read_csv(first / "T3.csv").dropna(subset=["mean", "published_mean"])
    assert drawn >= set(zip(printed["published_mean"], printed["mean"], strict=True))
    assert {y for _, y in drawn} == {50, 55}, "no cell of the second run's FedTHE"
    assert axis.get_title().startswith("FedTHE T3: ")
    assert "1 seed, 2026-11-26" in axis.texts[0].get_text()
    plt.close(figure)


def test_a_file_stands_for_its_table_alone(run, tmp_path):
    folder = run("first", {"FedTHE": 5}, more=("T9",))
    pd.read_csv(folder / "T9.csv").assign(table="T9").to_csv(folder / "T9.csv", index=False)
    assert [axis.get_title()[:10] for axis in agreement(folder).axes] == ["FedTHE T3:", "FedTHE T9:"]
    assert [axis.get_title()[:10] for axis in agreement(folder / "T9.csv").axes] == ["FedTHE T9:"]
    main([str(folder / "T3.csv"), "--out", str(tmp_path / "new" / "near")])
    assert (tmp_path / "new" / "near").read_bytes()[1:4] == b"PNG"
    with pytest.raises(SystemExit, match=r"T5\.csv is no table of whole streams: .* holds T3, T9"):
        main([str(folder / "T5.csv")])
    plt.close("all")


def test_what_is_no_accuracy_has_no_panel(run):
    folder = run("first", {"FedTHE": 5}, more=("AT1",))
    pd.read_csv(folder / "AT1.csv").assign(table="AT1").to_csv(folder / "AT1.csv", index=False)
    assert [axis.get_title()[:10] for axis in agreement(folder).axes] == ["FedTHE T3:"], "appendix tables hold counts"
    with pytest.raises(ValueError, match="no accuracy was both run and printed"):
        agreement(folder / "AT1.csv")
    plt.close("all")


def test_what_the_print_does_not_have_is_refused(run):
    folder = run("first", {"FedTHE": 5})
    pd.read_csv(folder / "T3.csv").assign(published_mean=None).to_csv(folder / "T3.csv", index=False)
    with pytest.raises(ValueError, match="no accuracy was both run and printed"):
        agreement(folder)
