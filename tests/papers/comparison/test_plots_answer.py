import pandas as pd

from fedlib.papers.comparison.plots_answer import answer


def test_the_answer_marks_verdicts_and_tells_prices():
    frame = pd.DataFrame(
        [
            ("none", "BTFL", 5.2, "helps"),
            ("none", "EM", -3.1, "hurts"),
            ("natural", "BTFL", 0.4, "undecided"),
            ("natural", "EM", 9.0, "too few images"),
        ],
        columns=["shift", "method", "gain", "verdict"],
    )
    cost = pd.DataFrame({"method": ["BTFL", "EM"], "seconds": [0.1234, 2.0], "memory": [1.0, 30.0]})
    needs = pd.DataFrame({"method": ["EM", "BTFL"], "labels": ["", "must"], "training": [False, True], "batch_norm": False})
    needs = needs.assign(together=["batch", "one"], passes=[1, 2], sent=["", "a table"], kept=["", "means"])
    needs = needs.assign(validation=[True, False], head=[False, True], shares=[True, False])
    axis = answer(frame, cost, needs, title="T").axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["EM", "BTFL"]
    assert axis.texts[-1].get_text() == "a table"
    texts = [[t.get_text() for t in sorted(axis.texts, key=lambda t: t.get_position()[0]) if t.get_position()[1] == y] for y in (0, 1)]
    assert texts[0] == ["▼-3.1", "few", "2", "30", "", "yes", "", "", "", "a batch", "yes", "", ""]
    assert texts[1] == ["▲+5.2", "+0.4", "0.12", "1", "must", "", "yes, x 2", "yes", "", "", "", "means", "a table"]
    labels = [label.get_text() for label in axis.get_xticklabels()]
    assert len(labels) == 13
    assert labels[4:7] == ["client's labels", "held-out labels", "own training"]


def test_the_answer_without_prices():
    frame = pd.DataFrame([("none", "EM", -3.1, "hurts")], columns=["shift", "method", "gain", "verdict"])
    needs = pd.DataFrame(
        {"method": ["EM"], "labels": "", "training": False, "batch_norm": False, "together": "batch", "passes": 1, "sent": ""}
    ).assign(kept="", validation=False, head=False, shares=True)
    axis = answer(frame, pd.DataFrame(), needs).axes[0]
    assert axis.get_ylim() == (0.6, -0.6)
    assert [label.get_text() for label in axis.get_xticklabels()][:2] == ["none", "client's labels"]
