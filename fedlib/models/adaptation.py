"""UPFL's adaptation model g: judges predictions, one number per sample, without labels."""

from itertools import pairwise

from torch import Tensor, nn


class Adaptation(nn.Module):
    """Logits [N, classes] -> [N, 1] through three hidden layers of ``hidden`` units with ReLU, 32 classes + 2,177 parameters.

    hidden: 32; where clients have networks of three sizes, 32, 64 and 128 go with the small, medium and big one. Paper and code:
    the appendix shows two hidden layers there, the code has three, which is what stands here.
    """

    def __init__(self, n_classes: int, hidden: int = 32):
        super().__init__()
        layers = []
        for inputs, outputs in pairwise((n_classes, hidden, hidden, hidden)):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(hidden, 1))

    def forward(self, logits: Tensor) -> Tensor:
        return self.layers(logits)
