import matplotlib

matplotlib.use("Agg")
import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt

from fedlib.plots.style import LOOKS, OWN, SHIFTS, heading, look, unsigned, use
from fedlib.published import PAPERS, cells


@pytest.fixture(autouse=True)
def default_style():
    with mpl.rc_context():
        yield


def test_no_two_methods_look_alike():
    assert len(set(LOOKS.values())) == len(LOOKS)


def test_every_published_method_has_a_look():
    names = {m for paper in PAPERS for m in cells(paper)["method"]} - {"-"}
    assert not [m for m in names if look(m).colour in OWN]


def test_variants_look_like_their_method():
    assert look("FedTHE:-BSM") == look("FedTHE")


def test_methods_of_ones_own_are_told_apart(monkeypatch):
    """By colour, as long as there are colours, and by line and marker beyond; a name keeps its look."""
    monkeypatch.setattr("fedlib.plots.style._TAKEN", {})
    names = [f"mine {i}" for i in range(12)]
    looks = [look(name) for name in names]
    assert len(set(looks)) == 12
    assert len({each.colour for each in looks}) == len(OWN)
    assert not {each.colour for each in looks} & {each.colour for each in LOOKS.values()}
    assert [look(name) for name in reversed(names)] == looks[::-1]


def test_shifts_of_one_benchmark_differ():
    five = [SHIFTS[c] for c in ("original", "corrupted", "ooc", "natural", "mixture")]
    assert len(set(five)) == 5


@pytest.mark.parametrize("width", [3, 6, 12])
def test_a_long_heading_stays_within_the_figure(width):
    use()
    figure = plt.figure(figsize=(width, 3), layout="constrained")
    figure.subplots()
    heading(figure, "Figure 14: accuracy of every method on every test stream\n" + "data, schedule, seeds and split, " * 6)
    figure.canvas.draw()
    texts = [figure._suptitle, *figure.texts]
    assert {text.get_text().replace("\n", " ")[:9] for text in texts} == {"Figure 14", "data, sch"}
    for text in texts:
        box = text.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width


def test_every_line_of_facts_begins_anew():
    figure = plt.figure(figsize=(8, 3))
    heading(figure, "Figure 1\none run\nanother run")
    assert [text.get_text() for text in figure.texts if text is not figure._suptitle] == ["one run\nanother run"]


def test_a_heading_without_facts_has_no_small_type():
    figure = plt.figure()
    heading(figure, "Figure 1")
    assert [text.get_text() for text in figure.texts if text is not figure._suptitle] == []


@pytest.mark.parametrize(("text", "shown"), [("-0", "0"), ("+0.0", "0.0"), ("-0.1", "-0.1"), ("+10", "+10"), ("0", "0")])
def test_a_zero_has_no_sign(text, shown):
    assert unsigned(text) == shown
