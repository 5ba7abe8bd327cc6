import math

import torch
from torch import nn

from fedlib.models.resnet import Block, ResNet20GN


def test_features_are_never_negative():
    features = ResNet20GN().extractor(torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    assert features.min() >= 0
    assert features.max() > 0


def test_twenty_layers_with_two_projected_shortcuts():
    model = ResNet20GN()
    convolutions = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    assert sum(layer.kernel_size == (3, 3) for layer in convolutions) == 19
    assert [layer.out_channels for layer in convolutions if layer.kernel_size == (1, 1)] == [32, 64]
    norms = [layer for layer in model.modules() if isinstance(layer, nn.GroupNorm)]
    assert len(norms) == 21
    assert all(layer.num_groups == 2 and layer.eps == 1e-5 for layer in norms)


def test_convolutions_start_normal_with_fan_out_variance():
    torch.manual_seed(0)
    weight = ResNet20GN(width=4).extractor[-3].conv2.weight  # 256 -> 256
    expected = math.sqrt(2 / (9 * 256))
    assert abs(weight.std().item() / expected - 1) < 0.01
    assert weight.abs().max() > 4 * expected  # a uniform start would end at 1.73 standard deviations


def test_maps_are_halved_twice():
    maps = ResNet20GN((1, 16, 16)).extractor[:-2](torch.zeros(1, 1, 16, 16))
    assert maps.shape == (1, 64, 4, 4)


def test_block_adds_its_shortcut_before_the_last_relu():
    x = torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(0))
    for block in (Block(4, 4, 1, 2), Block(4, 8, 2, 2)):
        nn.init.zeros_(block.norm2.weight)
        torch.testing.assert_close(block(x), block.shortcut(x).relu())
        nn.init.ones_(block.norm2.weight)
        branch = block.norm2(block.conv2(block.norm1(block.conv1(x)).relu()))
        torch.testing.assert_close(block(x), (branch + block.shortcut(x)).relu())
