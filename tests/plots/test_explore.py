import base64
import io
from dataclasses import replace

import matplotlib

matplotlib.use("Agg")
import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex
from PIL import Image

from fedlib.core import Output, Samples
from fedlib.explore import Cases, Seen
from fedlib.plots import explore
from fedlib.plots.style import BLUE, GREY, ORANGE
from tests.test_explore import RECIPES, SETTING, Parted


@pytest.fixture(autouse=True)
def close():
    before = plt.get_fignums()
    yield
    assert plt.get_fignums() == before, "a picture was left open"


@pytest.fixture
def titles(monkeypatch):
    """First lines of the pictures drawn, in order."""
    drawn, original = [], explore.heading
    monkeypatch.setattr(explore, "heading", lambda figure, title: (drawn.append(title.split("\n")[0]), original(figure, title)))
    return drawn


@pytest.fixture
def cases(tmp_path):
    setting = replace(SETTING, protocol=Parted())
    recipes = {name: RECIPES[name] for name in ("FedAvg", "FedTHE")}
    return Cases([setting, replace(setting, label="there")], recipes, [0], cache=str(tmp_path))


def seen(scores, label=1, classes=3, channels=1, **extras):
    """One image whose stages ``scores`` gives, by name."""
    image = torch.arange(channels * 4, dtype=torch.uint8).view(1, channels, 2, 2)
    stages = {name: Output(torch.tensor([values])) for name, values in scores.items()}
    last = list(stages)[-1]
    stages[last] = replace(stages[last], extras={name: torch.tensor([value]) for name, value in extras.items()})
    return Seen("here, client 0", Samples(image, torch.tensor([label])), stages, tuple(f"class {c}" for c in range(classes)))


def drawn(figure):
    plt.close(figure)
    return figure


def colours(axis):
    return [to_hex(bar.get_facecolor()) for bar in axis.patches]


def test_decisions_their_colours_and_the_weights_of_two_heads():
    heads = {"global head": [0.0, 2.0, 0.0], "personal head": [3.0, 0.0, 0.0], "FedTHE": [1.0, 1.5, 0.0]}
    figure = drawn(explore.picture(seen(heads, weight=0.75), 0, "digits, a stand-in"))
    picture, *panels = figure.axes
    assert picture.get_title() == "true label: class 1"
    assert picture.images[0].get_interpolation() == "nearest"
    np.testing.assert_array_equal(picture.images[0].get_array(), [[0, 1], [2, 3]])
    assert [axis.get_title() for axis in panels] == [
        "global head, e = 0.75\npredicts class 1: right",
        "personal head, 1 - e = 0.25\npredicts class 0: wrong",
        "FedTHE\npredicts class 1: right",
    ]
    assert colours(panels[0]) == [GREY.lower(), BLUE.lower(), GREY.lower()]
    assert colours(panels[1]) == [ORANGE.lower(), GREY.lower(), GREY.lower()]
    np.testing.assert_allclose([bar.get_width() for bar in panels[1].patches], torch.tensor(heads["personal head"]).softmax(0), rtol=1e-6)
    assert figure.get_suptitle() == "here, client 0, image 1 of 1: FedTHE predicts class 1: right"
    assert figure.texts[-1].get_text() == "digits, a stand-in"


def test_of_many_classes_the_true_and_the_decided_ones_are_among_those_shown():
    scores = {"received model": [float(c) for c in range(30)], "ATP": [float(c == 5) for c in range(30)]}
    figure = drawn(explore.picture(seen(scores, label=2, classes=30, channels=3), 0))
    shown = [text.get_text() for text in figure.axes[1].get_yticklabels()]
    assert len(shown) == 10
    assert {"class 2", "class 5", "class 29", "class 28"} <= set(shown)
    assert figure.axes[0].images[0].get_array().shape == (2, 2, 3)


def test_the_picture_follows_every_control(cases, titles):
    box = explore.controls(cases, "digits")
    choices, view = box.children
    control = {c.description: c for c in choices.children}
    assert list(control) == ["setting", "method", "column", "client", "image"]
    assert titles == [titles[0]]
    assert titles[0].startswith("here, seed 0, original, client 0, image 1 of 7: FedTHE predicts")
    for name, value, beginning in (
        ("image", 5, "here, seed 0, original, client 0, image 5 of 7: FedTHE"),
        ("client", 1, "here, seed 0, original, client 1, image 5 of 7: FedTHE"),
        ("method", "FedAvg", "here, seed 0, original, client 1, image 5 of 7: FedAvg"),
        ("setting", "there", "there, seed 0, original, client 1, image 5 of 7: FedAvg"),
        ("image", 7, "there, seed 0, original, client 1, image 7 of 7: FedAvg"),
        ("column", "corrupted", "there, seed 0, corrupted, client 1, image 6 of 6: FedAvg"),
        ("client", 2, "there, seed 0, corrupted, client 2 (fog 3), image 6 of 6: FedAvg"),
    ):
        before = view.value
        control[name].value = value
        assert titles[-1].startswith(beginning)
        assert view.value != before


def test_the_picture_is_shown_as_wide_as_it_was_drawn(cases):
    """A vertical box stretches its children to the page's width, which made a picture of two panels fill the screen."""
    view = explore.controls(cases).children[-1]
    assert view.layout.align_self == "flex-start"
    assert view.layout.max_width == "100%"
    with Image.open(io.BytesIO(view.value)) as shown:
        assert shown.width < 1100


def test_without_a_kernel_the_first_picture_stands_in_for_the_controls(cases, titles, monkeypatch):
    shown = []
    monkeypatch.setattr(explore, "display", lambda bundle, raw: shown.append(bundle))
    explore.show(cases, "digits")
    (bundle,) = shown
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    assert len(titles) == 1


def test_nothing_to_explore(cases, capsys):
    explore.show(replace(cases, recipes={}))
    assert capsys.readouterr().out == "not run: left out by the parameters of this run\n"
