import torch
from torch import nn

from fedlib.models import Net, norm_layers, state_of


def small_net() -> Net:
    return Net(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3), nn.BatchNorm1d(3)), nn.Linear(3, 4))


def test_names_begin_with_extractor_or_head():
    names = list(state_of(small_net()))
    assert names[:2] == ["extractor.0.weight", "extractor.0.bias"]
    assert {name.split(".")[0] for name in names} == {"extractor", "head"}
    assert "extractor.1.running_var" in names


def test_norm_layers_in_forward_order():
    assert norm_layers(small_net()) == ["extractor.1", "extractor.4"]


def test_state_is_a_copy():
    model = small_net()
    state = state_of(model)
    with torch.no_grad():
        model.head.weight.add_(1)
    assert torch.equal(state["head.weight"] + 1, model.head.weight)
    assert not any(tensor.requires_grad for tensor in state.values())
