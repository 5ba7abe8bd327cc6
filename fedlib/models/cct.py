"""Compact convolutional transformer CCT-4/3x2 (Hassani et al. 2021) as FedTHE and BTFL use it: 482,123 parameters on CIFAR-10.

Dropout and stochastic depth act in training mode and draw from torch's default generator; under ``torch.func.vmap`` they need
``randomness="different"``.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, gelu

from fedlib.models.net import Net


class Transpose(nn.Module):
    """Channels-first maps [N, width, T] to tokens [N, T, width]."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


class Positions(nn.Module):
    """Adds a learnable vector per token. A module of its own, so that parameters are registered in forward order."""

    def __init__(self, tokens: int, width: int):
        super().__init__()
        self.table = nn.Parameter(torch.empty(1, tokens, width))
        nn.init.trunc_normal_(self.table, std=0.2)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table


class Attention(nn.Module):
    """Multi-head self-attention on [N, T, width], query, key and value without bias."""

    def __init__(self, width: int, heads: int, rate: float):
        super().__init__()
        self.heads, self.rate = heads, rate
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.projection = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
        weights = dropout(scores.softmax(-1), self.rate, self.training)
        return self.projection((weights @ value).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention, then an MLP as wide as its input. The second residual starts from the *normalised* tokens, as in FedTHE's code."""

    def __init__(self, width: int, heads: int, attention_dropout: float, depth_rate: float):
        super().__init__()
        self.depth_rate = depth_rate
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, attention_dropout)
        self.norm2 = nn.LayerNorm(width)
        self.linear1 = nn.Linear(width, width)
        self.linear2 = nn.Linear(width, width)

    def kept(self, branch: Tensor) -> Tensor:
        """Stochastic depth: in training, each sample loses the branch with probability ``depth_rate``."""
        return branch * dropout(torch.ones_like(branch[:, :1, :1]), self.depth_rate, self.training)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm2(x + self.kept(self.attention(self.norm1(x))))
        return x + self.kept(self.linear2(gelu(self.linear1(x))))


class SequencePool(nn.Module):
    """Mean of the tokens [N, T, width] -> [N, width], weighed by a learned softmax."""

    def __init__(self, width: int):
        super().__init__()
        self.score = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return (self.score(x).softmax(1).transpose(1, 2) @ x).squeeze(1)


class CCT4(Net):
    """Two convolutions make tokens (32 x 32: 64, 28 x 28: 49, 16 x 16: 16), four transformer blocks of width 128, sequence pooling.

    relu_features: rectify the 128 features before the head, which BTFL's frequency tables need (they assume non-negative features);
    FedTHE's are left as they are.
    """

    def __init__(self, in_shape: tuple[int, int, int] = (3, 32, 32), n_classes: int = 10, relu_features: bool = False):
        channels, height, width = in_shape
        tokens = -(-height // 4) * -(-width // 4)
        layers = [nn.Conv2d(channels, 64, 3, 1, 1, bias=False), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        layers += [nn.Conv2d(64, 128, 3, 1, 1, bias=False), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        layers += [nn.Flatten(2), Transpose(), Positions(tokens, 128)]
        layers += [Block(128, 2, 0.1, rate) for rate in torch.linspace(0, 0.1, 4).tolist()]
        layers += [nn.LayerNorm(128), SequencePool(128)]
        extractor = nn.Sequential(*layers, *([nn.ReLU()] if relu_features else []))
        for layer in extractor.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight)
            elif isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
        super().__init__(extractor, nn.Linear(128, n_classes))
