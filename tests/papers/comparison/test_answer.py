"""The answer: verdicts by shift, the rule of "use this when", and the paragraph."""

import numpy as np
import pandas as pd
import pytest

from fedlib.papers.comparison import answer, grid, significance
from fedlib.papers.comparison.answer import NOTHING, SHIFTS, SITUATIONS, advice, not_behind, paragraph, verdicts
from fedlib.papers.comparison.needs import needs
from fedlib.papers.comparison.recipes import CUT, NONE
from fedlib.papers.comparison.settings import PROTOCOLS
from fedlib.protocols.brfl import COLUMNS as BRFL_COLUMNS
from fedlib.protocols.btgfl import COLUMNS as BTGFL_COLUMNS
from tests.papers.comparison_cases import by_training, parameters, rows


def measured(values, protocol="BRFL", columns=("original",), noise=2.0, **how):
    return pd.concat(
        [
            rows({method: value}, protocol, clients=40, columns=columns, noise=0 if method == NONE else noise, **how)
            for method, value in values.items()
        ]
    )


def taking(protocol="BRFL", **seconds):
    return pd.DataFrame({"protocol": protocol, "method": [*seconds], "seconds": [*seconds.values()]})


def test_every_test_column_is_of_one_shift():
    places = [place for of in SHIFTS.values() for place in of]
    assert len(places) == len(set(places))
    assert {protocol for protocol, _ in places} == set(PROTOCOLS)
    assert {column for protocol, column in places if protocol == "BRFL"} == set(BRFL_COLUMNS[:5])
    assert {column for protocol, column in places if protocol == "BTGFL"} == set(BTGFL_COLUMNS)


def test_a_method_helps_where_every_test_says_so():
    both = pd.concat(
        [
            measured({NONE: 50, "BTFL": 60, "T3A": 60, "EM": 40, "BBSE": 60}),
            measured({NONE: 50, "BTFL": 40, "T3A": 50, "EM": 40, "BBSE": 60}, "BTGFL", ("original_ind",)),
        ]
    )
    found = verdicts(significance.cells(both)).set_index("method")
    assert found["verdict"].to_dict() == {"BTFL": "mixed", "T3A": "undecided", "EM": "hurts", "BBSE": "helps"}
    assert found.loc["T3A", ["columns", "helps", "hurts", "n"]].tolist() == [2, 1, 0, 800]
    assert found.loc["EM", "gain"] == pytest.approx(-10, abs=1)
    assert found["shift"].unique().tolist() == ["own images"]


def test_a_column_with_too_few_images_has_no_say():
    """Neither in the gain that decides who leads, nor in who is behind: BTFL's +40 stands on 80 images."""
    base = rows({NONE: 50}, clients=40, columns=("original",))
    good = rows({"BTFL": 60, "T3A": 60}, clients=40, columns=("original",), noise=2.0)
    few = rows({NONE: 50, "BTFL": 90, "T3A": 50}, "BTGFL", clients=40, n=2, columns=("original_ind",))
    frame = pd.concat([base, good, few])
    tests = significance.cells(frame)
    found = verdicts(tests).set_index("method")
    assert found["gain"].round().tolist() == [10, 10]
    assert found["n"].tolist() == [400, 400]
    assert found["verdict"].tolist() == ["helps", "helps"]
    assert not_behind(tests, grid.gains(frame), "own images", "BTFL", ["T3A"]) == ["T3A"]
    alone = verdicts(tests[tests["protocol"] == "BTGFL"]).set_index("method")
    assert alone["verdict"].tolist() == ["too few images"] * 2
    assert alone["gain"].tolist() == [40, 0]


def test_who_was_tested_on_fewer_columns_does_not_lead():
    """T3A is behind BTFL on every test that both have; its mean is the higher one, since the hard test has too few images of it."""
    easy = measured({NONE: 50, "BTFL": 81, "T3A": 80}, columns=("corrupted",), noise=0.1)
    hard = measured({NONE: 50, "BTFL": 56}, "BTGFL", ("shifted_ind",), noise=0.1)
    few = rows({"T3A": 55}, "BTGFL", clients=40, n=2, columns=("shifted_ind",))
    frame = pd.concat([easy, hard, few])
    tests = significance.cells(frame)
    found = verdicts(tests)
    assert found.set_index("method")["gain"].round().to_dict() == {"BTFL": 18, "T3A": 30}
    table = advice(found, tests, grid.gains(frame), needs(parameters()), taking(BTFL=1.0, T3A=1.0))
    assert table.set_index("situation").loc["nothing is missing", ["leader", "use", "tested"]].tolist() == ["BTFL", "BTFL", 1]


