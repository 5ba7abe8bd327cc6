"""UPFL's network for MNIST: two hidden layers of 200."""

import math

from torch import nn

from fedlib.models.net import Net


class MLP(Net):
    """pixels - 200 - 200 - classes, ReLU, images of any shape (1 x 28 x 28: 199,210 parameters). hidden: another width than 200."""

    def __init__(self, in_shape: tuple[int, int, int] = (1, 28, 28), n_classes: int = 10, hidden: int = 200):
        extractor = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(in_shape), hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        super().__init__(extractor, nn.Linear(hidden, n_classes))
