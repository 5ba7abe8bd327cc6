from functools import partial

import pytest
import torch
from torch import nn

from fedlib.adapt.tent import Tent, affine
from fedlib.models import Net
from tests import tiny
from tests.adapt.cases import case
from tests.oracles import batch_adaptation as oracle

NAMES = ["extractor.1.weight", "extractor.1.bias"]


def test_an_unknown_optimizer_is_refused():
    with pytest.raises(ValueError, match=r"unknown optimizer 'adm'.* Did you mean 'adam'"):
        Tent(optimizer="adm")


@pytest.mark.parametrize(("optimizer", "reference"), [("sgd", torch.optim.SGD), ("adam", torch.optim.Adam)])
def test_equals_the_plain_version(optimizer, reference):
    task, state, stream = case()
    scores = Tent(0.5, 4, optimizer).run(task, state, {}, stream).scores
    loss = lambda features, logits: oracle.entropy(logits)  # noqa: E731
    expected = oracle.online(task, state, stream, 4, NAMES, loss, partial(reference, lr=0.5))
    torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-10)


def test_a_network_in_which_nothing_would_move_is_refused():
    Tent().check_network(tiny.net("batchnorm"))
    with pytest.raises(ValueError, match="only two-dimensional batch norm moves"):
        Tent().check_network(Net(nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.BatchNorm1d(5)), nn.Linear(5, 3)))
    bare, whole = nn.BatchNorm2d(2, affine=False), nn.BatchNorm2d(2)
    with pytest.raises(ValueError, match="this network has none with weights"):
        Tent().check_network(Net(nn.Sequential(nn.Conv2d(1, 2, 3), bare, nn.Flatten()), nn.Linear(32, 3)))
    network = Net(nn.Sequential(nn.Conv2d(1, 2, 3), bare, nn.Conv2d(2, 2, 3), whole, nn.Flatten()), nn.Linear(8, 3))
    assert affine(network) == ["extractor.3.weight", "extractor.3.bias"]


def test_first_batch_is_answered_before_any_step_and_later_ones_after():
    task, state, stream = case(12)
    slow, fast = (Tent(lr, 4).run(task, state, {}, stream).scores for lr in (1e-9, 1.0))
    assert torch.equal(slow[:4], fast[:4])
    assert (slow[4:] - fast[4:]).abs().max() > 1e-4


def test_received_model_and_network_stay_as_they_were():
    task, state, stream = case()
    before = {name: tensor.clone() for name, tensor in state.items()}
    first = Tent(1.0, 4).run(task, state, {}, stream).scores
    assert all(torch.equal(state[name], tensor) for name, tensor in before.items())
    assert torch.equal(Tent(1.0, 4).run(task, state, {}, stream).scores, first)


def test_a_last_batch_of_one_joins_the_one_before():
    task, state, stream = case(9)
    assert Tent(0.1, 4).run(task, state, {}, stream).scores.shape == (9, 3)


def test_only_two_dimensional_batch_norm_moves():
    """The Shallow CNN has a one-dimensional one as well."""
    body = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 4), nn.BatchNorm1d(4))
    assert affine(Net(body, nn.Linear(4, 3))) == NAMES
