from dataclasses import replace

import numpy as np
import pytest
import torch

from fedlib.adapt.atp import ATPGrid
from fedlib.core import Recipe
from fedlib.experiment import run
from fedlib.papers.atp import settings as atp
from fedlib.papers.atp import studies as atp_studies
from fedlib.papers.atp.recipes import FEDAVG
from fedlib.published import cells, claims_of
from fedlib.published.ledger import PROVENANCE
from tests.papers.atp.test_settings import parameters


@pytest.fixture(scope="module")
def p(tmp_path_factory):
    """Ten clients, two rounds of everything; all studies share one cache."""
    return parameters(
        clients=10,
        rounds=2,
        targets=0,
        costly_samples=100,
        rate_rounds=2,
        rate_lr=0.1,
        images=600,
        cache=str(tmp_path_factory.mktemp("cache")),
    )


def complete(figure, frame):
    """Whether a figure's frame has the columns that the claims read."""
    return set(claims_of("atp").FIGURE_COLUMNS[figure]) | set(PROVENANCE) <= set(frame.columns)


@pytest.mark.slow
def test_rates_of_one_shift_serve_the_model_of_another(p):
    measured, rows = atp_studies.cross_shift(p)
    table = atp.study("T3", measured, rows)
    assert table["mean"].notna().all()
    own = {s.label: atp_studies.learned(p, [s])[s.label, 0]["shared.rates"] for s in p.settings()}
    given = atp_studies.with_rates(p, own["label shift"]).adapt
    torch.testing.assert_close(torch.tensor(given.rates, dtype=torch.float32), own["label shift"], rtol=0, atol=0)


def test_matched_rates_are_those_of_the_method_itself(p):
    measured, _ = atp_studies.cross_shift(p)
    matched = measured[measured["setting"].str.removeprefix("train=") == measured["column"].str.removeprefix("test_")]
    usual = atp.average(atp.measure(p, "cifar10", ["ATP-batch"]))
    assert matched.set_index("column")["mean"].tolist() == usual["mean"].tolist()


@pytest.mark.slow
def test_ablations_and_other_trainings_fill_their_tables(p):
    for name, study in (("T4", atp_studies.ablation), ("T7", atp_studies.global_training)):
        table = atp.study(name, *study(p))
        assert table["mean"].notna().all()
        assert set(table["run_dataset"]) == {"digits"}


@pytest.mark.slow
def test_outdated_rates_meet_later_models(p):
    measured, rows = atp_studies.outdated(p)
    assert atp.study("T6", measured, rows)["mean"].notna().all()
    assert sorted(rows["round"].unique()) == [3, 4, 5, 6, 7]
    first = measured[(measured["setting"] == "+0 rounds") & (measured["method"] == "ATP-batch")]
    hybrid = atp.average(atp.measure(p, "cifar10", ["ATP-batch"]))
    assert first["mean"].item() == hybrid.set_index("setting").loc["hybrid shift", "mean"]


def test_learned_rates_by_group_are_means_of_modules(p):
    frame, members = atp_studies.rates_by_group(p), atp_studies.groups(p)
    assert complete("F4", frame)
    single = frame[(frame["grouping"] == "module") & (frame["setting"] == "label shift")].set_index("modules")["mean"]
    for grouping in ("block", "type"):
        groups = frame[(frame["grouping"] == grouping) & (frame["setting"] == "label shift")].set_index("modules")["mean"]
        assert set(groups.index) == set(members[grouping])
        for name, value in groups.items():
            assert value == pytest.approx(single[members.loc[members[grouping] == name, "name"]].mean(), rel=1e-5)


def test_module_sets_are_those_of_the_published_code(p, monkeypatch):
    """Blocks and all of batch norm move with their running statistics, whose rate is the one that is varied."""
    monkeypatch.setattr(atp_studies, "MOVES", {False: (0.2,), True: (-0.1, 0.1)})
    used = []
    monkeypatch.setattr(atp_studies, "ATPGrid", lambda rates, size: used.extend(rates) or ATPGrid(rates, size))
    frame = atp_studies.module_sets(p)
    assert complete("F3", frame)
    members = atp_studies.groups(p)
    statistic = members["type"].str.startswith("running")
    rates = {tuple(np.round(vector, 6)) for vector in used}
    assert tuple(np.where(members["type"] == "running mean", 0.1, 0)) in rates
    assert tuple(np.where(members["type"] == "convolution", 0.2, 0)) in rates
    for group in (members["block"].eq("block1"), statistic | members["type"].str.startswith("norm")):
        assert tuple(np.where(group & statistic, -0.1, np.where(group, atp_studies.BESIDE, 0))) in rates
    assert tuple(np.where(members["block"].eq("head"), 0.2, 0)) in rates
    assert "all BN" in set(frame["modules"])
    assert frame[frame["grouping"] == "none"]["setting"].tolist() == ["feature shift", "label shift"]
    assert len(frame) == 2 * (1 + 7 + 2 * 4 + 2 * 4 + 1)


