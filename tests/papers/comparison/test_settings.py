"""The comparison's parameters, who runs where, and the schedules."""

from dataclasses import replace

import pytest

from fedlib.papers import comparison
from fedlib.papers.atp import settings as atp
from fedlib.papers.comparison import PAPER, grid
from fedlib.papers.comparison.recipes import CUT, METHODS, NONE, PLAIN
from fedlib.papers.comparison.settings import LABELS, NEW, PROFILES, PROTOCOLS, REASONS, about, reason
from fedlib.papers.fedthe import recipes as fedthe
from fedlib.protocols.validated import Validated
from tests.data.layouts import save_npz
from tests.papers.comparison_cases import declared, parameters


def test_profiles_fill_every_parameter():
    for profile in PROFILES:
        p = parameters(profile=profile)
        unset = {name for name in declared() if getattr(p, name) is None}
        named = {"smoke": {"tables"}, "small": {"tables", "protocols"}, "paper": set()}[profile]
        assert unset == {"batch_size", "extra", "start", "held_out", "methods", "output", "tables", "protocols"} - named


def test_the_last_domain_is_held_out_unless_another_is_named():
    assert parameters().clients_of()["FedICON domain"].of.held_out == "blend"
    assert parameters(held_out="fonts").clients_of()["FedICON domain"].of.held_out == "fonts"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dataset": "cifar"}, "cifar10"),
        ({"domains": "digits"}, "digits5"),
        ({"domains": "digits5", "held_out": "font"}, "fonts"),
        ({"methods": ["FedTAA"]}, "FedTTA"),
        ({"protocols": ["TTPFL"]}, "TTPFL label"),
        ({"tables": ["rank"]}, "ranks"),
        ({"tables": "ranks"}, r"list of names, or all, got the text 'ranks': write \['ranks'\]"),
        ({"protocols": "BRFL"}, r"list of names, or all, got the text 'BRFL': write \['BRFL'\]"),
        ({"population": 5}, "even"),
        ({"images": 0}, "images must be at least 1"),
        ({"rounds": 3, "classifier_rounds": 3}, r"more than classifier_rounds \(3\), got 3: .* methods without FedICON"),
    ],
)
def test_bad_parameters(given, message):
    with pytest.raises(ValueError, match=message):
        parameters(**given)


def test_few_rounds_do_without_fedicon():
    assert parameters(rounds=1, classifier_rounds=1, methods=["EM"]).rounds == 1


def test_images_without_domains_take_any_number_of_clients_for_one(tmp_path):
    save_npz(path := tmp_path / "mine.npz", 20, 10)
    p = parameters(dataset=str(path), domains=str(path), domain_clients=2)
    assert "FedICON covariate" not in p.clients_of()


def test_every_method_runs_or_has_a_reason():
    """What the settings run and what the reasons exclude is every method, on every protocol, and nothing twice."""
    p = parameters()
    for protocol in PROTOCOLS:
        runs = {*p.recipes(protocol), *p.plain_recipes(protocol)} - {CUT}
        excluded = {method for method in METHODS if reason(method, protocol, p)}
        assert runs | excluded == set(METHODS), protocol
        assert not runs & excluded, protocol
        assert all(len(reason(method, protocol, p)) > 20 for method in excluded)
    assert set(REASONS) == set(PROTOCOLS.values())
    assert {method for table in REASONS.values() for method in table} <= set(METHODS)


def test_coverage_names_the_reasons():
    table = comparison.coverage(parameters())
    assert table.shape == (len(METHODS), len(PROTOCOLS))
    assert table.loc["BTFL", "BRFL"] == "runs"
    assert "no label" not in table.loc["EATA", "TTPFL label"]
    assert table.loc["ATP-batch", "FedICON domain"] == "runs"
    assert table.loc["kNN-Per", "UPFL new clients"] == REASONS[NEW]["kNN-Per"]
    said = comparison.reasons(parameters()).set_index("method")
    assert said.loc["kNN-Per"].tolist() == [REASONS[NEW]["kNN-Per"], ", ".join(name for name, kind in PROTOCOLS.items() if kind == NEW)]
    assert set(said.index) == set(REASONS[NEW])


def test_a_choice_of_methods_keeps_their_baselines():
    p = parameters(methods=["MEMO", "FedTTA"])
    assert list(p.recipes("BRFL")) == [CUT, "MEMO"]
    assert list(p.plain_recipes("BRFL")) == [PLAIN, "FedTTA"]
    assert p.recipes("TTPFL label")["MEMO"].personalize is None


def test_the_method_without_adaptation_has_one_name():
    """FedAvg, as in all tables but ATP's, under whose name the same recipe would be looked for in vain."""
    assert NONE == "FedAvg"
    assert "NoAdapt" not in METHODS
    assert fedthe.RECIPES["FedAvg"].adapt == parameters().recipes("BRFL")[NONE].adapt


def test_fedicon_takes_the_views_of_the_data_it_runs_on():
    p = parameters(dataset="cifar10", domains="digits5")
    views = {name: p.recipes(name)["FedICON"] for name in ("BRFL", "FedICON domain", "FedICON covariate", "FedICON attribute")}
    assert [r.train.contrast.views for r in views.values()] == ["cifar", "digits", "digits", "cifar"]
    assert [r.adapt.contrast.views for r in views.values()] == ["cifar", "digits", "digits", "cifar"]