def test_who_was_tested_on_first_images_alone_does_not_lead():
    """Ten images a client are enough for a verdict, but not for telling a luckier method from a better one."""
    whole = rows({NONE: 50, "T3A": 80}, clients=40, n=50, columns=("original",), noise=1.0)
    first = rows({CUT: 50, "MEMO": 82}, clients=40, columns=("original",), noise=1.0)
    frame = pd.concat([whole, first])
    tests = significance.cells(frame)
    found = verdicts(tests)
    assert found.set_index("method")["verdict"].to_dict() == {"T3A": "helps", "MEMO": "helps"}
    table = advice(found, tests, grid.gains(frame), needs(parameters()), taking(T3A=1.0, MEMO=1.0)).set_index("situation")
    assert table.loc["nothing is missing", ["leader", "use", "not_behind", "tested"]].tolist() == ["T3A", "T3A", "", 1]


def test_who_was_not_tested_at_all_takes_no_advice_away():
    """MEMO has seen too few images of each of two tests, and more of both together than T3A of the one that counts."""
    tested = rows({NONE: 50, "T3A": 80}, clients=10, n=30, columns=("original",), noise=0.1)
    few = rows({NONE: 50, "T3A": 80}, "BTGFL", clients=10, n=18, columns=("original_ind",), noise=0.1)
    cuts = (((), 19, "original"), (("BTGFL",), 18, "original_ind"))
    cut = [rows({CUT: 50, "MEMO": 60}, *where, clients=10, n=n, columns=(column,)) for where, n, column in cuts]
    frame = pd.concat([tested, few, *cut])
    tests = significance.cells(frame)
    found = verdicts(tests)
    assert found.sort_values("method")[["columns", "n"]].to_numpy().tolist() == [[0, 370], [1, 300]]
    table = advice(found, tests, grid.gains(frame), needs(parameters()), taking(T3A=1.0, MEMO=1.0)).set_index("situation")
    assert table.loc["nothing is missing", "use"] == "T3A"


@pytest.fixture
def settled():
    """FedICON leads and needs the whole stream and a training; T3A is fast and not behind it; BTFL is behind both; EM hurts."""
    frame = measured({NONE: 50, "FedICON": 60.4, "T3A": 60.4, "BTFL": 55, "EM": 40})
    tests = significance.cells(frame)
    return (
        verdicts(tests),
        tests,
        grid.gains(frame),
        needs(parameters()),
        taking(FedICON=9.0, T3A=1.0, BTFL=0.5, EM=0.1),
    )


def test_the_fastest_that_is_not_behind_the_leader_is_used(settled):
    verdict, tests, gains, asked, cost = settled
    assert not_behind(tests, gains, "own images", "FedICON", ["T3A", "BTFL"]) == ["T3A"]
    table = advice(verdict, tests, gains, asked, cost).set_index("situation")
    assert list(table.index) == list(SITUATIONS)
    first = table.loc["nothing is missing"]
    assert first[["leader", "use", "not_behind", "seconds", "tested"]].tolist() == ["FedICON", "T3A", "T3A", 1.0, 4]
    assert first["gain"] == pytest.approx(10, abs=1)
    assert table.loc["the model is trained already", "leader"] == "T3A"
    # BTFL is slower to gain but the only one that meets this.
    slow = cost[cost["method"] != "T3A"]
    assert advice(verdict, tests, gains, asked, slow).set_index("situation").loc["nothing is missing", "use"] == "FedICON"
    # Nor do times on another shift's clients count.
    elsewhere = pd.concat([slow, taking("TTPFL label", T3A=1.0)])
    assert advice(verdict, tests, gains, asked, elsewhere).set_index("situation").loc["nothing is missing", "use"] == "FedICON"


def test_noise_puts_few_behind_the_leader_that_it_has_chosen():
    """Without the correction for the choice it is 12 of these hundred cases."""
    rng, methods, lost = np.random.default_rng(0), [f"m{i}" for i in range(10)], 0
    place = {"protocol": "BRFL", "column": "mixture"}
    cells = pd.DataFrame([place | {"method": method, "verdict": "helps"} for method in methods])
    for _ in range(100):
        clients = pd.DataFrame([{"client": k, "method": method} for k in range(20) for method in methods])
        gains = clients.assign(setting="BRFL", column="mixture", seed=0, accuracy=rng.normal(size=len(clients)))
        leader, *rivals = gains.groupby("method")["accuracy"].mean().sort_values(ascending=False).index
        lost += not_behind(cells, gains, "mixture", leader, rivals) != rivals
    assert lost <= 5


@pytest.mark.parametrize(("leader", "used"), [(3.9, "FedICON"), (4.1, "T3A")])
def test_a_gain_counts_more_than_a_little_time(settled, leader, used):
    verdict, tests, gains, asked, cost = settled
    other = pd.concat([cost[cost["method"] != "FedICON"], taking(FedICON=leader)])
    table = advice(verdict, tests, gains, asked, other).set_index("situation")
    assert table.loc["nothing is missing", "use"] == used


def test_where_none_helps_nothing_is_advised(settled):
    *_, asked, cost = settled
    frame = measured({NONE: 50, "EM": 40, "T3A": 50})
    tests = significance.cells(frame)
    table = advice(verdicts(tests), tests, grid.gains(frame), asked, cost)
    assert table["use"].eq(NOTHING).all()
    assert table["gain"].eq(0).all()
    assert table["leader"].eq("").all()


