"""Networks by name. Adding one: a file with a ``Net`` subclass and a line in ``MODELS``."""

from functools import partial

import torch

from fedlib.models.cct import CCT4
from fedlib.models.cnn import CNN
from fedlib.models.convnet import ConvNet
from fedlib.models.fedicon_cnn import FedICONCNN
from fedlib.models.mlp import MLP
from fedlib.models.net import Net, norm_layers, state_of
from fedlib.models.resnet import ResNet20GN
from fedlib.models.shallow_cnn import ShallowCNN
from fedlib.models.torchvision_resnet import TorchvisionResNet
from fedlib.names import check_name
from fedlib.seeding import derive

MODELS = {
    "cnn": CNN,
    "resnet20gn": ResNet20GN,
    "resnet20gn_w4": partial(ResNet20GN, width=4),
    "cct4": CCT4,
    "cct4_relu": partial(CCT4, relu_features=True),
    "shallow_cnn": ShallowCNN,
    "resnet18": partial(TorchvisionResNet, depth=18),
    "resnet50": partial(TorchvisionResNet, depth=50),
    "mlp": MLP,
    "convnet": ConvNet,
    "convnet_2048": partial(ConvNet, hidden=2048),
    "convnet_small": partial(ConvNet, channels=(16, 32)),
    "convnet_medium": partial(ConvNet, channels=(32, 64)),
    "convnet_big": partial(ConvNet, channels=(64, 128)),
    "fedicon_cnn": FedICONCNN,
}

__all__ = ["MODELS", "Net", "build", "build_head", "norm_layers", "state_of"]


def build_head(model: Net, seed: int, client: int) -> torch.Tensor:
    """Weight [C, d] of a fresh personal head without bias, framework-default initialisation, one per client."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "personal head", client))
        return torch.nn.Linear(model.head.in_features, model.head.out_features, bias=False).weight.detach().to(model.head.weight)


def build(name: str, in_shape: tuple[int, int, int], n_classes: int, seed: int) -> Net:
    """Network ``name`` for images of ``in_shape``, initialised from ``seed`` alone (the caller's random state stays)."""
    check_name(name, MODELS, "model")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "parameters", name))
        return MODELS[name](in_shape, n_classes)
