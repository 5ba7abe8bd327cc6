import pytest

from fedlib.papers.atp import toy as atp_toy


@pytest.mark.parametrize(("rate", "expected"), [(1, 0.7148), (0.5, 0.8234), (0, 0.8944), (-0.5, 0.9265), (-1, 0.9281)])
def test_closed_form(rate, expected):
    assert round(atp_toy.accuracy(rate), 4) == expected


def test_best_rate():
    assert atp_toy.best_rate() == pytest.approx(-0.7725, abs=5e-5)
    assert round(atp_toy.accuracy(atp_toy.best_rate()), 4) == 0.9304


def test_drawn_samples_agree_with_the_closed_form():
    frame = atp_toy.histograms(n=100_000)
    drawn = frame[frame["panel"] == "test"].groupby("alpha")["accuracy"].first()
    assert list(drawn.sort_index().index) == sorted(atp_toy.RATES)
    for rate, accuracy in drawn.items():
        assert accuracy == pytest.approx(100 * atp_toy.accuracy(rate), abs=0.4)
    for _, panel in frame.groupby(["panel", "alpha"]):
        width = panel["z"].diff().abs().iloc[1]
        assert panel["density"].sum() * width == pytest.approx(1, abs=0.01)
