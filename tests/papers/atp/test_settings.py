import pandas as pd
import pytest

from fedlib.papers.atp import settings as atp
from fedlib.papers.atp.recipes import RECIPES
from fedlib.published import cells

NONE = (
    *("dataset", "cifar100", "digits5", "pacs", "model", "clients", "domain_clients", "images", "rounds", "local_epochs", "rate_rounds"),
    *("targets", "last_rounds", "rate_lr", "batch_size", "test_batch", "lr", "extra", "start", "seeds", "costly_samples", "methods"),
    *("tables", "data_root", "output"),
)


def parameters(**given):
    return atp.parameters(dict.fromkeys(NONE) | {"profile": "smoke", "jobs": 1, "device": "cpu", "cache": "cache"} | given)


def measured(shifts=("feature shift", "label shift", "hybrid shift")):
    """Rows whose accuracy tells method, shift, seed and client; the second client holds three times as many samples."""
    return pd.DataFrame(
        {"setting": s, "method": m, "column": "test", "seed": seed, "client": c, "n": n, "accuracy": 50.0 + i + seed + 8 * c + 5 * k}
        | {"dataset": "digits", "model": "shallow_cnn"}
        for k, s in enumerate(shifts)
        for i, m in enumerate(RECIPES)
        for seed in (0, 2)
        for c, n in ((0, 10), (1, 30))
    )


def test_mean_weighs_clients_by_samples_and_spreads_over_seeds():
    row = atp.average(measured()).iloc[0]
    assert row["mean"] == pytest.approx(50 + 0.75 * 8 + 1)
    assert row["std"] == pytest.approx(2**0.5)
    assert row["n_seeds"] == 2


def test_ranks_recompute_the_printed_column():
    printed = cells("atp", "T1")
    measured = printed[printed["column"] == "test"].assign(mean=lambda t: t["mean_value"])
    found = atp.ranks(measured).set_index("method")["mean"].round(1)
    expected = printed[printed["column"] == "avg_rank"].set_index("method")["mean_value"]
    # SHOT and Tent tie at two digits under feature shift.
    assert (found - expected).abs().max() <= 0.21
    assert found["ATP-online"] == expected["ATP-online"] == 1


def test_tables_fill_every_printed_cell_and_say_what_was_run():
    table = atp.table("T1", {"cifar10": measured()})
    assert table["mean"].notna().all()
    assert set(table["status"]) == {"stand-in"}
    assert set(table["run_model"]) == {"shallow_cnn"}
    ranks = table[table["column"] == "avg_rank"].set_index("method")["mean"]
    assert ranks["ATP-online"] == 1
    assert ranks["NoAdapt"] == 11


def test_incomplete_runs_have_no_ranks_and_missing_images_a_reason():
    rows = measured()
    some = atp.table("T1", {"cifar10": rows[rows["method"] != "MEMO"]})
    assert some.loc[some["mean"].isna(), "status"].str.contains("parameter methods").all()
    assert some["mean"].isna().sum() == 3 + 11
    absent = pd.DataFrame()
    absent.attrs["reason"] = "no images of that kind here"
    table = atp.table("T5", {"cifar10_cnn": rows, "cifar100": absent})
    assert set(table.loc[table["dataset"] == "cifar100", "status"]) == {"not run: no images of that kind here"}
    assert table.loc[table["dataset"] == "cifar10", "mean"].notna().all()
    nothing = atp.table("T2", {"digits5": absent, "pacs": absent})
    assert set(nothing["status"]) == {"not run: no images of that kind here"}


def test_domains_stand_under_their_printed_names():
    rows = measured(("MNIST", "SVHN", "USPS", "SynthDigits", "MNIST-M")).assign(dataset="digits5")
    table = atp.table(
        "T2", {"digits5": rows, "pacs": measured(("Art", "Cartoon", "Photo", "Sketch")).assign(dataset="pacs", column="photo")}
    )
    assert table["mean"].notna().all()
    assert table.set_index(["column", "method"]).loc[("SVHN", "NoAdapt"), "mean"] == pytest.approx(62)


