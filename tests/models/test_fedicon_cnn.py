import pytest
import torch
from torch import nn

from fedlib.models import norm_layers
from fedlib.models.fedicon_cnn import FedICONCNN


@pytest.mark.parametrize(("side", "flat"), [(16, 1024), (28, 3136), (32, 1600), (64, 10816)])
def test_hidden_layer(side, flat):
    model = FedICONCNN((3, side, side))
    assert model.extractor[9].in_features == flat
    assert model.extractor[9].bias is None
    assert model.head.bias is None


def test_batch_norm_follows_each_convolution():
    model = FedICONCNN()
    assert list(norm_layers(model)) == ["extractor.1", "extractor.5"]
    assert isinstance(model.extractor[0], nn.Conv2d)
    assert isinstance(model.extractor[4], nn.Conv2d)


def test_group_norm_takes_the_places_of_batch_norm():
    batch, group = FedICONCNN(), FedICONCNN(groups=2)
    assert norm_layers(group) == {}
    assert [group.extractor[i].num_groups for i in (1, 5)] == [2, 2]
    shapes = [{name: tensor.shape for name, tensor in model.named_parameters()} for model in (batch, group)]
    assert shapes[0] == shapes[1]


def test_widths_are_those_of_the_convolutions():
    model = FedICONCNN((3, 16, 16), widths=(8, 16))
    assert [model.extractor[i].out_channels for i in (0, 4)] == [8, 16]
    assert [model.extractor[9].in_features, model.extractor[9].out_features] == [256, 64]


def test_features_are_rectified():
    x = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert FedICONCNN().extractor(x).min() == 0


def test_refuses_other_shapes():
    with pytest.raises(ValueError, match="square images"):
        FedICONCNN((3, 6, 6))
