"""One change at a time: what a change touches, and against what it counts."""

from dataclasses import replace

import pytest

from fedlib.papers.comparison import causes
from fedlib.papers.comparison.causes import AS_IT_IS, STUDIES, Change, alters, changed
from tests.papers.comparison_cases import TINY, parameters
from tests.papers.comparison_cases import study as study_of


def test_changes_of_the_bench_change_it_alone():
    p = parameters(rounds=10, population=20)
    assert changed(p, AS_IT_IS) == p
    longer = changed(p, Change("", {"rounds": 3}))
    assert (longer.rounds, longer.population, longer.contrast_lr) == (30, 20, p.contrast_lr)
    assert changed(p, Change("", {"population": 0.5})).population == 10
    assert changed(replace(p, population=30), Change("", {"population": 0.5})).population == 14
    assert changed(p, Change("", {"model": "convnet_small"})).model == "convnet_small"
    norm = Change("", {"model": causes.GROUP_NORM})
    assert [changed(replace(p, model=name), norm).model for name in ("fedicon_cnn", "fedicon_cnn_small")] == [*causes.GROUP_NORM.values()]
    # No such network, no such row; nor where the rounds leave no room.
    assert changed(replace(p, model="convnet"), norm) == replace(p, model="convnet")
    short = replace(p, rounds=6, classifier_rounds=2)
    assert changed(short, Change("", {"classifier_rounds": 3})) == short


@pytest.mark.parametrize("study", STUDIES, ids=str)
def test_every_change_changes_something(study):
    """As it is first; names once; the bench or the recipe is another one."""
    changes = STUDIES[study]
    assert changes[0] == AS_IT_IS
    assert len({change.name for change in changes}) == len(changes)
    assert all(change.bench or change.recipe for change in changes[1:])
    p = parameters(profile="small")
    for change in changes[1:]:
        assert changed(p, change) != p or change.recipe


@pytest.mark.parametrize(("rate_lr", "told"), [(0.1, False), (0.02, True)])
def test_a_value_that_the_recipe_has_already_is_no_change(rate_lr, told):
    p, changes = parameters(rate_lr=rate_lr), {change.name: change for change in STUDIES["ATP-batch", "FedICON domain"]}
    recipe = p.table("FedICON domain", plain=False)["ATP-batch"]
    assert recipe.personalize.lr == rate_lr
    assert alters(p, changes["rates learned at 0.1, as published"], recipe) == told
    assert all(alters(p, changes[name], recipe) for name in ("as it is", "at 0.1, statistics alone", "3 x the rounds"))


def test_rows_count_against_no_adaptation_under_the_same_change(tmp_path, monkeypatch):
    study, names = ("FedTTA", "UPFL new clients"), ("as it is", "no step at test time", "3 x the rounds")
    monkeypatch.setattr(causes, "STUDIES", {study: tuple(change for change in STUDIES[study] if change.name in names)})
    table = study_of(**TINY | {"rounds": 4}, tables=["causes"], cache=str(tmp_path)).frame("causes").set_index("change")
    assert list(table.index) == ["as it is", "no step at test time", "3 x the rounds"]
    assert table["rounds"].tolist() == [2, 2, 6]
    assert (table["mean"] - table["without"]).tolist() == pytest.approx(table["gain"].tolist())
    assert table.loc["as it is", "without"] == table.loc["no step at test time", "without"] != table.loc["3 x the rounds", "without"]
    assert (table["low"] <= table["gain"]).all()
    assert table["p_holm"].between(0, 1).all()


def test_the_changes_of_a_study_are_one_family(monkeypatch):
    p = {"as it is": 0.01, "b": 0.04, "c": 0.03}
    monkeypatch.setattr(causes, "STUDIES", {("FedTTA", "UPFL new clients"): (AS_IT_IS, Change("b"), Change("c"))})
    monkeypatch.setattr(causes, "_row", lambda study, change, method, protocol: [{"change": change.name, "p": p[change.name]}])
    assert causes.measure(study_of(**TINY))["p_holm"].tolist() == pytest.approx([0.03, 0.06, 0.06])
