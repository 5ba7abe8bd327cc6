"""Choosing: on the choosing streams alone, for every seed by itself, and tested on what it never saw."""

from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest

from fedlib.core import FINAL
from fedlib.experiment import run
from fedlib.papers.comparison import PAPER, grid, tuning
from fedlib.papers.comparison.candidates import candidates
from fedlib.papers.comparison.recipes import CUT, NONE, PLAIN
from fedlib.protocols.validated import Validated
from fedlib.study import NOT_HERE, Study
from tests.papers.comparison_cases import ALL, TINY, by_training, of_one_test, parameters, rows, study


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """T3A and FedTTA, two seeds."""
    only = {"methods": ["T3A", "FedTTA"], "protocols": ["UPFL new clients"], "seeds": [0, 1]}
    s = study(**TINY, **ALL, **only, cache=str(tmp_path_factory.mktemp("cache")))
    chosen = s.frame("tuning")
    return s, chosen, grid.named(s.rows(tuning.tested(s.p, chosen))[0])


def test_a_candidate_that_diverges_in_one_seed_may_be_chosen_in_another():
    p = parameters(**ALL, seeds=[0, 3], protocols=["BRFL"], methods=["T3A"])
    assert [block.seeds for block in tuning.choosing(p)] == [[0], [3]]


def test_every_method_has_as_many_candidates_on_the_same_images(tuned):
    _, chosen, _ = tuned
    groups = chosen.groupby(["protocol", "seed", "method"])
    assert len(groups) == 2 * 2
    assert groups.size().unique().tolist() == [6]
    assert groups["chosen"].sum().unique().tolist() == [1]
    assert chosen.groupby(["protocol", "seed"])["n"].nunique().eq(1).all()
    assert set(chosen["status"]) == {"stand-in"}


def test_the_first_of_the_best_is_chosen(tuned):
    _, chosen, _ = tuned
    for _, own in chosen.groupby(["protocol", "seed", "method"], sort=False):
        assert own.index[own["chosen"]].tolist() == [own["choosing"].idxmax()]


def test_candidates_that_the_streams_do_not_tell_apart_are_marked():
    """Tent's are alike in both seeds, EATA's in one; of T3A's one alone has a result."""
    found = {("Tent", 0): (50, 50), ("Tent", 1): (50, 50), ("EATA", 0): (50, 50), ("EATA", 1): (50, 51), ("T3A", 0): (50,)}
    each = [(*key, f"lr={rate}", value) for key, values in found.items() for rate, value in zip((0.1, 0.2), values, strict=False)]
    grid = pd.DataFrame(each, columns=["method", "seed", "candidate", "choosing"]).assign(protocol="BRFL")
    grid["chosen"] = grid.index.isin(grid.groupby(["method", "seed"])["choosing"].idxmax())
    assert tuning.words(None, grid)["BRFL"].to_dict() == {"Tent": "lr=0.1 (all alike)", "EATA": "lr=0.1 | lr=0.2", "T3A": "lr=0.1"}


def test_what_was_chosen_is_what_is_tested(tuned):
    """The rows of every seed are those of the chosen candidate, run by itself."""
    p, (_, chosen, rows) = tuned[0].p, tuned
    picked = chosen[(chosen["chosen"]) & (chosen["seed"] == 1) & (chosen["method"] == "T3A")].iloc[0]
    recipe = candidates("T3A", p.table("UPFL new clients")["T3A"])[picked["candidate"]]
    alone = run(
        [p.setting("UPFL new clients")], {"T3A": recipe}, [1], request=p.request(rounds=(FINAL,), columns=("test",)), **p.execution()
    )
    ours = rows[(rows["seed"] == 1) & (rows["method"] == "T3A")]
    key = ["column", "client", "draw"]
    assert ours.set_index(key)["accuracy"].to_dict() == alone.set_index(key)["accuracy"].to_dict()


