import numpy as np
import pandas as pd
import pytest

from fedlib.papers.comparison import plots_ranks


def test_places_put_the_best_first_in_one_panel_per_kind():
    made = []
    for kind, method, value in (("labels", "Tent", 60.0), ("labels", "BTFL", 10.0), ("new", "Tent", 0.0)):
        for over, width in (("clients", 5), ("clients and seeds", 20)):
            row = {"kind": kind, "method": method, "over": over, "place": value, "place_low": value - width, "place_high": value + width}
            made += [row | {"protocol": "mean", "protocols": 2}, row | {"protocol": "BRFL", "place": value + 1, "protocols": 1}]
    figure = plots_ranks.places(pd.DataFrame(made))
    first, second = figure.axes
    assert [label.get_text() for label in first.get_yticklabels()] == ["BTFL", "Tent"]
    assert [axis.get_title() for axis in figure.axes] == ["clients with labels: BRFL", "clients that are new: BRFL"]
    lines = {tuple(line.get_xdata()): line.get_linewidth() for line in first.lines if len(line.get_xdata())}
    assert lines[5, 15] > lines[-10, 30]
    assert {line.get_color() for line in first.lines if tuple(line.get_xdata()) == (-10, 30)} == {"black"}
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["95 % over clients", "95 % over clients and seeds"]
    two = pd.concat([pd.DataFrame(made), pd.DataFrame(made[1::2]).assign(protocol="BTGFL")])
    assert plots_ranks.places(two).legends[0].get_texts()[-1].get_text() == "one protocol"
    assert [label.get_text() for label in second.get_yticklabels()] == ["Tent"]


def ranked(kind, ranks, critical, friedman=0.001):
    frame = pd.DataFrame({"kind": kind, "method": list(ranks), "rank": list(ranks.values())})
    return frame.assign(blocks=9, n_methods=len(ranks), friedman=friedman, critical=critical)


@pytest.mark.parametrize(
    ("critical", "friedman", "bars"),
    [(0.9, 0.01, [(0, 1), (2, 3)]), (1.76, 0.01, [(0, 2), (1, 3)]), (0.3, 0.01, []), (9.0, 0.01, [(0, 3)]), (0.3, 0.2, [(0, 3)])],
)
def test_bars_join_what_lies_within_the_critical_difference(critical, friedman, bars):
    """Ranks 1, 1.8, 2.75, 3.5; where Friedman does not reject, one bar over all."""
    frame = ranked("new", {"FedAvg": 3.5, "T3A": 1.0, "Tent": 2.75, "EM": 1.8}, critical, friedman)
    assert plots_ranks._cliques(frame) == bars
    figure = plots_ranks.critical_differences(frame)
    drawn = [line for line in figure.axes[0].lines if line.get_linewidth() == 3]
    ranks = np.sort(frame["rank"])
    assert [tuple(np.round(line.get_xdata(), 2)) for line in drawn] == [
        (round(ranks[a] - 0.06, 2), round(ranks[b] + 0.06, 2)) for a, b in bars
    ]


def test_one_diagram_per_kind_best_at_the_right():
    both = pd.concat(
        [ranked("labels", {"BTFL": 1.0, "T3A": 2.0, "EM": 3.0}, 1.2), ranked("all", {"T3A": 1.0, "FedAvg": 2.0, "EM": 3.0}, 1.2)]
    )
    figure = plots_ranks.critical_differences(both)
    assert [axis.get_title().split(":")[0] for axis in figure.axes] == ["clients with labels", "all clients, methods that run everywhere"]
    assert all(axis.xaxis_inverted() for axis in figure.axes)
    assert "BTFL (1.0)" in [text.get_text() for text in figure.axes[0].texts]
    assert figure.texts[-1].get_text().startswith("Black bars join methods that the test cannot tell apart")