def test_situations_leave_out_whom_they_cannot_feed(settled):
    *_, asked, _ = settled
    fed = {name: {row.method for row in asked.itertuples() if fits(row, False)} for name, fits in SITUATIONS.items()}
    # Tent was measured from a model that the client's labels had tuned, but among new clients.
    assert {"BTFL", "Tent"}.isdisjoint(fed["no labels on the client"])
    new = {row.method for row in asked.itertuples() if SITUATIONS["no labels on the client"](row, True)}
    assert ("Tent" in new, "BTFL" in new) == (True, False)
    assert {"FedICON", "Tent", "EM", "FedTHE"}.isdisjoint(fed["images come one by one"])
    assert "FedTHE" not in fed["the model is trained already"]
    assert {"Tent", "EATA", "ATP-batch", "ATP-online"}.isdisjoint(fed["batch norm is left alone"])
    assert fed["nothing is missing"] == set(asked["method"])


def test_the_paragraph_says_what_the_verdicts_say(settled):
    verdict = settled[0]
    priced = pd.concat([taking(T3A=0.1, EM=9.0), taking("BTGFL", T3A=0.146)])
    text = paragraph(verdict, priced)
    assert text.startswith("Own images: FedICON (+")
    assert "help; EM (-10" in text
    assert "hurts." in text
    assert "For the methods that help somewhere, 1,000 images take T3A 0.12 s." in text
    few = verdicts(significance.cells(measured({NONE: 50, "T3A": 50}, "TTPFL hybrid", ("test",))))
    assert "New client, both: no method helps or hurts for certain (1 undecided)." in paragraph(few, priced)
    none = verdicts(significance.cells(rows({NONE: 50, "T3A": 60}, clients=40, n=2, columns=("original",))))
    assert paragraph(none, priced.iloc[:0]) == "Own images: nothing was tested, on fewer than 200 images."


def test_the_paragraph_names_what_helps_on_one_test_and_hurts_on_another():
    both = pd.concat([measured({NONE: 50, "BTFL": 60}), measured({NONE: 50, "BTFL": 40}, "BTGFL", ("original_ind",))])
    assert paragraph(verdicts(significance.cells(both)), pd.DataFrame()) == "Own images: BTFL helps on one test and hurts on another."


def test_a_method_that_lacks_one_test_of_a_shift_is_undecided():
    """It may have diverged on the hard one."""
    both = pd.concat([measured({NONE: 50, "BTFL": 60, "T3A": 60}), measured({NONE: 50, "T3A": 60}, "BTGFL", ("original_ind",))])
    found = verdicts(significance.cells(both)).set_index("method")
    assert found["verdict"].to_dict() == {"BTFL": "undecided", "T3A": "helps"}


def test_nothing_to_say_without_cells():
    assert verdicts(significance.cells(rows({NONE: 50}))).empty
    assert answer.advice(*[pd.DataFrame()] * 5).empty


def test_who_is_ahead_of_the_leader_is_not_behind_it():
    """T3A leads by its mean over the two tests of the shift, and BTFL is ahead on one of them."""
    frame = pd.concat(
        [measured({NONE: 50, "T3A": 60, "BTFL": 65}), measured({NONE: 50, "T3A": 75, "BTFL": 65}, "BTGFL", ("original_ind",))]
    )
    tests, gains = significance.cells(frame), grid.gains(frame)
    assert not_behind(tests[tests["protocol"] == "BRFL"], gains, "own images", "T3A", ["BTFL"]) == ["BTFL"]
    assert not_behind(tests, gains, "own images", "T3A", ["BTFL"]) == []


def test_who_is_behind_the_leader_is_told_over_trainings():
    made = measured({NONE: 50, "EM": 60, "BBSE": 65}, "UPFL new clients", ("test",), noise=0.1, seeds=3)
    for frame, level in ((made, []), (by_training(made, "BBSE"), ["EM"])):
        assert not_behind(significance.cells(frame), grid.gains(frame), "new client: few classes", "BBSE", ["EM"]) == level


def test_the_leaders_rivals_are_one_family():
    """Of twenty without any effect, some are called behind by themselves, and none among all."""
    rivals = [f"m{i}" for i in range(20)]
    noise = [np.random.default_rng(i).normal(0, 5, 40) for i in range(20)]
    case = {"clients": 40, "columns": ("original",)}
    idle = [
        rows({name: 50}, **case).assign(accuracy=lambda f, own=own: f["accuracy"] + own) for name, own in zip(rivals, noise, strict=True)
    ]
    frame = pd.concat([rows({NONE: 50, "T3A": 50}, **case), *idle])
    own = significance.cells(frame), grid.gains(frame), "own images", "T3A"
    assert not all(not_behind(*own, [name]) for name in rivals)
    assert not_behind(*own, rivals) == rivals
