from dataclasses import replace

import numpy as np
import pytest

from fedlib.adapt.atp import ATPGrid
from fedlib.core import Recipe
from fedlib.experiment import look, run
from fedlib.papers.atp import figures, tables
from fedlib.papers.atp.recipes import FEDAVG
from fedlib.published import claims_of
from fedlib.published.ledger import PROVENANCE
from tests.papers.atp.test_settings import study


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """Ten clients, two rounds of everything; all studies share one cache."""
    short = {"clients": 10, "rounds": 2, "targets": 0, "costly_samples": 100, "rate_rounds": 2, "rate_lr": 0.1, "images": 600}
    return short | {"cache": str(tmp_path_factory.mktemp("cache"))}


def plain(study, value="accuracy"):
    """What no adaptation reaches, by setting."""
    rows, _ = study.rows([tables.whole(study.p, "cifar10", names=("NoAdapt",))])
    return tables.average(rows, value=value).set_index("setting")["mean"]


def complete(figure, frame):
    """Whether a figure's frame has the columns that the claims read."""
    return set(claims_of("atp").FIGURE_COLUMNS[figure]) | set(PROVENANCE) <= set(frame.columns)


def test_learned_rates_by_group_are_means_of_modules(given):
    found = study(given)
    frame, members = found.frame("F4"), figures.groups(found.p)
    assert complete("F4", frame)
    single = frame[(frame["grouping"] == "module") & (frame["setting"] == "label shift")].set_index("modules")["mean"]
    for grouping in ("block", "type"):
        groups = frame[(frame["grouping"] == grouping) & (frame["setting"] == "label shift")].set_index("modules")["mean"]
        assert set(groups.index) == set(members[grouping])
        for name, value in groups.items():
            assert value == pytest.approx(single[members.loc[members[grouping] == name, "name"]].mean(), rel=1e-5)


def test_module_sets_are_those_of_the_published_code(given, monkeypatch):
    """Blocks and all of batch norm move with their running statistics, whose rate is the one that is varied."""
    monkeypatch.setattr(figures, "MOVES", {False: (0.2,), True: (-0.1, 0.1)})
    found = study(given)
    frame = found.frame("F3")
    assert complete("F3", frame)
    members = figures.groups(found.p)
    statistic = members["type"].str.startswith("running")
    used = found.blocks("F3")[0].recipes["ATP-batch"].adapt.rates
    rates = {tuple(np.round(vector, 6)) for vector in used}
    assert tuple(np.where(members["type"] == "running mean", 0.1, 0)) in rates
    assert tuple(np.where(members["type"] == "convolution", 0.2, 0)) in rates
    for group in (members["block"].eq("block1"), statistic | members["type"].str.startswith("norm")):
        assert tuple(np.where(group & statistic, -0.1, np.where(group, figures.BESIDE, 0))) in rates
    assert tuple(np.where(members["block"].eq("head"), 0.2, 0)) in rates
    assert "all BN" in set(frame["modules"])
    assert frame[frame["grouping"] == "none"]["setting"].tolist() == ["feature shift", "label shift"]
    assert len(frame) == 2 * (1 + 7 + 2 * 4 + 2 * 4 + 1)


def test_module_sets_agree_with_one_recipe_per_rate(given, monkeypatch):
    monkeypatch.setattr(figures, "MOVES", {False: (0.1,), True: (-0.3,)})
    found = study(given)
    p, frame = found.p, found.frame("F3")
    members = figures.groups(p)["type"].eq("running mean").astype(float)
    recipes = {"NoAdapt": Recipe(FEDAVG), "moved": tables.with_rates(p, -0.3 * members)}
    rows = run(p.settings()[:2], recipes, [0], request=p.request(), **p.execution())
    expected = tables.average(rows).set_index(["method", "setting"])["mean"]
    for setting in ("feature shift", "label shift"):
        points = frame[frame["setting"] == setting].set_index("modules")["mean"]
        assert points["none"] == pytest.approx(expected["NoAdapt", setting])
        assert points["running mean"] == pytest.approx(expected["moved", setting])


