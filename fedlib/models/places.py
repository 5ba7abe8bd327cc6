"""Where a tensor stands in a network and what kind it is: the groups in which ATP looks at modules."""

from functools import cache

from torch import nn

from fedlib.models import build
from fedlib.models.net import Net, norm_layers


def places(model: Net) -> dict[str, str]:
    """Tensor name -> ``stem``, ``block1`` ... or ``head``, parameters and running statistics of all layers.

    In torchvision's ResNets a residual stage is a block, and ``stem`` what stands before; in a network whose extractor lists its layers,
    each convolution or hidden linear layer with its norm is one. Of an extractor in parts (``nn.Sequential``), each part is a block.
    """
    staged = any(isinstance(child, nn.Sequential) for child in model.extractor.children())
    found, number = {}, 0
    for name, child in model.extractor.named_children():
        if isinstance(child, nn.Sequential) or (not staged and isinstance(child, nn.Conv2d | nn.Linear)):
            number += 1
        for tensor in _tensors(child):
            found[f"extractor.{name}.{tensor}"] = f"block{number}" if number else "stem"
    return found | {f"head.{tensor}": "head" for tensor in _tensors(model.head)}


@cache
def blocks(network: str | type[Net]) -> tuple[str, ...]:
    """The places of a network, by its name or class, in its order."""
    name = network if isinstance(network, type) else network.removesuffix("_imagenet")
    return tuple(dict.fromkeys(places(build(name, (3, 32, 32), 10, seed=0)).values()))


def kinds(model: Net) -> dict[str, str]:
    """Tensor name -> ``convolution``, ``running mean``, ``running variance``, ``norm weight``, ``norm bias``, ``hidden weight``, ``hidden
    bias``, ``last weight`` or ``last bias``."""
    norms, found = set(norm_layers(model)), {}
    for name in places(model):
        layer, _, tensor = name.rpartition(".")
        if isinstance(model.get_submodule(layer), nn.Conv2d):
            found[name] = "convolution"
        else:
            place = "last" if layer == "head" else "norm" if layer in norms else "hidden"
            found[name] = {"running_mean": "running mean", "running_var": "running variance"}.get(tensor, f"{place} {tensor}")
    return found


def _tensors(layer: nn.Module) -> list[str]:
    """Names of parameters and running statistics, without counters."""
    return [name for name, tensor in (*layer.named_parameters(), *layer.named_buffers()) if tensor.is_floating_point()]
