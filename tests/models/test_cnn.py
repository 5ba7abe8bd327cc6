import pytest
import torch
from torch import nn

from fedlib.models.cnn import CNN


@pytest.mark.parametrize(("side", "flat"), [(16, 1024), (28, 3136), (32, 1600), (64, 10816)])
def test_padding_only_below_32_pixels(side, flat):
    layer = [layer for layer in CNN((3, side, side)).extractor if isinstance(layer, nn.Linear)]
    assert layer[0].in_features == flat


def test_no_bias_and_rectified_features():
    model = CNN()
    assert not any(name.endswith("bias") for name, _ in model.named_parameters())
    assert model.extractor(torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))).min() == 0


@pytest.mark.parametrize("shape", [(3, 32, 28), (3, 7, 7)])
def test_refuses_other_shapes(shape):
    with pytest.raises(ValueError, match="square images"):
        CNN(shape)