def test_a_vector_has_the_row_that_it_would_have_alone(given):
    """Several models of a grid: each row is what the scores of that vector, client and seed give by themselves."""
    found = study(given)
    (block,) = figures.of_vectors(found.p, found.p.settings()[-1:], {"two": Recipe(FEDAVG, None, ATPGrid(((0.0,) * 23, (0.1,) * 23), 20))})
    rows = figures.each_vector(found.rows([block])[0])
    where = {"request": found.p.request(**block.request), "cache": found.p.cache, "root": found.p.data_root, "engine": found.p.engine()}
    benchmark, outputs = look(block.settings[0], block.recipes["two"], 0, "test", **where)
    assert len(rows) == 2 * len(outputs)
    for (k, _), output in outputs.items():
        labels = benchmark.clients[k].tests["test"][0].labels[: output.scores.shape[1]]
        right = 100 * (output.scores.argmax(-1) == labels).double().mean(-1)
        own = rows[rows["client"] == benchmark.clients[k].id].sort_values("vector")
        assert own["accuracy"].tolist() == pytest.approx(right.tolist())
        losses = [-scores.log_softmax(-1)[range(len(labels)), labels].mean().item() for scores in output.scores]
        assert own["loss"].tolist() == pytest.approx(losses, rel=1e-5)


def test_sizes_cover_cohorts_and_batches_up_to_the_stream(given):
    found = study(given)
    frame = found.frame("F5")
    assert complete("F5", frame)
    assert sorted(frame.loc[frame["column"] == "cohort", "size"].unique()) == [1, 2, 4, 8]
    shortest = min(len(c.tests["test"][0]) for c in found.p.settings()[-1].protocol.build(0).clients if not c.source)
    assert frame.loc[frame["column"] == "batch", "size"].max() == max(b for b in figures.BATCHES if b <= shortest)
    reference = frame[frame["method"] == "NoAdapt"]
    assert reference["mean"].nunique() == 1
    assert not frame.duplicated(["column", "size", "method"]).any()


def test_loss_curves_start_without_adaptation(given):
    found = study(given)
    frame = found.frame("F8")
    assert complete("F8", frame)
    assert set(frame.loc[frame["column"] == "train", "round"]) == {1, 2}
    assert set(frame.loc[frame["column"] == "test", "round"]) == {0, 1, 2}
    start = frame[(frame["column"] == "test") & (frame["round"] == 0)]["mean"]
    assert start.tolist() == pytest.approx([plain(found, "loss")["hybrid shift"]] * 4)


def test_loss_curves_have_every_round(given):
    longer = study(given, rate_rounds=5)
    p, frame = longer.p, longer.frame("F8")
    largest = frame[(frame["column"] == "test") & (frame["cohort"] == 8)].set_index("round")["mean"]
    assert largest.index.tolist() == [0, 1, 2, 3, 4, 5]
    setting, rates = p.settings()[-1], replace(p.rates("cifar10"), cohort=8)
    history = tables.learned(p, [setting], rates)[setting.label, 0]["shared.history"]
    rows = run([setting], {"third": tables.with_rates(p, history[3])}, [0], request=p.request(), **p.execution())
    assert largest[3] == pytest.approx(tables.average(rows, value="loss")["mean"].item(), rel=1e-6)


def test_pictures_show_every_kind_at_five_severities(given):
    found = study(given)
    pictures, changes = figures.pictures(found.benchmark), found.frame("F7")
    assert pictures.pop("clean").shape == (1, 1, 16, 16)
    assert len(pictures) == 19
    assert {shown.shape for shown in pictures.values()} == {(5, 1, 16, 16)}
    assert len(changes) == 95
    assert (changes.groupby("kind")["mean"].max() > 0).all()


def test_communication_counts(given):
    s = study(given)
    row = s.frame("A16").iloc[0]
    assert "parameters" in s.show("A16")._repr_html_()
    assert row["modules"] == 23
    assert row["rounds"] == 2
    assert row["parameters"] > 80_000


def test_figure_2_is_table_1_on_the_images_that_all_methods_saw(given):
    found = study(given, methods=["NoAdapt", "MEMO", "ATP-batch"], costly_samples=10)
    points, table = found.frame("F2"), found.frame("T1")
    assert complete("F2", points)
    assert points[["method", "setting"]].to_numpy().tolist() == [
        [method, f"{shift} shift"] for method in ("NoAdapt", "MEMO", "ATP-batch") for shift in ("feature", "label")
    ]
    assert points["n"].nunique() == 1
    memo = table[table["method"] == "MEMO"].set_index("setting")["mean"]
    assert points[points["method"] == "MEMO"].set_index("setting")["mean"].tolist() == memo[["feature shift", "label shift"]].tolist()
