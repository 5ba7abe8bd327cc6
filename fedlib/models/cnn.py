"""The convolutional network of FedTHE (appendix) and BTFL: two 5x5 convolutions, 64 features, no bias anywhere."""

from torch import nn

from fedlib.models.net import Net


class CNN(Net):
    """conv 5x5 (32), pool, conv 5x5 (64), pool, linear 64; head linear without bias.

    in_shape: (channels, height, width). 32 x 32 inputs are not padded (156,640 parameters with three channels, as published); smaller
    ones are padded by 2 so that both pools keep a map (16 x 16 -> 4 x 4, 28 x 28 -> 7 x 7).
    """

    def __init__(self, in_shape: tuple[int, int, int] = (3, 32, 32), n_classes: int = 10):
        channels, height, width = in_shape
        if height != width or height < 8:
            raise ValueError(f"CNN needs square images of at least 8 pixels, got {height} x {width}")
        padding = 0 if height >= 32 else 2
        side = height
        for _ in range(2):
            side = (side - 4 + 2 * padding) // 2
        extractor = nn.Sequential(
            nn.Conv2d(channels, 32, 5, padding=padding, bias=False),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=padding, bias=False),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * side * side, 64, bias=False),
            nn.ReLU(),
        )
        super().__init__(extractor, nn.Linear(64, n_classes, bias=False))
