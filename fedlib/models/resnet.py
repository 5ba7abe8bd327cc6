"""ResNet20 with group norm (FedTHE, BTFL): three stages of three basic blocks, 64 x width features."""

import math

from torch import Tensor, nn
from torch.nn.functional import relu

from fedlib.models.net import Net


class Block(nn.Module):
    """relu(norm(conv(relu(norm(conv x)))) + shortcut x), convolutions 3 x 3; the shortcut is the identity, or a 1 x 1
    convolution and a norm where the shape changes. No bias in convolutions.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, groups: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(groups, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(groups, outputs)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.GroupNorm(groups, outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(relu(self.norm1(self.conv1(x)))))
        return relu(y + self.shortcut(x))


class ResNet20GN(Net):
    """conv 3x3, stages of 16, 32 and 64 (times ``width``) channels, spatial mean; head linear without bias.

    in_shape: (channels, height, width), of any size. Features are means of rectified maps, so they are never negative.
    width: 1 (CIFAR-10: 272,464 parameters) or 4 (ImageNet-32 with 86 classes: 4,347,200); groups: group-norm groups per layer, 2 in
    both papers (1 in BTFL's script). The published weight decay spares the first norm, ``norm1`` and ``norm2``, but not the norm in
    ``shortcut``.
    """

    def __init__(self, in_shape: tuple[int, int, int] = (3, 32, 32), n_classes: int = 10, width: int = 1, groups: int = 2):
        planes = 16 * width
        layers = [nn.Conv2d(in_shape[0], planes, 3, 1, 1, bias=False), nn.GroupNorm(groups, planes), nn.ReLU()]
        for stage in range(3):
            outputs = 16 * width * 2**stage
            for block in range(3):
                layers.append(Block(planes, outputs, 2 if stage > 0 and block == 0 else 1, groups))
                planes = outputs
        extractor = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        super().__init__(extractor, nn.Linear(planes, n_classes, bias=False))
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.normal_(layer.weight, 0, math.sqrt(2 / (layer.kernel_size[0] ** 2 * layer.out_channels)))

    def feels_decay(self, name: str) -> bool:
        return ".norm" not in name and not name.startswith("extractor.1.")
