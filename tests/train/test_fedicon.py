from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from fedlib import federation
from fedlib.cache.store import Store
from fedlib.core import Local
from fedlib.models import state_of
from fedlib.train.contrastive import Contrast
from fedlib.train.fedicon import FedICON, fit_classifier
from tests import tiny

QUICK = FedICON(Contrast(lr=0.05), classifier_rounds=2)


def a_task(rounds=4, **fields):
    return tiny.task("batchnorm", dtype=torch.float32, rounds=rounds, local=Local(lr=0.1, momentum=0.9, batch_size=8, epochs=2), **fields)


def trained(method, rounds=4, clients=None):
    return federation.run(a_task(rounds), method, clients or tiny.clients(), Store(None), "key", {}, progress=False)


def changed(before, after):
    return {name.split(".")[0] for name in before if not torch.allclose(before[name], after[name])}


def test_first_the_encoder_then_the_classifier():
    run = trained(QUICK)
    moved = [changed(run.state(t)["model"], run.state(t + 1)["model"]) for t in range(1, 5)]
    assert moved == [{"extractor"}, {"extractor"}, {"head"}, {"head"}]


def test_the_total_decides_when_the_classifier_starts():
    assert changed(*(trained(QUICK, 5).state(t)["model"] for t in (3, 4))) == {"extractor"}
    assert QUICK.whole_run


def test_labels_reach_the_unsupervised_encoder_only_through_the_classifier():
    clients = tiny.clients()
    other = [replace(c, train=replace(c.train, labels=c.train.labels.flip(0))) for c in clients]
    for method, same in ((replace(QUICK, supervised=False), True), (QUICK, False)):
        first, second = (trained(method, clients=group).state(5)["model"] for group in (clients, other))
        assert torch.equal(first["extractor.0.weight"], second["extractor.0.weight"]) == same
        assert not torch.equal(first["head.weight"], second["head.weight"])


def test_average_is_weighted_by_size():
    task, clients = a_task(), [tiny.client(0, 4), tiny.client(1, 12)]
    server = QUICK.init(task, clients)
    messages = [{name: torch.full_like(t, k) for name, t in server["model"].items()} for k in (0, 1)]
    assert QUICK.aggregate(task, server, messages, clients, 1)["model"]["head.weight"].unique().tolist() == [0.75]


def test_without_sharing_clients_do_not_see_each_other():
    method = replace(QUICK, share=False)
    among, alone = trained(method).received(5, 3)[0], trained(method, clients=tiny.clients()[:1]).received(5, 1)[0]
    assert all(torch.equal(among[name], alone[name]) for name in alone)


def test_needs_a_round_for_the_encoder():
    with pytest.raises(ValueError, match="more rounds than its 5"):
        FedICON().check_schedule(a_task(5).schedule)


@pytest.mark.parametrize("limit", [{"clip": 1e-6}, {"milestone": 1}])
def test_the_classifier_heeds_clip_and_milestone(limit):
    task, samples = a_task(), tiny.client(0).train
    fitted = lambda local: fit_classifier(task, state_of(task.model), samples, local, torch.Generator().manual_seed(0))["head.weight"]  # noqa: E731
    assert not torch.equal(fitted(task.schedule.local), fitted(replace(task.schedule.local, **limit)))


def test_classifier_equals_torch_on_frozen_features():
    task = tiny.task("batchnorm")
    samples, local = tiny.samples(10), Local(lr=0.2, momentum=0.9, weight_decay=0.01, batch_size=4, epochs=3)
    state = state_of(task.model)
    fitted = fit_classifier(task, state, samples, local, task.generator("x"))
    features, _ = task.predict(state, samples.images)
    head = torch.nn.Linear(5, tiny.CLASSES).double()
    head.load_state_dict({"weight": state["head.weight"], "bias": state["head.bias"]})
    optimizer = torch.optim.SGD(head.parameters(), lr=0.2, momentum=0.9, weight_decay=0.01)
    draws = task.generator("x")
    for _ in range(3):
        for index in torch.randperm(10, generator=draws).split(4):
            optimizer.zero_grad()
            functional.cross_entropy(head(features[index]), samples.labels[index]).backward()
            optimizer.step()
    torch.testing.assert_close(fitted["head.weight"], head.weight.detach(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(fitted["head.bias"], head.bias.detach(), rtol=1e-9, atol=1e-9)
    assert changed(state, fitted) == {"head"}
