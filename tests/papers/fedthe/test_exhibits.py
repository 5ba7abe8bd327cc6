"""What stands beside FedTHE's results, and what can be looked at image by image."""

import pytest

from fedlib import study as studies
from fedlib.papers.fedthe.recipes import RECIPES
from fedlib.plots import explore
from tests.papers.fedthe.fedthe_cases import made, study


@pytest.fixture(autouse=True)
def no_run(monkeypatch):
    monkeypatch.setattr(studies, "run", made)


def facts(given, name):
    return given.about(given.paper.exhibit(name))


def test_facts_beside_a_result():
    given = study()
    first, last = "digits (stand-in), cnn, 8 clients", "1 seed, fixed split"
    costly = "per-sample methods on the first image of a stream, profile smoke"
    assert facts(given, "T11") == f"{first}, training parts cut to 0.75/0.5, 1 round x 2 epochs, {last}, {costly}"
    assert facts(given, "F8") == f"{first}, 3 rounds x 2 epochs, {last}, all methods on the first image of a stream, profile smoke"
    assert facts(given, "H26") == f"{first}, 3 rounds x 2 epochs, {last}, profile smoke"


def test_facts_beside_a_result_on_real_images():
    data = "CIFAR-10 (JPEG) (natural, mixture: stand-in)"
    expected = f"{data}, cnn, 20 clients, 100 rounds x 5 epochs, 3 seeds, fixed split, profile paper"
    assert facts(study("paper", dataset="cifar10_jpeg"), "T1") == expected


def test_images_are_explored_beginning_with_a_method_and_without_oracles(monkeypatch):
    shown = []
    monkeypatch.setattr(explore, "show", lambda cases, about: shown.append((cases, about)))
    given = study()
    given.explore("T1", first="FedTHE")
    [(cases, about)] = shown
    assert list(cases.recipes)[-1] == "FedTHE"
    assert set(cases.recipes) == {*RECIPES, "APFL (paper)", "Ditto (prox)"}
    assert cases.request.costly_samples == given.p.costly_samples
    assert about == facts(given, "T1")
