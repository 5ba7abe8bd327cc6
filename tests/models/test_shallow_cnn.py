import pytest
import torch
from torch import nn

from fedlib.models import norm_layers
from fedlib.models.shallow_cnn import ShallowCNN


@pytest.mark.parametrize(("side", "flat"), [(16, 1024), (28, 3136), (32, 1024)])
def test_padding_only_below_32_pixels(side, flat):
    layer = [layer for layer in ShallowCNN((3, side, side)).extractor if isinstance(layer, nn.Linear)]
    assert layer[0].in_features == flat


def test_every_hidden_layer_is_normalised():
    model = ShallowCNN()
    layers = list(norm_layers(model).values())
    assert [type(layer) for layer in layers] == [nn.BatchNorm2d] * 3 + [nn.BatchNorm1d]


def test_third_convolution_is_not_pooled():
    model = ShallowCNN().eval()
    assert sum(isinstance(layer, nn.MaxPool2d) for layer in model.extractor) == 2
    assert model.extractor[:11](torch.zeros(1, 3, 32, 32)).shape == (1, 64, 4, 4)


def test_refuses_other_shapes():
    with pytest.raises(ValueError, match="square images"):
        ShallowCNN((3, 32, 28))
