import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd

from fedlib.plots.agreement import agreement
from fedlib.plots.style import SHIFTS


def test_colours_are_the_tests_stars_the_papers_own_and_hollow_is_a_stand_in():
    cells = [(50, 52, "ooc", True, False), (60, 61, "ooc", False, False), (40, 20, "elsewhere", False, True)]
    frame = pd.DataFrame(cells, columns=["published_mean", "mean", "test", "own", "stand_in"])
    figure = agreement({"FedTHE T1\nhalf a line": frame, "again": frame}, close=1.5)
    assert len(figure.axes) == 2
    axis = figure.axes[0]
    assert (axis.get_title(), axis.texts[0].get_text()) == ("FedTHE T1", "half a line")
    plain, star, hollow = (
        next(dots for dots in axis.collections if [*map(tuple, dots.get_offsets())] == [at]) for at in ((60, 61), (50, 52), (40, 20))
    )
    assert plain.get_sizes()[0] < star.get_sizes()[0]
    assert mpl.colors.to_hex(plain.get_facecolor()[0]) == SHIFTS["ooc"].lower()
    assert len(hollow.get_facecolor()) == 0
    assert axis.get_xlim() == axis.get_ylim() == (17, 64)
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["ooc", "elsewhere"]
    plt.close(figure)