def test_cohorts_are_a_quarter_of_the_source_clients():
    p = parameters(clients=20, population=40)
    cohorts = {name: p.recipes(name)["ATP-batch"].personalize.cohort for name in ("BRFL", "TTPFL label", "UPFL new clients")}
    assert cohorts == {"BRFL": 5, "TTPFL label": 8, "UPFL new clients": 5}
    # Of five domains with four clients each, one is held out.
    p = parameters(domain_clients=4)
    cohorts = [p.recipes(name)["ATP-batch"].personalize.cohort for name in ("FedICON covariate", "FedICON domain")]
    assert cohorts == [5, 4]


def test_nobody_is_tested_on_what_all_learned_from():
    assert parameters().clients_of()["BTGFL"].of.others == "test"


def test_rates_are_learned_with_the_step_of_atps_own_notebook():
    """The published one is for its networks and throws the rates of the digits' off. (Profile small has other images there, and more.)"""
    assert parameters(profile="small").rate_lr == 0.02
    for profile, step in {"smoke": 0.02, "paper": 0.1}.items():
        p, own = parameters(profile=profile), atp.PROFILES[profile].get("rate_lr", atp.BLOCKS["cifar10"].rates.lr)
        methods = [p.recipes(name)[method] for name in ("BRFL", "FedICON covariate") for method in ("ATP-batch", "ATP-online")]
        assert {recipe.personalize.lr for recipe in methods} == {step} == {own}
    assert parameters(rate_lr=0.5).recipes("BRFL")["ATP-batch"].personalize.lr == 0.5


def test_every_training_has_the_same_steps_times_samples():
    """FedICON sees two views of an image, FedTTA's outer step goes through an inner one: half the rounds, but for FedICON's last."""
    p = parameters(rounds=21, classifier_rounds=3, protocols=["BRFL"])
    rounds = {}
    for block in grid.blocks(p):
        rounds |= dict.fromkeys(block.recipes, block.settings[0].schedule.rounds)
    assert {name for name, count in rounds.items() if count == 21} == set(rounds) - {"FedICON", "FedTTA", "FedTTA++"}
    assert (rounds["FedICON"], rounds["FedTTA"], rounds["FedTTA++"]) == (3 + 9, 10, 10)


def test_every_protocol_sets_images_apart_for_choosing():
    clients = parameters().clients_of()
    assert all(isinstance(of, Validated) and not of.choosing for of in clients.values())
    assert {name for name, of in clients.items() if of.shifted} == {name for name, kind in PROTOCOLS.items() if kind == LABELS}


def test_domains_are_shared_by_as_many_clients_as_asked():
    clients = parameters(domain_clients=3).clients_of()
    assert clients["FedICON covariate"].of.n_clients == 15
    assert clients["FedICON domain"].of.n_clients == 12
    assert parameters().clients_of()["FedICON domain"].of.n_clients is None


def test_smoke_leaves_out_what_trains_several_times():
    assert not parameters().asks("tuning")
    assert parameters().asks("heatmap")
    assert parameters(tables="all").asks("tuning")
    assert parameters(profile="paper").asks("tuning")


def test_small_has_the_main_exhibits_on_one_protocol_of_each_paper_unless_all_are_asked_for():
    p, every = parameters(profile="small"), parameters(profile="small", tables="all", protocols="all")
    names = [exhibit.name for exhibit in PAPER.exhibits]
    assert [name for name in names if p.asks(name)] == [
        "curve",
        "heatmap",
        "tests",
        "accuracies",
        "ranks",
        "differences",
        "answer",
        "advice",
    ]
    assert {name.split()[0] for name in p.clients_of()} == {name.split()[0] for name in PROTOCOLS}
    assert len(p.clients_of()) == 5
    assert all(every.asks(name) for name in names)
    assert list(every.clients_of()) == list(PROTOCOLS)


def test_pacs_is_called_what_is_loaded():
    said = about(parameters(profile="smoke", domains="pacs", protocols=["FedICON domain"], methods=["FedAvg"]))
    assert said.startswith("PACS (64 px) (stand-in for Digit-5), ")


def test_captions_tell_cut_streams_where_a_costly_method_runs():
    for methods, said in ((["FedAvg", "EM"], False), (["FedAvg", "MEMO"], True)):
        assert ("per-sample methods on" in about(parameters(profile="smoke", protocols=["BRFL"], methods=methods))) == said


def test_captions_tell_training_without_momentum():
    length = "4 rounds x 2 epochs{}, 1 seed"
    for usual in (parameters(profile="smoke"), replace(parameters(profile="smoke"), momentum=None)):
        assert length.format("") in about(usual)
    assert length.format(" without momentum") in about(parameters(profile="smoke", momentum=0.0))


def test_clients_with_labels_hold_few_classes():
    of = parameters().clients_of()
    assert [of[name].of.alpha for name in ("BRFL", "BTGFL", "FedICON attribute")] == [0.1, 0.1, 1.0]
