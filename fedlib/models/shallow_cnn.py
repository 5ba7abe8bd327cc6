"""ATP's Shallow CNN: three 3x3 convolutions and a hidden layer of 64, each followed by batch norm."""

from torch import nn

from fedlib.models.net import Net


class ShallowCNN(Net):
    """conv 32, pool, conv 64, pool, conv 64, linear 64, each with batch norm and ReLU; head linear with bias.

    in_shape: (channels, height, width). 32 x 32 inputs are not padded (122,858 trainable parameters with three channels, as
    published); below that all three convolutions pad by 1, or little would be left (16 x 16 -> 4 x 4, 28 x 28 -> 7 x 7).
    """

    def __init__(self, in_shape: tuple[int, int, int] = (3, 32, 32), n_classes: int = 10):
        channels, height, width = in_shape
        if height != width or height < 8:
            raise ValueError(f"ShallowCNN needs square images of at least 8 pixels, got {height} x {width}")
        padding = 0 if height >= 32 else 1
        shrink = 2 - 2 * padding
        side = ((height - shrink) // 2 - shrink) // 2 - shrink
        layers = []
        for inputs, outputs in ((channels, 32), (32, 64), (64, 64)):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=padding, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
        layers[-1] = nn.Flatten()  # the third convolution is not pooled
        layers += [nn.Linear(64 * side * side, 64), nn.BatchNorm1d(64), nn.ReLU()]
        super().__init__(nn.Sequential(*layers), nn.Linear(64, n_classes))
