"""UPFL's convolutional networks: two padded 5x5 convolutions and a wide hidden layer, in three sizes for unequal clients."""

from collections import OrderedDict

from torch import nn

from fedlib.models.net import Net


class ConvNet(Net):
    """conv 5x5, pool, conv 5x5, pool (``extractor.body``), linear (``extractor.hidden``); head linear. ReLU, biases, no norm.

    in_shape: (channels, height, width), sides divisible by 4 (16, 28, 32). channels: of the two convolutions, (16, 32) small,
    (32, 64) medium, (64, 128) big; hidden: 512, FEMNIST 2048. UPFL's head is ``extractor.hidden`` and ``head`` together.
    """

    def __init__(
        self, in_shape: tuple[int, int, int] = (3, 32, 32), n_classes: int = 10, channels: tuple[int, int] = (32, 64), hidden: int = 512
    ):
        inputs, height, width = in_shape
        if height % 4 or width % 4:
            raise ValueError(f"ConvNet needs image sides divisible by 4, got {height} x {width}")
        first, second = channels
        body = nn.Sequential(
            nn.Conv2d(inputs, first, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(first, second, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        flat = second * (height // 4) * (width // 4)
        extractor = nn.Sequential(OrderedDict(body=body, hidden=nn.Linear(flat, hidden), relu=nn.ReLU()))
        super().__init__(extractor, nn.Linear(hidden, n_classes))
