"""Networks by name. Adding one: a file with a ``Net`` subclass and a line in ``MODELS``."""

from functools import cache, partial
from pathlib import Path

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
from fedlib.states import State
from fedlib.tools.files import data_folder
from fedlib.tools.names import check_name
from fedlib.tools.seeding import default_draws, derive

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
    "mlp_small": partial(MLP, hidden=100),
    "mlp_big": partial(MLP, hidden=400),
    "convnet": ConvNet,
    "convnet_2048": partial(ConvNet, hidden=2048),
    "convnet_small": partial(ConvNet, channels=(16, 32)),
    "convnet_medium": partial(ConvNet, channels=(32, 64)),
    "convnet_big": partial(ConvNet, channels=(64, 128)),
    "fedicon_cnn": FedICONCNN,
    "fedicon_cnn_small": partial(FedICONCNN, widths=(8, 16)),
    "fedicon_cnn_gn": partial(FedICONCNN, groups=2),
    "fedicon_cnn_gn_small": partial(FedICONCNN, widths=(8, 16), groups=2),
}
# Networks that start from published weights, which have to lie in the data folder (argument ``pretrained``).
PRETRAINED = {
    "resnet18_imagenet": partial(TorchvisionResNet, depth=18),
    "resnet50_imagenet": partial(TorchvisionResNet, depth=50),
}

__all__ = ["MODELS", "Net", "build", "build_head", "build_linear", "negative_features", "norm_kinds", "norm_layers", "state_of"]


def build_head(model: Net, seed: int, client: int) -> torch.Tensor:
    """Weight [C, d] of a fresh personal head without bias, framework-default initialisation, one per client."""
    with default_draws(derive(seed, "personal head", client)):
        return torch.nn.Linear(model.head.in_features, model.head.out_features, bias=False).weight.detach().to(model.head.weight)


def build_linear(model: Net, outputs: int, seed: int, *purpose: str | int) -> State:
    """Weight [outputs, d] and bias [outputs] of a fresh linear layer on the features of ``model``, framework-default initialisation."""
    with default_draws(derive(seed, *purpose)):
        return {n: t.detach().to(model.head.weight) for n, t in torch.nn.Linear(model.head.in_features, outputs).named_parameters()}


def build(name: str | type[Net], in_shape: tuple[int, int, int], n_classes: int, seed: int, root: str | Path | None = None) -> Net:
    """Network ``name``, or one of a user's class, for images of ``in_shape``, initialised from ``seed`` alone (the caller's random state
    stays). root: of published weights, as for ``fedlib.data.load``. Raises ValueError for an unknown name and for a class that is no
    ``Net``, FileNotFoundError where published weights are absent."""
    if isinstance(name, type):
        if not issubclass(name, Net):
            raise ValueError(f"network {name.__name__} must be a subclass of fedlib.Net, which has an extractor and a head")
        with default_draws(derive(seed, "parameters", name.__name__)):
            return name(in_shape, n_classes)
    check_name(name, MODELS | PRETRAINED, "model")
    with default_draws(derive(seed, "parameters", name)):
        if name in PRETRAINED:
            return PRETRAINED[name](in_shape, n_classes, pretrained=data_folder(root))
        return MODELS[name](in_shape, n_classes)


@cache
def norm_kinds(name: str | type[Net]) -> frozenset[type]:
    """The classes of the batch-norm layers of a network, its name or its class, with published weights or without."""
    network = build(name.removesuffix("_imagenet") if isinstance(name, str) else name, (3, 32, 32), 10, seed=0)
    return frozenset(map(type, norm_layers(network).values()))


@torch.no_grad()
def negative_features(network: Net, inputs: torch.Tensor) -> bool:
    """Whether the network, as it is initialised, has negative features of some ``inputs``, as without a ReLU at the end."""
    return bool((network.extractor(inputs) < 0).any())
