"""A network split where the methods need it: an extractor and a linear head."""

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedlib.states import State, part


class Net(nn.Module):
    """``head(extractor(images))``.

    extractor: images [N, C, H, W] -> features [N, d]; head: the last linear layer, features -> logits [N, classes]. States are
    dictionaries of tensors whose names begin with ``extractor.`` or ``head.``.

    A network of your own is a class built from the shape of the images and the number of classes; pass the class itself in a setting:

    >>> import fedlib, math, torch
    >>> class Small(fedlib.Net):
    ...     def __init__(self, in_shape, n_classes):
    ...         features = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(math.prod(in_shape), 32), torch.nn.ReLU())
    ...         super().__init__(features, torch.nn.Linear(32, n_classes))
    >>> schedule = fedlib.Schedule(rounds=3, local=fedlib.Local(lr=0.1))
    >>> setting = fedlib.Setting("small network", fedlib.BRFL("digits", n_clients=4), Small, schedule)
    >>> rows = fedlib.run([setting], fedlib.recipes_of("fedthe", "FedAvg", "FedTHE"), seeds=[0], cache=None)
    >>> list(fedlib.table(rows).index), rows["model"].unique().tolist()
    (['FedAvg', 'FedTHE'], ['Small'])
    """

    def __init__(self, extractor: nn.Module, head: nn.Linear):
        super().__init__()
        self.extractor = extractor
        self.head = head

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.extractor(images))

    def feels_decay(self, name: str) -> bool:
        """Whether weight decay acts on the parameter ``name`` of a state."""
        return True


def norm_layers(model: nn.Module) -> dict[str, nn.Module]:
    """The batch-norm layers by name, in the order of the forward pass."""
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)}


def features_and_logits(model: Net, state: State, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Features [n, d] and logits [n, C] of network inputs [n, C, H, W] under ``state``."""
    features = functional_call(model.extractor, part(state, "extractor."), (inputs,))
    return features, functional_call(model.head, part(state, "head."), (features,))


def moving_names(model: nn.Module, state: State, trainable: Callable[[str], bool] = lambda name: True) -> list[str]:
    """Names of the tensors of ``state`` that gradients move: all but the buffers of ``model``, as far as ``trainable``."""
    buffers = dict(model.named_buffers())
    return [name for name in state if name not in buffers and trainable(name)]


def state_of(model: nn.Module) -> State:
    """Parameters and buffers of ``model`` as detached copies on its device, in registration order."""
    state = dict(model.named_parameters()) | dict(model.named_buffers())
    return {name: tensor.detach().clone() for name, tensor in state.items()}


@contextlib.contextmanager
def training(network: Net, *, statistics: bool = True) -> Iterator[None]:
    """The network in training mode while the block runs, in evaluation mode after it. statistics: whether batch norm takes those of the
    batch; else it keeps its running ones. Raises ValueError for a batch of one image where batch norm then has one value per channel."""
    network.train()
    for layer in norm_layers(network).values():
        layer.train(statistics)
    try:
        yield
    except ValueError as error:
        # Training is checked before it starts; phases after it, of clients that may not train, meet it here, with the training kept.
        if "more than 1 value per channel" not in str(error):
            raise
        name = type(network).__name__
        raise ValueError(
            f"a batch of one image, for which the batch norm of {name} is undefined: take another batch_size in the phase (the schedule's "
            "personal= where a personal part is fitted), or smallest=2, which leaves out a last batch of one"
        ) from error
    finally:
        network.eval()


def fast(state: State) -> State:
    """``state`` with convolution weights channels-last on a CPU, where convolutions then run about a third faster."""
    return {
        name: tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 and tensor.device.type == "cpu" else tensor
        for name, tensor in state.items()
    }
