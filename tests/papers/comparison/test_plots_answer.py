import pandas as pd

from fedlib.papers.comparison.plots_answer import answer


def words(axis, y):
    """The texts of one row, from left to right."""
    return [text.get_text() for text in sorted(axis.texts, key=lambda text: text.get_position()[0]) if text.get_position()[1] == y]


def labels(axis):
    return [label.get_text() for label in axis.get_xticklabels()]


def test_the_answer_marks_verdicts_and_tells_ranks_and_prices():
    frame = pd.DataFrame(
        [
            ("own images", "BTFL", 5.2, "helps", "ok", 900),
            ("own images", "EM", -3.1, "hurts", "ok", 900),
            ("own, natural", "BTFL", 0.4, "undecided", "ok", 900),
            ("own, natural", "EM", 9.0, "too few images", "ok and stand-in", 90),
        ],
        columns=["shift", "method", "gain", "verdict", "status", "n"],
    )
    cost = pd.DataFrame({"method": ["BTFL", "EM"], "seconds": [0.1234, 2.0], "memory": [1.0, 30.0]})
    needs = pd.DataFrame({"method": ["EM", "BTFL"], "labels": ["", "must"], "training": [False, True], "batch_norm": False})
    needs = needs.assign(together=["batch", "one"], passes=[1, 2], sent=["", "a table"], kept=["", "means"])
    needs = needs.assign(validation=[True, False], head=[False, True], shares=[True, False])
    ranks = pd.DataFrame({"kind": ["new", "new", "all"], "method": ["BTFL", "EM", "EM"], "rank": [1.25, 2.0, 9.0], "critical": 1.4})
    places = pd.DataFrame({"kind": ["new", "new", "new", "labels"], "protocol": ["TTPFL label", "TTPFL hybrid", "mean", "BRFL"]})
    figure = answer(frame, cost, needs, ranks, places, title="T")
    # Clients with labels have no ranks here.
    told = figure.texts[-1].get_text().replace("\n", " ")
    assert "impossible there. Rank, new clients: over TTPFL label, TTPFL hybrid. Ranks that differ by less than the critical" in told
    assert told.endswith("Of the times, each is the first run's here that has it.")
    above, below = figure.axes
    assert [[label.get_text() for label in axis.get_yticklabels()] for axis in (above, below)] == [["EM †", "BTFL"]] * 2
    assert [words(above, y) for y in (0, 1)] == [["▼-3.1", "few"], ["▲+5.2", "+0.4"]]
    assert words(below, 0) == ["2", "2", "30", "", "yes", "", "", "", "a batch", "yes", "", ""]
    assert words(below, 1) == ["1.2", "0.12", "1", "required", "", "yes, x 2", "yes", "", "", "", "means", "a table"]
    assert labels(above) == ["own images", "own, natural *"]
    prices = ["s per 1,000 images", "memory (MiB)"]
    assert labels(below)[:5] == ["rank, new clients (critical 1)", *prices, "client's labels", "held-out labels"]
    assert len(labels(below)) == 12
    told = [text.get_text() for text in above.get_legend().get_texts()]
    assert told == [
        "▲ helps",
        "▼ hurts",
        "undecided",
        "few: too few images to test",
        "* on stand-ins, in whole or in part",
        "† fewer images than others",
    ]


def test_the_answer_without_ranks_and_prices():
    frame = pd.DataFrame({"shift": ["own images"], "method": "EM", "gain": -3.1, "verdict": "hurts", "status": "ok", "n": 900})
    needs = pd.DataFrame(
        {"method": ["EM"], "labels": "", "training": False, "batch_norm": False, "together": "batch", "passes": 1, "sent": ""}
    ).assign(kept="", validation=False, head=False, shares=True)
    above, below = answer(frame, pd.DataFrame(), needs, pd.DataFrame(), pd.DataFrame()).axes
    assert (above.get_ylim(), below.get_ylim()) == ((0.6, -0.6),) * 2
    assert (labels(above), labels(below)[0]) == (["own images"], "client's labels")
    assert [text.get_text() for text in above.get_legend().get_texts()] == ["▲ helps", "▼ hurts"]
