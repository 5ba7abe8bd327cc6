from dataclasses import fields

import pytest
import torch

from fedlib.adapt.fedthe import FedTHE
from fedlib.papers.fedthe.recipes import ABLATIONS, METHODS, RECIPES, VARIANTS, interpolations
from fedlib.published import cells
from fedlib.states import slice_of
from tests import tiny

ALL = METHODS | interpolations("heads", 3) | {f"models {name}": r for name, r in interpolations("models", 3).items()}


def published(table):
    return list(cells("fedthe", table)["method"].drop_duplicates())


def test_names_and_order_are_the_published_ones():
    """Rows 15 and 16 stand in the middle of Table 13."""
    assert list(RECIPES) == published("T1")
    assert list(ABLATIONS)[:14] == published("T3")
    assert set(ABLATIONS) == set(published("T13"))


def test_four_trainings_serve_them_all():
    assert len({recipe.train for recipe in ALL.values()}) == 4


def test_a_name_has_one_meaning():
    assert all(RECIPES[name] == ABLATIONS[name] for name in RECIPES.keys() & ABLATIONS.keys())
    assert METHODS == RECIPES | ABLATIONS | VARIANTS
    assert len({(r.train, r.personalize, r.adapt) for r in METHODS.values()}) == len(METHODS)


def test_variants_differ_from_the_published_code_in_what_their_names_say():
    """And in nothing else: the same stages with one field or two changed."""
    named = {name: RECIPES.get(name.split(" (")[0], ABLATIONS.get(name.split(" (")[0])) for name in VARIANTS}
    changed = {}
    for name, published in named.items():
        for ours, theirs in ((VARIANTS[name].personalize, published.personalize), (VARIANTS[name].adapt, published.adapt)):
            assert type(ours) is type(theirs)
            for field in fields(ours):
                if getattr(ours, field.name) != getattr(theirs, field.name):
                    changed.setdefault(name, {})[field.name] = getattr(ours, field.name)
    assert changed == {
        "APFL (paper)": {"alpha_role": "personal"},
        "Ditto (prox)": {"prox": True},
        "kNN-Per (oracle)": {"sides": True},
        "MEMO-P (paper)": {"steps": 3, "lr": 5e-4},
        "TSA (augmented)": {"augment": True},
        "FedTHE (earlier code)": {"compounded": True},
        "FedTHE+ (earlier code)": {"ensemble": FedTHE(compounded=True)},
    }
    assert [name for name, recipe in METHODS.items() if recipe.oracle] == ["kNN-Per (oracle)"]


def test_linear_probing_then_fine_tuning_takes_as_many_steps_as_memo():
    assert (ABLATIONS["MEMO-P:+LPFT"].adapt.head_steps, ABLATIONS["MEMO-P:+LPFT"].adapt.steps) == (1, 1)
    assert RECIPES["MEMO-P"].adapt.steps == 2


def test_t3a_leaves_the_bias_out_of_the_first_supports():
    assert not RECIPES["T3A"].adapt.initial_bias


@pytest.fixture(scope="module")
def trained():
    """The state after one round of every training method, with the task and clients."""
    task, clients = tiny.task("convolution", dtype=torch.float32), tiny.clients()
    result = {}
    for method in {recipe.train for recipe in ALL.values()}:
        server = method.init(task, clients)
        server = method.aggregate(task, server, method.update(task, server, clients, 1), clients, 1)
        result[method] = server["model"]
    return task, clients, result


@pytest.mark.parametrize("name", ALL)
def test_every_recipe_runs(trained, name):
    """Two rounds of the personal side, then every stream; personal tensors have a leading client dimension."""
    task, clients, states = trained
    recipe = ALL[name]
    state, personal = states[recipe.train], {}
    if recipe.personalize:
        personal = recipe.personalize.init(task, clients)
        for t in (1, 2):
            personal = recipe.personalize.fit(task, [state] * 3, clients, personal, t)
            assert all(n.startswith("shared.") or len(tensor) == 3 for n, tensor in personal.items())
    for k, client in enumerate(clients):
        stream = client.stream("corrupted", 1, limit=2)
        scores = recipe.adapt.run(task, state, slice_of(personal, k), stream).scores
        assert scores.shape == (2, 3)
        assert torch.isfinite(scores).all()


def test_interpolations_cover_the_unit_interval():
    assert list(interpolations("heads")) == ["e=0", *(f"e=0.{i}" for i in range(1, 10)), "e=1"]
