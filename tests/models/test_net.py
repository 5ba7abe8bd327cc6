import pytest
import torch
from torch import nn

from fedlib.models import Net, norm_layers, state_of
from fedlib.models.net import features_and_logits, training


def small_net() -> Net:
    return Net(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3), nn.BatchNorm1d(3)), nn.Linear(3, 4))


def test_names_begin_with_extractor_or_head():
    names = list(state_of(small_net()))
    assert names[:2] == ["extractor.0.weight", "extractor.0.bias"]
    assert {name.split(".")[0] for name in names} == {"extractor", "head"}
    assert "extractor.1.running_var" in names


def test_norm_layers_in_forward_order():
    assert list(norm_layers(small_net())) == ["extractor.1", "extractor.4"]


def test_state_is_a_copy():
    model = small_net()
    state = state_of(model)
    with torch.no_grad():
        model.head.weight.add_(1)
    assert torch.equal(state["head.weight"] + 1, model.head.weight)
    assert not any(tensor.requires_grad for tensor in state.values())


def test_features_and_logits_are_those_of_the_given_state():
    model, other = small_net().eval(), small_net().eval()
    inputs = torch.randn(5, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    features, logits = features_and_logits(model, state_of(other), inputs)
    assert torch.equal(features, other.extractor(inputs))
    assert torch.equal(logits, other(inputs))


def test_a_batch_of_one_in_training_mode_says_what_to_change():
    model, one = small_net(), torch.zeros(1, 1, 4, 4)
    with pytest.raises(ValueError, match=r"batch norm of Net is undefined: take another batch_size.*smallest=2"), training(model):
        model(one)
    assert not model.training
    with training(model, statistics=False):
        model(one)
    with pytest.raises(ValueError, match="another error"), training(model):
        raise ValueError("another error")
