"""The two blocks in which UPFL's code cuts its networks: a body that is shared, and the rest."""

from torch import Tensor, nn
from torch.func import functional_call

from fedlib.models.net import Net
from fedlib.states import State, part


def body_prefix(model: Net) -> str:
    """Name prefix of the body's tensors: the convolutions of ``ConvNet``, elsewhere all of the extractor."""
    return "extractor.body." if hasattr(model.extractor, "body") else "extractor."


def body_of(model: Net) -> nn.Module:
    return getattr(model.extractor, "body", model.extractor)


def body_width(model: Net) -> int:
    """Size of the body's output per image."""
    return (model.extractor.hidden if hasattr(model.extractor, "body") else model.head).in_features


def after_body(model: Net, state: State, outputs: Tensor) -> Tensor:
    """Logits [n, C] from the body's outputs [n, width] under ``state``."""
    if hasattr(model.extractor, "body"):
        outputs = model.extractor.relu(functional_call(model.extractor.hidden, part(state, "extractor.hidden."), (outputs,)))
    return functional_call(model.head, part(state, "head."), (outputs,))