def test_module_sets_agree_with_one_recipe_per_rate(p, monkeypatch):
    monkeypatch.setattr(atp_studies, "MOVES", {False: (0.1,), True: (-0.3,)})
    frame = atp_studies.module_sets(p)
    members = atp_studies.groups(p)["type"].eq("running mean").astype(float)
    recipes = {"NoAdapt": Recipe(FEDAVG), "moved": atp_studies.with_rates(p, -0.3 * members)}
    rows = run(p.settings()[:2], recipes, [0], request=p.final(), **p.execution())
    expected = atp.average(rows).set_index(["method", "setting"])["mean"]
    for setting in ("feature shift", "label shift"):
        points = frame[frame["setting"] == setting].set_index("modules")["mean"]
        assert points["none"] == pytest.approx(expected["NoAdapt", setting])
        assert points["running mean"] == pytest.approx(expected["moved", setting])


def test_sizes_cover_cohorts_and_batches_up_to_the_stream(p):
    frame = atp_studies.sizes(p)
    assert complete("F5", frame)
    assert sorted(frame.loc[frame["column"] == "cohort", "size"].unique()) == [1, 2, 4, 8]
    shortest = min(len(c.tests["test"][0]) for c in p.settings()[-1].protocol.build(0).clients if not c.source)
    assert frame.loc[frame["column"] == "batch", "size"].max() == max(b for b in atp_studies.BATCHES if b <= shortest)
    plain = frame[frame["method"] == "NoAdapt"]
    assert plain["mean"].nunique() == 1
    assert not frame.duplicated(["column", "size", "method"]).any()


def test_loss_curves_start_without_adaptation(p):
    frame = atp_studies.loss_curves(p)
    assert complete("F8", frame)
    assert set(frame.loc[frame["column"] == "train", "round"]) == {1, 2}
    assert set(frame.loc[frame["column"] == "test", "round"]) == {0, 1, 2}
    start = frame[(frame["column"] == "test") & (frame["round"] == 0)]["mean"]
    plain = atp.average(atp.measure(p, "cifar10", ["NoAdapt"]), value="loss").set_index("setting")["mean"]
    assert start.tolist() == pytest.approx([plain["hybrid shift"]] * 4)


def test_loss_curves_have_every_round(p):
    longer = replace(p, rate_rounds=5)
    frame = atp_studies.loss_curves(longer)
    largest = frame[(frame["column"] == "test") & (frame["cohort"] == 8)].set_index("round")["mean"]
    assert largest.index.tolist() == [0, 1, 2, 3, 4, 5]
    setting, rates = p.settings()[-1], replace(longer.rates("cifar10"), cohort=8)
    history = atp_studies.learned(longer, [setting], rates)[setting.label, 0]["shared.history"]
    rows = run([setting], {"third": atp_studies.with_rates(p, history[3])}, [0], request=p.final(), **p.execution())
    assert largest[3] == pytest.approx(atp.average(rows, value="loss")["mean"].item(), rel=1e-6)


def test_means_over_models_learn_the_rates_of_each(p):
    both = replace(p, last_rounds=2)
    cells = atp_studies.cross_shift(both)[0]
    matched = cells[cells["setting"].str.removeprefix("train=") == cells["column"].str.removeprefix("test_")]
    usual = atp.average(atp.measure(both, "cifar10", ["ATP-batch"]))
    assert matched.set_index("column")["mean"].tolist() == usual["mean"].tolist()
    single = atp.average(atp.measure(p, "cifar10", ["ATP-batch"]))
    assert usual["mean"].tolist() != single["mean"].tolist()


@pytest.mark.parametrize("methods", [["Tent"], ["NoAdapt"], ["ATP-online"]])
def test_studies_run_with_one_method(p, methods):
    few = replace(p, methods=methods)
    for name, study in (("T3", atp_studies.cross_shift), ("T4", atp_studies.ablation), ("T6", atp_studies.outdated)):
        table = atp.study(name, *study(few))
        ran = set(table.loc[table["mean"].notna(), "method"])
        assert ran <= set(methods)
        assert table.loc[table["mean"].isna(), "status"].str.contains("parameter methods").all()


def test_pictures_show_every_kind_at_five_severities(p):
    pictures, changes = atp_studies.corrupted_pictures(p.settings()[1].protocol.build(0))
    assert len(pictures) == 19
    assert {shown.shape for shown in pictures.values()} == {(5, 1, 16, 16)}
    assert len(changes) == 95


def test_communication_counts(p):
    row = atp_studies.communication(p).iloc[0]
    assert row["modules"] == 23
    assert row["rounds"] == 2
    assert row["parameters"] > 80_000


def test_printed_names_are_those_of_the_tables():
    assert {f"+{k} rounds" for k in atp_studies.LATER} == set(cells("atp", "T6")["setting"])
    assert set(atp_studies.TRAIN) == set(cells("atp", "T7")["setting"])
