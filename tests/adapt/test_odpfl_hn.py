import pytest
import torch
from torch.func import functional_call

from fedlib.adapt.odpfl_hn import ODPFLWrite
from fedlib.core import Stream
from fedlib.train.fedavg import FedAvg
from fedlib.train.odpfl_hn import ODPFLHN
from tests import tiny
from tests.oracles.odpfl_hn import network_for


def test_a_new_client_gets_the_network_written_for_its_images():
    task, clients = tiny.task(), tiny.clients()
    state = ODPFLHN().init(task, clients)["model"]
    images = tiny.samples(9, 5).images
    scores = ODPFLWrite().run(task, state, {}, Stream(images, "test", 9)).scores
    expected = functional_call(task.model, network_for(task, state, images), (task.inputs(images),))
    torch.testing.assert_close(scores, expected)
    permuted = ODPFLWrite().run(task, state, {}, Stream(images.flip(0), "test", 9)).scores
    torch.testing.assert_close(permuted, expected.flip(0))
    with pytest.raises(ValueError, match="odpfl_hn"):
        ODPFLWrite().run(task, FedAvg().init(task, clients)["model"], {}, Stream(images, "test", 9))
