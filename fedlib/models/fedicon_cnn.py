"""FedICON's CNN: FedTHE's two 5x5 convolutions and 64 features, with batch norm after both convolutions.

Paper and code: the paper says "simple CNN" with a 64-dimensional representation and no code is public; batch norm is inferred from
its baselines (FedBN, Tent and EATA have nothing to work on without it).
"""

from torch import nn

from fedlib.models.net import Net


class FedICONCNN(Net):
    """conv 5x5 (32), norm, pool, conv 5x5 (64), norm, pool, linear 64; head linear; no bias but the norms'.

    in_shape: (channels, height, width). Images below 32 pixels are padded by 2 in both convolutions (16 x 16 -> 4 x 4,
    28 x 28 -> 7 x 7), larger ones not at all (32 x 32 -> 5 x 5, 64 x 64 -> 13 x 13). widths: channels after the two convolutions;
    groups: of group norm in place of batch norm, which FedTTA refuses (0: batch norm).
    """

    def __init__(
        self, in_shape: tuple[int, int, int] = (3, 32, 32), n_classes: int = 10, widths: tuple[int, int] = (32, 64), groups: int = 0
    ):
        channels, height, width = in_shape
        if height != width or height < 8:
            raise ValueError(f"FedICONCNN needs square images of at least 8 pixels, got {height} x {width}")
        padding = 0 if height >= 32 else 2
        layers, side = [], height
        for inputs, outputs in ((channels, widths[0]), widths):
            norm = nn.GroupNorm(groups, outputs) if groups else nn.BatchNorm2d(outputs)
            layers += [nn.Conv2d(inputs, outputs, 5, padding=padding, bias=False), norm, nn.ReLU(), nn.MaxPool2d(2)]
            side = (side - 4 + 2 * padding) // 2
        layers += [nn.Flatten(), nn.Linear(widths[1] * side * side, 64, bias=False), nn.ReLU()]
        super().__init__(nn.Sequential(*layers), nn.Linear(64, n_classes, bias=False))
