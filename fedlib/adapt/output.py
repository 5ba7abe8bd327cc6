"""What an adapter returns, and the contract it follows."""

from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from fedlib.clients import Stream
from fedlib.task import State, Task


@dataclass(frozen=True)
class Output:
    """scores: class scores [n, C] whose argmax is the prediction, or [predictors, n, C] where accuracy is the mean over several equally
    likely predictors; extras: what the paper plots, one value per sample [n, ...]."""

    scores: Tensor
    extras: dict[str, Tensor] = field(default_factory=dict)


class Adapter(Protocol):
    """A test-time method: reads the received model, the client's personal part and an unlabelled stream.

    Adaptation state starts afresh with every stream. ``version`` changes whenever the method's numbers may change. A method that cannot do
    without batch norm has the attribute ``needs_batch_norm = True``, so that a network without it is refused before training.
    """

    version: int

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output: ...


def slice_of(personal: State, k: int) -> State:
    """The personal part of the k-th client: its row of every tensor, and what all share (``shared.<name>``) whole."""
    return {name: tensor if name.startswith("shared.") else tensor[k] for name, tensor in personal.items()}
