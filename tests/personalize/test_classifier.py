from dataclasses import replace

import torch

from fedlib.core import Local
from fedlib.models import state_of
from fedlib.personalize.classifier import OwnClassifier
from fedlib.train.fedicon import fit_classifier
from tests import tiny


def test_every_client_fits_its_own_from_the_received_one():
    """For its own number of epochs, even where the schedule counts steps."""
    task, clients = tiny.task("batchnorm", personal=Local(lr=0.1, batch_size=4, steps=2)), tiny.clients()
    state = state_of(task.model)
    part = OwnClassifier(epochs=3).fit(task, [state] * 3, clients, {}, 4)
    assert set(part) == {"model.head.weight", "model.head.bias"}
    local = Local(lr=0.1, batch_size=4, epochs=3)
    expected = fit_classifier(task, state, clients[1].train, local, task.generator("personal", 1, 4))
    assert torch.equal(part["model.head.weight"][1], expected["head.weight"])


def test_no_epochs_no_change():
    task, clients = tiny.task("batchnorm"), tiny.clients()
    state = state_of(task.model)
    part = OwnClassifier(epochs=0).fit(task, [state] * 3, clients, {}, 1)
    assert all(torch.equal(head, state["head.weight"]) for head in part["model.head.weight"])


def test_memory_holds_training_images_of_the_client():
    task, clients = tiny.task("batchnorm"), tiny.clients((9, 6, 14))
    state = state_of(task.model)
    memory = OwnClassifier(memory=64).fit(task, [state] * 3, clients, {}, 1)["memory"]
    assert memory.shape == (3, 6, *tiny.SHAPE)
    for stored, client in zip(memory, clients, strict=True):
        known = {image.numpy().tobytes() for image in client.train.images}
        assert len({image.numpy().tobytes() for image in stored}) == 6
        assert all(image.numpy().tobytes() in known for image in stored)


def test_every_client_draws_its_own_memory():
    """Two clients with the same images store others of them."""
    task, client = tiny.task("batchnorm"), tiny.client(0, 14)
    clients = [client, replace(client, id=1)]
    first, second = OwnClassifier(memory=4).fit(task, [state_of(task.model)] * 2, clients, {}, 1)["memory"]
    assert not torch.equal(first, second)
