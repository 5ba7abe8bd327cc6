import numpy as np
import pandas as pd
import pytest

from fedlib.papers.btfl import plots as btfl

COLUMNS = ("original_ind", "shifted_ind", "average")


def test_histograms_show_proportions():
    centres = np.linspace(0.05, 0.95, 10)
    frame = pd.concat([pd.DataFrame({"column": c, "weight": centres, "density": np.eye(10)[i] * 10}) for i, c in enumerate(COLUMNS)])
    figure = btfl.histograms(frame, xlabel="weight", title="all")
    assert [axis.get_title().replace("average of\nthe first four", "average") for axis in figure.axes] == list(COLUMNS)
    for i, axis in enumerate(figure.axes):
        assert [bar.get_height() for bar in axis.patches] == pytest.approx(np.eye(10)[i].tolist())
        assert axis.patches[i].get_x() == pytest.approx(i / 10)


def test_differences_are_to_the_base():
    frame = pd.DataFrame(
        [
            {"method": m, "column": c, "mean": v + 10 * i}
            for m, v in {"code": 50.0, "other": 53.5, "worse": 48.0}.items()
            for i, c in enumerate("ab")
        ]
    )
    figure = btfl.differences(frame, base="code")
    axis = figure.axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["other", "worse"]
    assert [text.get_text() for text in axis.texts] == ["+3.5", "+3.5", "-2.0", "-2.0"]
