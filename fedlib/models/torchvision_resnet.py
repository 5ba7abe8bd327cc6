"""ResNet-18 and ResNet-50 of torchvision with a fresh head (ATP; FedICON and BTFL for their larger images).

The stem is ImageNet's (7x7, stride 2, pool) at every image size, as in ATP, so 32 x 32 inputs end in 1 x 1 maps. ATP starts from
ImageNet weights; without them its numbers are out of reach.
"""

import pickle
from collections import OrderedDict
from pathlib import Path

import torch
from torch import nn

from fedlib.models.net import Net


class TorchvisionResNet(Net):
    """ResNet of ``depth`` 18 (512 features) or 50 (2048); head linear with bias.

    in_shape: (channels, height, width); the first convolution is replaced where images do not have three channels. pretrained: the
    folder of torchvision's file of ImageNet weights (``IMAGENET1K_V1``), or None for a random start. Nothing is downloaded: a missing
    file raises FileNotFoundError, a damaged one ValueError.
    """

    def __init__(
        self,
        in_shape: tuple[int, int, int] = (3, 32, 32),
        n_classes: int = 10,
        depth: int = 18,
        pretrained: str | Path | None = None,
    ):
        from torchvision.models import get_model  # a second to import, and few runs need it

        if depth not in (18, 50):
            raise ValueError(f"depth must be 18 or 50, got {depth}")
        backbone = get_model(f"resnet{depth}", weights=None)
        if pretrained is not None:
            if in_shape[0] != 3:
                raise ValueError(f"ImageNet weights need images of 3 channels, got {in_shape[0]}")
            load_imagenet(backbone, depth, Path(pretrained))
        elif in_shape[0] != 3:
            backbone.conv1 = nn.Conv2d(in_shape[0], 64, 7, 2, 3, bias=False)
            nn.init.kaiming_normal_(backbone.conv1.weight, mode="fan_out", nonlinearity="relu")
        layers = OrderedDict((name, layer) for name, layer in backbone.named_children() if name != "fc")
        layers["flatten"] = nn.Flatten()
        super().__init__(nn.Sequential(layers), nn.Linear(backbone.fc.in_features, n_classes))


def load_imagenet(backbone: nn.Module, depth: int, folder: Path) -> None:
    """Load torchvision's published weights into ``backbone`` from ``folder``."""
    from torchvision.models import get_model_weights

    url = get_model_weights(f"resnet{depth}").IMAGENET1K_V1.url
    path = folder / url.rsplit("/", 1)[-1]
    if not path.is_file():
        raise FileNotFoundError(
            f"no ImageNet weights for ResNet-{depth} at {path}: get {url}, or take resnet{depth}, which starts at random"
        )
    try:
        backbone.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except (RuntimeError, EOFError, TypeError, AttributeError, pickle.UnpicklingError) as error:
        raise ValueError(f"{path} does not hold torchvision's ResNet-{depth} weights: delete it and get {url}") from error
