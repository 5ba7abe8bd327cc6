"""FedRep's personal side: the client's own head on the received body, then the body itself, one phase each.

FedTHE (C.2). The stored head replaces the received one, is trained with the body fixed and stored; then the body is trained with the
head fixed. The tuned body serves the round and is not kept. State: the head, which starts as the first received one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedlib.core import Client, State, Task
from fedlib.models import state_of
from fedlib.states import stacked
from fedlib.train.fedrep import PHASES, alternate


@dataclass(frozen=True)
class FedRepHead:
    """Personal part: the whole model, ``model.<name>`` [clients, ...], of which the next round takes up ``model.head.<name>``."""

    persistent: ClassVar[bool] = True
    version: int = 1
    carries: ClassVar[tuple[str, ...]] = ("model.head.",)

    def init(self, task: Task, clients: Sequence[Client]) -> State:
        return stacked([state_of(task.model)] * len(clients))

    def fit(self, task: Task, received: Sequence[State], clients: Sequence[Client], personal: State, round: int) -> State:
        tuned = alternate(task, _starts(received, personal), clients, task.schedule.personal, "personal", round)
        return stacked(tuned)

    def advance(self, task: Task, received: Sequence[State], clients: Sequence[Client], personal: State, round: int) -> State:
        """The head alone: no later round reads the body."""
        tuned = alternate(task, _starts(received, personal), clients, task.schedule.personal, "personal", round, PHASES[:1])
        return stacked(tuned, "head.")


def _starts(received: Sequence[State], personal: State) -> list[State]:
    """Each client's received model with its own head."""
    heads = [name for name in received[0] if name.startswith("head.")]
    return [state | {name: personal[f"model.{name}"][k] for name in heads} for k, state in enumerate(received)]
