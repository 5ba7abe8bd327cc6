"""BTFL's Table 3: what is timed in which form, and how it is filed."""

import pandas as pd
import pytest

from fedlib.adapt.t3a import T3A
from fedlib.core import Recipe
from fedlib.papers.btfl import settings as btfl
from fedlib.papers.btfl import times as btfl_times
from fedlib.papers.fedthe.recipes import CE
from fedlib.results import check_table
from fedlib.stages.boundary import MethodError
from tests.papers.btfl.test_exhibits import study
from tests.papers.btfl.test_settings import parameters


@pytest.fixture
def measured():
    made = []
    for model, run_model in btfl_times.NETWORKS.items():
        for method, seconds in {"TTT": 30.0, "MEMO-P": 90.0, "FedTHE": 20.0, "BTFL": 10.0}.items():
            row = {"model": model, "run_model": run_model, "method": method, "std": 0.1}
            made.append(row | {"mean": seconds})
            if method in btfl_times.OWN:
                made.append(row | {"method": btfl_times.OWN[method], "mean": seconds / 10})
    block = {"dataset": "cifar10", "setting": "unspecified", "column": "seconds_per_1000"}
    return pd.DataFrame(made).assign(**block, n_seeds=1, run_dataset="digits", status="stand-in")


def test_times_are_filed_in_the_published_form_with_the_kits_beside_it(measured, monkeypatch):
    monkeypatch.setattr(btfl_times, "table", lambda p, benchmark: measured)
    table = study().frame("T3")
    check_table(table)
    printed = table["published_mean"].notna()
    assert table.loc[printed, "mean"].tolist() == [30.0, 90.0, 20.0, 10.0] * 3
    assert table.loc[~printed, "mean"].tolist() == [3.0, 2.0, 1.0] * 3
    assert set(table.loc[~printed, "method"]) == set(btfl_times.OWN.values())
    assert set(table["run_model"]) == {"cnn", "resnet20gn", "cct4_relu"}


def test_ratios_to_btfl(measured, monkeypatch):
    ratios = btfl_times.ratios(measured)
    printed = ratios[ratios["published"].notna()]
    assert printed["ours / BTFL"].tolist() == [3, 9, 2, 1] * 3
    assert printed["published / BTFL"].round(1).tolist()[:4] == [3.1, 9.3, 4.5, 1.0]
    assert ratios.loc[("cnn", "BTFL (vectorised)"), "ours / BTFL"] == pytest.approx(0.1)
    monkeypatch.setattr(btfl_times, "table", lambda p, benchmark: measured)
    pd.testing.assert_frame_equal(btfl_times.ratios(study().frame("T3")).loc[ratios.index, ratios.columns], ratios)


def test_times_on_own_images_stand_beside_no_print(measured):
    ratios = btfl_times.ratios(measured.assign(run_dataset="mine.npz", status="ok"))
    assert list(ratios.columns) == ["ours", "ours / BTFL"]
    assert ratios.loc[("cnn", "MEMO-P"), "ours / BTFL"] == 9


def test_ratios_without_btfl(measured):
    ratios = btfl_times.ratios(measured[measured["method"] == "TTT"])
    assert ratios["ours"].tolist() == [30.0] * 3
    assert ratios["ours / BTFL"].isna().all()


def test_times_are_taken_in_both_forms(monkeypatch):
    monkeypatch.setattr(btfl_times, "NETWORKS", {"cnn": "cnn"})
    own = {"Mine": Recipe(CE, None, T3A())}
    p = parameters(clients=20, timed_samples=1, methods=["TTT", "MEMO-P", "FedTHE", "BTFL", "Mine"], extra=own)
    times = btfl_times.table(p, btfl.setting(p, 1.0).protocol.build(0), repeats=1, least=40)
    assert (times["mean"] > 0).all()
    expected = ["FedTHE", "FedTHE (vectorised)", "TTT", "TTT (turns grouped)", "MEMO-P", "BTFL", "BTFL (vectorised)", "Mine"]
    assert times["method"].tolist() == expected
    assert set(times["status"]) == {"stand-in"}


class Broken:
    """A user's adapter, which is not of the package."""

    version = 1

    def run(self, task, state, personal, stream):
        raise ZeroDivisionError("by hand")


def test_an_own_method_fails_by_its_name(monkeypatch):
    monkeypatch.setattr(btfl_times, "NETWORKS", {"cnn": "cnn"})
    p = parameters(clients=20, timed_samples=1, methods=["Mine"], extra={"Mine": Recipe(CE, None, Broken())})
    with pytest.raises(MethodError, match=r"Mine \(timing\) failed: ZeroDivisionError: by hand"):
        btfl_times.table(p, btfl.setting(p, 1.0).protocol.build(0))


@pytest.mark.parametrize(("timed", "without_gradients"), [(3, 40), (50, 50)])
def test_as_many_samples_are_timed_as_asked(monkeypatch, timed, without_gradients):
    taken = []
    monkeypatch.setattr(btfl_times, "NETWORKS", {"cnn": "cnn"})
    monkeypatch.setattr(btfl_times, "seconds_per_1000", lambda *given, repeats: taken.append(len(given[-1])) or [1.0])
    p = parameters(clients=20, timed_samples=timed, methods=["MEMO-P", "FedTHE"])
    times = btfl_times.table(p, btfl.setting(p, 1.0).protocol.build(0), least=40)
    seen = dict(zip(times["method"], taken, strict=True))
    assert seen == {"MEMO-P": timed, "FedTHE": without_gradients, "FedTHE (vectorised)": without_gradients}


def test_times_that_nobody_asked_for(monkeypatch):
    monkeypatch.setattr(btfl_times, "table", lambda *_: pytest.fail("it was timed"))
    assert set(study(tables=["T2"]).frame("T3")["status"]) == {"not run: not asked for"}
