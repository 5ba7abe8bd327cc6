"""FedAvg on views: what it sees, and that nothing else differs from FedAvg."""

from dataclasses import replace

import pytest
import torch

from fedlib.augment.views import contrastive_views
from fedlib.core import Local
from fedlib.tools.seeding import generator
from fedlib.train import fedavg_views
from fedlib.train.contrastive import OneView, TwoViews
from fedlib.train.fedavg import FedAvg
from fedlib.train.fedavg_views import FedAvgViews
from tests import tiny


def one_round(method, task):
    clients = tiny.clients()
    server = method.init(task, clients)
    return method.aggregate(task, server, method.update(task, server, clients, 1), clients, 1)["model"]


@pytest.mark.parametrize("kind", ["digits", "objects", "cifar"])
def test_a_view_is_the_first_of_fedicons_two(kind):
    images = tiny.samples(5, 3).images.expand(-1, 3, -1, -1)
    draws = OneView((0.5,) * 3, (0.5,) * 3, kind=kind).draws(5, generator(1, "views"))
    assert torch.equal(draws, TwoViews((0.5,) * 3, (0.5,) * 3, kind=kind).draws(5, generator(1, "views")))
    view = OneView((0.5,) * 3, (0.5,) * 3, kind=kind).augmented(images, draws)
    assert view.shape == images.shape
    assert torch.equal(view, contrastive_views(images, torch.Generator().manual_seed(draws.item()), kind=kind, n_views=1)[:, 0])
    assert not torch.equal(view, images.float() / 255)


def test_without_a_change_of_the_images_it_is_fedavg(monkeypatch):
    """Views that leave the images alone, and a FedAvg whose own augmentation draws as often."""
    monkeypatch.setattr(OneView, "augmented", lambda self, images, draws: images)
    task = tiny.task("batchnorm", local=Local(lr=0.1, batch_size=4, epochs=2))
    plain = replace(task, transform=OneView(task.transform.mean, task.transform.std))
    expected = one_round(FedAvg(weighting="samples"), plain)
    found = one_round(FedAvgViews(), task)
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_training_sees_views(monkeypatch):
    task = tiny.task("batchnorm", local=Local(lr=0.1, batch_size=4, epochs=1))
    seen = []
    original = fedavg_views.OneView.augmented
    monkeypatch.setattr(OneView, "augmented", lambda self, images, draws: seen.append(len(images)) or original(self, images, draws))
    moved = one_round(FedAvgViews(), task)
    assert sum(seen) == sum(len(client.train) for client in tiny.clients())
    assert not torch.equal(moved["head.weight"], one_round(FedAvg(weighting="samples"), task)["head.weight"])


def test_unknown_views():
    with pytest.raises(ValueError, match="digits"):
        FedAvgViews("digit")