def test_paper_profile_is_the_published_one():
    p = parameters(profile="paper")
    assert [s.model for b in atp.BLOCKS for s in p.settings(b)[:1]] == [
        *("resnet18_imagenet", "shallow_cnn", "resnet50_imagenet", "resnet18_imagenet", "resnet18_imagenet")
    ]
    rates = {block: p.rates(block) for block in atp.BLOCKS}
    assert [(r.rounds, r.cohort, r.lr, r.batch_size) for r in rates.values()] == [
        *((200, 60, 0.1, 20), (400, 60, 0.1, 20), (200, 60, 0.1, 20), (200, 10, 0.5, 200), (500, 21, 0.5, 200))
    ]
    locals_ = [p.settings(b)[0].schedule.local for b in atp.BLOCKS]
    assert [(step.lr, step.smallest) for step in locals_] == [(0.01, 20), (0.1, 2), (0.01, 20), (0.01, 20), (0.05, 20)]
    assert all((step.momentum, step.weight_decay, step.epochs, step.batch_size) == (0, 0, 1, 20) for step in locals_)
    assert p.settings("cifar100")[1].protocol.factor == 51
    assert p.settings("pacs")[0].protocol.n_clients == 7
    assert p.seeds == [0, 1, 2, 3, 4]
    assert p.final().rounds == (-1,)
    assert {s.protocol.targets for b in atp.BLOCKS for s in p.settings(b)} == {0}


def test_full_schedule_of_the_cnn_is_one_training_for_both_blocks():
    """Table 5's Shallow CNN and Figure 4 alone, on the images at hand: the block of Figure 4 is trained and taught as Table 5's."""
    p = parameters(profile="paper", dataset="cifar10_jpeg", model="shallow_cnn", rate_rounds=400, seeds=[0], tables=["T5", "F4"])
    assert p.settings("cifar10") == p.settings("cifar10_cnn")
    assert p.recipes("cifar10") == p.recipes("cifar10_cnn")
    assert {(s.schedule.rounds, s.protocol.n_clients, s.protocol.targets) for s in p.settings("cifar10_cnn")} == {(200, 300, 0)}
    assert [section for section in atp.SECTIONS if p.asks(section)] == ["T5", "F4"]


def test_results_are_means_over_the_last_saved_models():
    assert parameters(rounds=30, last_rounds=3).final().rounds == (-1, 30, 29)
    assert parameters(rounds=40, last_rounds=3).final().rounds == (-1, 39, 37)
    rows = pd.DataFrame(
        {"setting": "s", "method": "EM", "column": "test", "seed": 0, "round": r, "client": c, "draw": 0, "n": n, "accuracy": a}
        for r, values in ((9, (40, 80)), (10, (60, 90)), (11, (50, 70)))
        for c, (n, a) in enumerate(zip((10, 30), values, strict=True))
    )
    row = atp.average(rows).iloc[0]
    assert row["mean"] == pytest.approx((50 / 4 + 70 * 3 / 4 + 60 / 4 + 90 * 3 / 4 + 40 / 4 + 80 * 3 / 4) / 3)
    assert row["n_seeds"] == 1
    assert row["n"] == 40


def test_targets_are_those_of_unused_images():
    p = parameters(images=600, targets=5)
    for setting in p.settings():
        benchmark = setting.protocol.build(0)
        assert sum(not client.source for client in benchmark.clients) == 5
        assert "16 source and 5 target clients" in atp.about(p, benchmark)
    assert sum(not client.source for client in parameters().settings()[0].protocol.build(0).clients) == 4


def test_smoke_cohort_keeps_the_published_share():
    p = parameters()
    assert p.rates("cifar10").cohort == 4
    assert p.rates("pacs").cohort == 20
    assert len(p.recipes()) == 11


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"methods": ["ATP"]}, "unknown method 'ATP'. Did you mean"),
        ({"test_batch": 1}, "test_batch must be at least 2"),
        ({"pacs": "photos"}, "unknown images in the place of pacs 'photos'"),
        ({"rate_lr": "fast"}, "rate_lr must be float or None"),
        ({"tables": ["F12"]}, "unknown table or figure 'F12'"),
        ({"rounds": 4, "last_rounds": 6}, "last_rounds=6 models are asked for, a training of 4 rounds keeps 5"),
        ({"targets": -1}, "targets must be at least 0"),
    ],
)
def test_wrong_parameters_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        parameters(**given)
