from dataclasses import fields, replace

from fedlib.adapt.btfl import BTFL
from fedlib.papers.btfl import recipes as btfl
from fedlib.papers.btfl.claims import STRONG
from fedlib.published import cells
from fedlib.train.fedavg import FedAvg


def test_names_are_the_printed_ones():
    assert list(btfl.recipes()) == [*btfl.METHODS, "BTFL (code)"]
    assert set(btfl.METHODS) == set(cells("btfl", "T2")["method"])
    assert set(STRONG) < set(btfl.METHODS)


def test_hyperparameters_of_the_appendix():
    table = btfl.recipes()
    assert (table["FedTHE"].adapt.alpha, table["FedTHE"].adapt.beta, table["FedTHE"].adapt.steps) == (0.1, 0.1, 20)
    assert (table["MEMO-P"].adapt.views, table["MEMO-P"].adapt.steps, table["MEMO-P"].adapt.lr) == (32, 3, 5e-4)
    assert (table["TTT"].adapt.lr, table["TTT"].adapt.steps) == (0.001, 1)
    assert table["BTFL"].adapt == BTFL(cap=16)


def test_paper_and_code_differ_in_mixture_cap_and_integral():
    paper, code = (btfl.recipes()[name].adapt for name in ("BTFL", "BTFL (code)"))
    assert (paper.mixture, paper.cap_rule, paper.integral) == ("probability", "rescale", "exact")
    assert (code.mixture, code.cap_rule, code.integral) == ("log", "restart", "trapezoid")
    assert replace(code, mixture=paper.mixture, cap_rule=paper.cap_rule, integral=paper.integral) == paper


def test_batches_of_the_methods_that_carry_a_history():
    table = btfl.recipes(batch_size=128)
    assert {name: table[name].adapt.batch_size for name in ("FedTHE", "BTFL", "BTFL (code)")} == dict.fromkeys(
        ("FedTHE", "BTFL", "BTFL (code)"), 128
    )


def test_a_switch_is_one_field():
    default = BTFL()
    for name, method in btfl.SWITCHES.items():
        changed = [f.name for f in fields(BTFL) if getattr(method, f.name) != getattr(default, f.name)]
        assert len(changed) == {"BTFL": 0, "BTFL (code)": 3, "paper": 4, "no history": 2}.get(name, 1), name


def test_variants_share_the_training_of_btfl():
    trained = btfl.recipes()["BTFL"].train
    switches = btfl.switches()
    assert {name for name, recipe in switches.items() if recipe.train != trained} == {"no L1 term", "paper"}
    assert {recipe.train for name, recipe in switches.items() if name in ("no L1 term", "paper")} == {FedAvg()}
    assert {recipe.train for recipe in btfl.strengths().values()} == {trained}
    assert [recipe.adapt.cap for recipe in btfl.strengths().values()] == 2 * list(btfl.STRENGTHS)
    assert all(recipe.adapt.batch_size == 1 for recipe in btfl.batches_of_one().values())
