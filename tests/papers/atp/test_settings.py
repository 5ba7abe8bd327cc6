import pytest

from fedlib.papers.atp import PAPER
from fedlib.papers.atp.settings import BLOCKS
from fedlib.study import Study

NONE = (
    *("dataset", "cifar100", "digits5", "pacs", "model", "clients", "domain_clients", "images", "rounds", "local_epochs", "rate_rounds"),
    *("targets", "last_rounds", "rate_lr", "batch_size", "test_batch", "lr", "extra", "start", "seeds", "costly_samples", "methods"),
    *("tables", "data_root", "output"),
)


def namespace(**given):
    return dict.fromkeys(NONE) | {"profile": "smoke", "jobs": 1, "device": "cpu", "cache": "cache"} | given


def study(given, **more):
    return Study(PAPER, namespace(**given | more))


def parameters(**given):
    return PAPER.read(namespace(**given))


def test_paper_profile_is_the_published_one():
    p = parameters(profile="paper")
    assert [s.model for b in BLOCKS for s in p.settings(b)[:1]] == [
        *("resnet18_imagenet", "shallow_cnn", "resnet50_imagenet", "resnet18_imagenet", "resnet18_imagenet")
    ]
    rates = {block: p.rates(block) for block in BLOCKS}
    assert [(r.rounds, r.cohort, r.lr, r.batch_size) for r in rates.values()] == [
        *((200, 60, 0.1, 20), (400, 60, 0.1, 20), (200, 60, 0.1, 20), (200, 10, 0.5, 200), (500, 21, 0.5, 200))
    ]
    locals_ = [p.settings(b)[0].schedule.local for b in BLOCKS]
    assert [(step.lr, step.smallest) for step in locals_] == [(0.01, 20), (0.1, 2), (0.01, 20), (0.01, 20), (0.05, 20)]
    assert all((step.momentum, step.weight_decay, step.epochs, step.batch_size) == (0, 0, 1, 20) for step in locals_)
    assert p.settings("cifar100")[1].protocol.factor == 51
    assert p.settings("pacs")[0].protocol.n_clients == 7
    assert p.seeds == [0, 1, 2, 3, 4]
    assert p.request().rounds == (-1,)
    assert {s.protocol.targets for b in BLOCKS for s in p.settings(b)} == {0}


def test_surgical_is_tried_on_the_blocks_that_the_network_has():
    """FedICON's CNN has three, the Shallow CNN and the ResNets four."""
    tried = lambda **given: {c.block for c in parameters(**given).recipes("cifar10")["Surgical"].adapt.candidates}  # noqa: E731
    assert tried(profile="small", model="fedicon_cnn") == {"block1", "block2", "block3", "head"}
    assert tried(profile="small", model="shallow_cnn") == tried(profile="paper") == {"block1", "block2", "block3", "block4", "head"}


def test_full_schedule_of_the_cnn_is_one_training_for_both_blocks():
    """Table 5's Shallow CNN and Figure 4 alone, on the images at hand: the block of Figure 4 is trained and taught as Table 5's."""
    p = parameters(profile="paper", dataset="cifar10_jpeg", model="shallow_cnn", seeds=[0], tables=["T5", "F4"])
    assert p.settings("cifar10") == p.settings("cifar10_cnn")
    assert p.recipes("cifar10") == p.recipes("cifar10_cnn")
    assert p.rates("cifar10").rounds == 400
    assert p.changed(PAPER.profiles) == ["seeds"]
    assert {(s.schedule.rounds, s.protocol.n_clients, s.protocol.targets) for s in p.settings("cifar10_cnn")} == {(200, 300, 0)}
    # The picture of the clients belongs to every run.
    assert [exhibit.name for exhibit in PAPER.exhibits if p.asks(exhibit.name)] == ["clients", "T5", "F4"]


def test_the_models_of_the_last_rounds_are_asked_for_unless_others_are():
    assert parameters(rounds=30, last_rounds=3).request().rounds == (-1, 30, 29)
    assert parameters(rounds=40, last_rounds=3).request().rounds == (-1, 39, 37)
    assert parameters(rounds=40, last_rounds=3).request(rounds=(5,), costly_samples=7).rounds == (5,)


def test_targets_are_those_of_unused_images():
    p = parameters(images=600, targets=5)
    for setting in p.settings():
        benchmark = setting.protocol.build(0)
        assert sum(not client.source for client in benchmark.clients) == 5
    assert "16 source and 5 target clients" in PAPER.who(p, PAPER.exhibit("T1").blocks(p))
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
        ({"pacs": "photos"}, "unknown images in place of pacs 'photos'"),
        ({"rate_lr": "fast"}, "rate_lr must be float or None"),
        ({"tables": ["F12"]}, "unknown table, figure or study 'F12'"),
        ({"rounds": 4, "last_rounds": 6}, "last_rounds=6 models are asked for, but a training of 4 rounds keeps 4"),
        ({"targets": -1}, "targets must be at least 0"),
    ],
)
def test_wrong_parameters_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        parameters(**given)
