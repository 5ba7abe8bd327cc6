"""A network of two parameters for examples that can be worked out by hand: one white pixel x = 1, logits (w_0 x, w_1 x), no bias.

With a body there is a third, the feature b x in place of x.
"""

import torch
from torch import nn

from fedlib.augment.transform import Transform
from fedlib.core import Client, Local, Samples, Schedule, Task
from fedlib.models import Net

PHASE = Local(lr=1.0, weight_decay=0.0, epochs=1)


def task(local: Local = PHASE, personal: Local = PHASE, body: bool = False) -> Task:
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(1, 1, bias=False)) if body else nn.Flatten()
    model = Net(extractor, nn.Linear(1, 2, bias=False)).double()
    return Task(model, Transform((0.0,), (1.0,), "none"), 2, Schedule(1, local, personal), seed=0, dtype=torch.float64)


def state(*weights: float, body: float | None = None) -> dict[str, torch.Tensor]:
    extractor = {} if body is None else {"extractor.1.weight": torch.tensor([[body]], dtype=torch.float64)}
    return extractor | {"head.weight": torch.tensor(weights, dtype=torch.float64)[:, None]}


def white(*labels: int) -> Samples:
    return Samples(torch.full((len(labels), 1, 1, 1), 255, dtype=torch.uint8), torch.tensor(labels, dtype=torch.int64))


def clients(*labels: tuple[int, ...]) -> list[Client]:
    """One client for each tuple of training labels."""
    return [Client(k, white(*own), white(), {"original": (white(0),)}) for k, own in enumerate(labels)]
