"""The contract of a personalisation method."""

from collections.abc import Sequence
from typing import Protocol

from fedlib.clients import Client
from fedlib.task import State, Task


class Personalizer(Protocol):
    """Fits a personal part for every client from its labelled data and the model it received in a round.

    The personal part is one dictionary: tensors with a leading client dimension, except ``shared.<name>``. Entries ``model.<name>`` replace
    the received model's own when the client predicts. ``persistent``: the part lives through all rounds, one phase in each, so that the
    experiment replays it over the received models; otherwise only the evaluated round is fitted, from ``init``. ``version`` changes
    whenever the method's numbers may change.
    ``needs``, of ``fedlib.extras.NEEDS``: what clients must bring; without it, labelled images of the tested client.
    """

    persistent: bool
    version: int

    def init(self, task: Task, clients: Sequence[Client]) -> State: ...

    def fit(self, task: Task, received: Sequence[State], clients: Sequence[Client], personal: State, round: int) -> State: ...
