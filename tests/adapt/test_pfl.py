import pytest
import torch

from fedlib.adapt.pfl import PFLEnsemble, PFLSampled
from fedlib.core import Local, Stream
from fedlib.train.fedavg import FedAvg
from fedlib.train.fedper import DONORS, FedPer
from tests import tiny

LOCAL = Local(lr=0.1, weight_decay=0.01, batch_size=4, steps=3, continued=True)
F64 = torch.float64


def test_new_clients_meet_every_donor():
    """Donors that always answer their own class: the expected accuracy of a draw is the mean over donors, here 1/3 per class."""
    task, clients = tiny.task(local=LOCAL), tiny.clients()
    state = FedPer().init(task, clients)["model"]
    state[f"{DONORS}head.weight"] = torch.zeros_like(state[f"{DONORS}head.weight"])
    state[f"{DONORS}head.bias"] = torch.diag(torch.tensor([1.0, 2.0, 4.0], dtype=F64))
    images, new, old = tiny.samples(6).images, 7, 1
    sampled = PFLSampled().run(task, state, {}, Stream(images, "test", new)).scores
    assert sampled.argmax(-1).tolist() == [[0] * 6, [1] * 6, [2] * 6]
    ensemble = PFLEnsemble().run(task, state, {}, Stream(images, "test", new)).scores
    torch.testing.assert_close(ensemble, torch.tensor([[1 / 3, 2 / 3, 4 / 3]] * 6, dtype=F64))
    for adapter in (PFLSampled(), PFLEnsemble()):
        assert adapter.run(task, state, {}, Stream(images, "validation", old)).scores.argmax(-1).tolist() == [1] * 6
    assert PFLEnsemble(own=False).run(task, state, {}, Stream(images, "validation", old)).scores.argmax(-1).tolist() == [2] * 6


def test_other_models_have_no_donors():
    task = tiny.task()
    with pytest.raises(ValueError, match="fedper"):
        PFLSampled().run(task, FedAvg().init(task, [])["model"], {}, Stream(tiny.samples(2).images, "test", 0))
