"""The answer over several runs: whose numbers count, and what the caption says of each run."""

import json

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from fedlib.commands.answer import answer, main
from fedlib.papers.comparison.settings import about
from fedlib.papers.comparison.significance import cells
from fedlib.papers.fedthe.recipes import RECIPES as FEDAVG
from tests.papers.comparison_cases import parameters, rows


@pytest.fixture
def folder(tmp_path):
    """Writes a run's tests, record and, if told, costs."""

    def write(name, values, protocol="BRFL", columns=("original",), seconds=None, **given):
        path = tmp_path / name
        path.mkdir()
        p = parameters(profile="smoke", methods=[*values], **given)
        cells(rows(values, protocol, clients=40, columns=columns, noise=0.1)).to_csv(path / "tests.csv", index=False)
        if seconds:
            pd.DataFrame({"method": [*seconds], "seconds": seconds.values(), "memory": 1.0}).to_csv(path / "cost.csv", index=False)
        record = {"profile": p.profile, "seeds": p.seeds, "parameters": json.loads(json.dumps(p.facts(), default=list))}
        (path / "run.json").write_text(json.dumps(record))
        return path

    return write


def drawn(axis, shift, method):
    x, y = ([label.get_text() for label in labels] for labels in (axis.get_xticklabels(), axis.get_yticklabels()))
    at = (x.index(shift), y.index(method))
    return [text.get_text() for text in axis.texts if text.get_position() == at]


def test_shifts_of_all_runs_stand_side_by_side_and_the_first_run_of_a_test_counts(folder):
    first = folder("first", {"FedAvg": 50, "EM": 60}, seconds={"EM": 0.5}, rounds=4)
    second = folder("second", {"FedAvg": 50, "EM": 20, "T3A": 45}, seconds={"EM": 9.0, "T3A": 0.25}, rounds=5)
    ranks = pd.DataFrame({"kind": "labels", "method": ["EM", "T3A"], "rank": [1.5, 2.5], "critical": 3.0})
    ranks.to_csv(second / "differences.csv", index=False)
    later = {"kind": ["labels", "labels", "new", "new"], "method": ["EM", "FedAvg"] * 2, "rank": [3.5, 4.5, 5.5, 6.5], "critical": 3.0}
    new = folder("new", {"FedAvg": 50, "EM": 40}, "UPFL new clients", ("test",), rounds=6)
    pd.DataFrame(later).to_csv(new / "differences.csv", index=False)
    for run, kind, protocol in ((first, "labels", "BTGFL"), (second, "labels", "BRFL"), (new, "new", "UPFL new clients")):
        pd.DataFrame({"kind": kind, "protocol": ["mean", protocol]}).to_csv(run / "ranks.csv", index=False)
    figure = answer(first, second, new)
    above, below = figure.axes
    assert [label.get_text() for label in above.get_xticklabels()] == ["own images *", "new client: few classes *"]
    found = [drawn(above, *at) for at in (("own images *", "EM"), ("own images *", "T3A"), ("new client: few classes *", "EM"))]
    assert found == [["▲+10.0"], ["▼-5.0"], ["▼-10.0"]]
    assert drawn(above, "new client: few classes *", "T3A") == []
    shown = {text.get_text() for text in below.texts}
    assert shown >= {"0.5", "0.25", "1.5", "2.5", "5.5"}
    assert "3.5" not in shown, "of one kind of clients the ranks of one run"
    said = " ".join(text.get_text().replace("\n", " ") for text in figure.texts)
    assert "Rank, with labels: over BRFL. Rank, new clients: over UPFL new clients." in said, "of the runs whose ranks are shown"
    for shift, rounds in (("Own images", 4), ("Own images (T3A)", 5), ("New client: few classes", 6)):
        assert f"{shift}: digits" in said
        assert f", {rounds} rounds x" in said
    plt.close(figure)


def test_a_run_that_adds_no_test_of_a_shift_is_not_told_of_it(folder):
    first = folder("first", {"FedAvg": 50, "EM": 60}, rounds=4)
    again = folder("again", {"FedAvg": 50, "EM": 20}, columns=("original", "corrupted"), rounds=5)
    said = " ".join(text.get_text().replace("\n", " ") for text in answer(first, again).texts)
    assert said.count("Own images") == 1
    assert "Own, corrupted: digits" in said


def test_runs_alike_share_a_line_of_the_caption(folder):
    one = folder("one", {"FedAvg": 50, "EM": 60})
    other = folder("other", {"FedAvg": 50, "EM": 60}, columns=("corrupted",))
    figure = answer(one, other)
    text, numbers = (
        figure.texts[-1].get_text().replace("\n", " "),
        "Numbers on squares: mean gain over no adaptation in points; no square: not run, or impossible there.",
    )
    assert text == f"{numbers} Own images; own, corrupted: {about(parameters(profile='smoke', methods=['FedAvg', 'EM']))}."


def test_methods_of_ones_own_are_shown_without_what_they_need(folder):
    run = folder("one", {"FedAvg": 50, "EM": 60, "Mine": 55}, extra={"Mine": FEDAVG["FedAvg"]})
    above, below = answer(run).figure.axes
    assert drawn(above, "own images *", "Mine") == ["▲+5.0"]
    y = [label.get_text() for label in above.get_yticklabels()].index("Mine")
    assert {text.get_text() for text in below.texts if text.get_position()[1] == y} == {"?"}


def test_what_is_no_run_of_the_comparison_is_refused(folder, tmp_path):
    lacking = folder("lacking", {"FedAvg": 50, "EM": 60})
    (lacking / "run.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"no run\.json"):
        answer(lacking)
    (lacking / "tests.csv").write_text("a\n1\n")
    with pytest.raises(FileNotFoundError, match=r"lacking holds no tests\.csv of the comparison: run its notebook with tests among"):
        answer(lacking)
    with pytest.raises(SystemExit, match=r"error: .*holds no tests\.csv"):
        main([str(tmp_path), "--out", str(tmp_path / "no.png")])
    assert not (tmp_path / "no.png").exists()


def test_images_of_ones_own_must_be_there(folder):
    path = folder("mine", {"FedAvg": 50, "T3A": 60})
    told = json.loads((path / "run.json").read_text())
    told["parameters"]["dataset"] = "mine.npz"
    (path / "run.json").write_text(json.dumps(told))
    with pytest.raises(ValueError, match=r"ran on your own images, .* give the command where mine.npz lies"):
        answer(path)


def test_the_picture_is_written(folder, tmp_path):
    main([str(folder("one", {"FedAvg": 50, "EM": 60})), "--out", str(tmp_path / "new" / "one.png")])
    assert (tmp_path / "new" / "one.png").read_bytes()[1:4] == b"PNG"