def test_the_trainings_are_the_grids_own(tuned):
    """Only candidates that train otherwise train: FedTTA's outer rates."""
    s, _, rows = tuned
    assert rows.loc[rows["method"] == "T3A", "train_cached"].all()
    measured = grid.measured(s)
    # All but no adaptation on the other network, which has nothing to tune.
    assert measured.loc[measured["method"] != PLAIN, "train_cached"].all()


def test_labels_of_the_tests_have_no_say(tuned, monkeypatch):
    """Everybody's tests relabelled: the same choice."""
    s, chosen, _ = tuned
    build = Validated.build

    def relabelled(self, seed, root=None):
        made = build(self, seed, root)
        if self.choosing:
            return made
        tests = [{c: tuple(replace(s, labels=(s.labels + 1) % 10) for s in draws) for c, draws in k.tests.items()} for k in made.clients]
        return replace(made, clients=tuple(replace(k, tests=t) for k, t in zip(made.clients, tests, strict=True)))

    monkeypatch.setattr(Validated, "build", relabelled)
    pd.testing.assert_frame_equal(Study(PAPER, {f.name: getattr(s.p, f.name) for f in fields(s.p)}).frame("tuning"), chosen)


def test_beside_counts_both_against_no_adaptation():
    measured = rows({NONE: 50, "T3A": 52}, seeds=2)
    table = tuning.beside(measured, rows({"T3A": 57}, seeds=2))
    assert table[["untuned", "tuned", "difference"]].to_numpy().tolist() == [[2, 7, 5]] * 3
    assert table["column"].tolist() == ["original", "ooc", "mean"]
    assert table["n"].tolist() == [40, 40, 80]
    assert table["n_seeds"].tolist() == [2, 2, 2]
    assert set(table["verdict"]) == {"too few images"}
    assert tuning.beside(rows({NONE: 50}, seeds=2), rows({"T3A": 57}, seeds=2)).empty


def test_the_difference_is_tested_on_the_same_clients():
    """What every client gains nearly alike is certain, however much clients differ; what varies from one to the next is not."""
    untuned, tuned = {NONE: 40, "T3A": 50, "EM": 50}, rows({"T3A": 53}, clients=8, n=100, noise=0.01)
    luck = rows({"EM": 50.2}, clients=8, n=100, noise=5.0)
    table = tuning.beside(rows(untuned, clients=8, n=100), pd.concat([tuned, luck], ignore_index=True))
    table = table[table["column"] == "mean"].set_index("method")
    assert table["verdict"].to_dict() == {"T3A": "helps", "EM": "undecided"}
    assert table.loc["T3A", ["low", "difference", "high"]].tolist() == pytest.approx([3, 3, 3], abs=0.02)
    assert table.loc["EM", "low"] < table.loc["EM", "difference"] < table.loc["EM", "high"]
    assert set(table["over"]) == {"clients"}


def test_the_tuned_gain_is_tested_too():
    """EM's choice adds nothing for certain to a gain that is certain, T3A's makes up for a loss."""
    untuned, tuned = {NONE: 40, "T3A": 30, "EM": 50}, rows({"T3A": 40.2, "EM": 50.2}, clients=8, n=100, noise=5.0)
    table = tuning.beside(rows(untuned, clients=8, n=100), tuned)
    table = table[table["column"] == "mean"].set_index("method")
    assert table["verdict"].to_dict() == {"T3A": "helps", "EM": "undecided"}
    assert table["tuned_verdict"].to_dict() == {"T3A": "undecided", "EM": "helps"}
    assert (table["tuned_low"] < table["tuned"]).all()
    assert (table["tuned"] < table["tuned_high"]).all()
    assert (table["tuned_p_holm"] <= 0.05).tolist() == [False, True]


def test_a_method_that_diverged_in_a_seed_is_tested_on_the_others():
    case = {"protocol": "UPFL new clients", "clients": 8, "n": 100, "columns": ("test",), "seeds": 3, "noise": 0.01}
    chosen = rows({"T3A": 55, "EM": 55}, **case)
    chosen = chosen[(chosen["method"] == "T3A") | (chosen["seed"] < 2)]
    table = tuning.beside(rows({NONE: 40, "T3A": 50, "EM": 50}, **case), chosen).set_index("method")
    assert table["n_seeds"].to_dict() == {"T3A": 3, "EM": 2}
    assert table["difference"].tolist() == pytest.approx([5, 5], abs=0.05)
    assert set(table["verdict"]) == {"helps"}
    assert table["p_holm"].between(0, 0.05).all()


