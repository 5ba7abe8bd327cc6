import numpy as np
import pytest
from scipy.stats import ttest_rel

from fedlib.published.pairs import holm, pairs
from tests.published.measured import frame, units


def test_differences_of_one_seed_are_a_paired_t_test_over_its_clients():
    a, b, c = [50.0, 60.0, 71.0, 80.0], [48.0, 59.0, 66.0, 77.0], [50.0, 61.0, 70.0, 80.0]
    found = pairs(frame(A=units([a]), B=units([b]), C=units([c])), "A").set_index("method")
    assert list(found.index) == ["B", "C"]
    assert found.loc["B", "difference"] == pytest.approx(-2.75)
    p = [ttest_rel(other, a).pvalue for other in (b, c)]
    assert found["p"].tolist() == pytest.approx(p)
    assert found["p_holm"].tolist() == pytest.approx([2 * p[0], p[1]])
    assert found.loc["B", "margin"] == pytest.approx(np.std(np.subtract(a, b), ddof=1) / 2)
    assert found.loc["B", ["clients", "seeds", "n", "cut", "status", "against"]].tolist() == [4, 1, 200, False, "ok", "A"]


def test_several_seeds_must_agree_as_well():
    """All clients gain as much in each training, and the trainings do not agree."""
    zero = units([[50.0] * 5] * 2)
    found = pairs(frame(A=zero, B=units([[51.0 + 0.01 * i for i in range(5)], [53.0 + 0.01 * i for i in range(5)]])), "A").iloc[0]
    assert found["p"] == pytest.approx(ttest_rel([51.02, 53.02], [50, 50]).pvalue, rel=1e-6)
    assert found["seeds"] == 2


def test_cut_streams_are_compared_on_the_same_images():
    """A leads by ten on all images; on the first, of which B saw no more, it is behind by five."""
    table = frame(A=units([[70.0, 71.0]], cut=[[60.0, 61.0]]), B=units([[65.0, 66.0]], partial=True))
    found = pairs(table, "A").iloc[0]
    assert (found["difference"], found["cut"], found["n"]) == (5, True, 4)


def test_stand_ins_are_told_and_what_shares_nothing_is_left_out():
    table = frame(A=units([[50.0, 60.0]]), B=units([[51.0, 62.0]]), C=units([[1.0, 2.0]], partial=True))
    table.loc[0, "status"] = "stand-in"
    found = pairs(table, "A")
    assert found["method"].tolist() == ["B"]
    assert found["status"].tolist() == ["stand-in"]


def test_what_cannot_be_tested_has_no_p_value_and_costs_the_others_nothing():
    a, b = [50.0, 60.0, 71.0, 80.0], [48.0, 59.0, 66.0, 77.0]
    found = pairs(frame(A=units([a]), B=units([b]), C=units([[55.0]])), "A").set_index("method")
    assert found["p_holm"].tolist() == pytest.approx([ttest_rel(a, b).pvalue, np.nan], nan_ok=True)
    same = pairs(frame(A=units([a]), B=units([a])), "A").iloc[0]
    assert (same["difference"], same["margin"], same["p"]) == (0, 0, 1)


def test_a_smaller_p_value_never_ends_above_a_larger_one():
    """By hand: 0.02, 0.03 and 0.04 times 3, 2 and 1, and none below the one before it."""
    assert holm(np.array([0.04, np.nan, 0.03, 0.02])).tolist() == pytest.approx([0.06, np.nan, 0.06, 0.06], nan_ok=True)
    assert holm(np.array([0.6, 0.9, 0.001])).tolist() == pytest.approx([1, 1, 0.003])


@pytest.mark.parametrize("other", [{"run_dataset": "cifar10"}, {"run_model": "cct4"}])
def test_other_images_and_other_networks_are_not_paired(other):
    table = frame(A=units([[50.0, 60.0]]), B=units([[51.0, 62.0]]))
    table.loc[1, list(other)] = list(other.values())
    assert pairs(table, "A").empty


def test_wrong_questions_are_named():
    with pytest.raises(ValueError, match=r"no cell's clients are known: the table has no file <table>_clients\.csv"):
        pairs(frame(A=None), "A")
    with pytest.raises(ValueError, match="unknown method with clients 'Z'"):
        pairs(frame(A=units([[50.0, 60.0]])), "Z")
