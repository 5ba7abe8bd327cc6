import numpy as np
import pytest
import torch

from fedlib.adapt.atp import ATP
from fedlib.papers import atp, atp_studies
from fedlib.published import cells
from fedlib.published.claims import FIGURE_COLUMNS, PROVENANCE
from tests.papers.test_atp import parameters


@pytest.fixture(scope="module")
def p(tmp_path_factory):
    """Ten clients, two rounds of everything; all studies share one cache."""
    return parameters(clients=10, rounds=2, rate_rounds=2, rate_lr=0.1, images=600, cache=str(tmp_path_factory.mktemp("cache")))


def complete(figure, frame):
    """Whether a figure's frame has the columns that the claims read."""
    return set(FIGURE_COLUMNS["atp"][figure]) | set(PROVENANCE) <= set(frame.columns)


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


@pytest.mark.slow
def test_module_sets_move_one_set_at_one_rate(p, monkeypatch):
    monkeypatch.setattr(atp_studies, "MOVES", {False: (0.1,), True: (-0.1, 0.1)})
    used = []
    monkeypatch.setattr(atp_studies, "ATP", lambda **fields: used.append(fields["rates"]) or ATP(**fields))
    frame = atp_studies.module_sets(p)
    assert complete("F3", frame)
    members = atp_studies.groups(p)
    moved = {tuple(np.flatnonzero(rates)) for rates in used}
    assert tuple(np.flatnonzero(members["type"] == "running mean")) in moved
    block = members["block"].eq("block1") & ~members["type"].str.contains("running")
    assert tuple(np.flatnonzero(block)) in moved
    assert {rate for rates in used for rate in rates} == {0.0, 0.1, -0.1}
    assert frame[frame["grouping"] == "none"]["setting"].tolist() == ["feature shift", "label shift"]
    assert len(frame) == 2 * (1 + 7 + 2 * 3 + 5)


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