def test_images_that_clients_share_widen_the_difference():
    """Eight clients of a hundred images each, their own or every other client's half."""
    widths = []
    for shared in (False, True):
        seen = {client: np.arange(100) + (50 if shared else 100) * client for client in range(8)}
        of = [
            frame.assign(seen=frame["client"].map(seen))
            for frame in (rows({NONE: 40, "EM": 50}, clients=8, n=100), rows({"EM": 53}, clients=8, n=100, noise=5.0))
        ]
        table = tuning.beside(*of)
        widths.append((table["high"] - table["low"]).to_numpy())
    assert (widths[1] > 1.2 * widths[0]).all()


def test_the_difference_is_tested_where_all_clients_share_their_test():
    tuned = of_one_test(1, EM=25, BBSE=0).query("method != 'FedAvg'")
    table = tuning.beside(of_one_test(0, EM=0, BBSE=0), tuned).set_index("method")
    assert table["verdict"].to_dict() == {"EM": "helps", "BBSE": "undecided"}
    assert (table["high"] - table["low"]).between(10, 22).all()
    # Without the right answers of one of the two, nothing is known of the images' share in the difference.
    half_told = tuning.beside(of_one_test(0, EM=0, BBSE=0), tuned.drop(columns="right"))
    assert set(half_told["verdict"]) == {"undecided"}


def test_smoke_tunes_where_it_is_asked_to():
    s = study()
    assert [s.show(name) for name in ("tuning", "tuned", "halves", "causes")] == [NOT_HERE] * 4


def test_its_picture_says_which_tests_are_stand_ins(monkeypatch):
    s = study(**TINY, methods=["EM"], protocols=["BRFL"], tables=["tuned"])
    made = rows({NONE: 50, "EM": 52}, columns=("original", "natural"))
    made["stand_in"] = made["column"] == "natural"
    monkeypatch.setattr(s, "rows", lambda blocks: (made if blocks else made.iloc[:0], {}))
    assert s.about(PAPER.exhibit("tuned")).endswith("(natural: stand-in)")


def test_streams_count_alike_in_choosing():
    """T3A's first candidate has 80 % of two images and 50 % of a hundred, its second 60 % of both."""
    own = rows({"T3A: x": 80, "T3A: y": 60}, clients=1, n=2, columns=("own",))
    others = rows({"T3A: x": 50, "T3A: y": 60}, clients=1, n=100, columns=("others",))
    frame = pd.concat([own, others])
    found = tuning.chosen(parameters(), frame)
    assert found.loc[found["chosen"], "candidate"].tolist() == ["x"]


def test_a_name_may_hold_a_colon():
    found = tuning.chosen(parameters(), rows({"mine: two: x=1": 80, "mine: two: x=2": 60, "mine: x=1": 70}))
    assert {*found["method"]} == {"mine: two", "mine"}
    assert found.loc[found["chosen"], "candidate"].tolist() == ["x=1", "x=1"]


def test_a_costly_method_of_ones_own_is_counted_on_the_same_first_images():
    measured = rows({NONE: 50, CUT: 48, "mine": 52})
    measured["cut"] = measured["method"].isin((CUT, "mine"))
    table = tuning.beside(measured, rows({"mine": 57}).assign(cut=True))
    assert table[["untuned", "tuned", "difference"]].to_numpy().tolist() == [[4, 9, 5]] * 3


def test_what_choosing_gains_is_tested_over_trainings():
    case = {"protocol": "UPFL new clients", "seeds": 3, "clients": 8, "n": 100, "columns": ("test",)}
    row = tuning.beside(rows({NONE: 40, "T3A": 50}, **case), by_training(rows({"T3A": 55}, **case), "T3A")).iloc[0]
    assert (row["verdict"], row["over"]) == ("undecided", "clients and seeds")
