"""Transfer of a pretrained network to one client: linear probing, fine-tuning, or one after the other (FedTHE, Figures 6 and 7).

Kumar et al. (ICLR 2022): fine-tuning under a fresh head distorts pretrained features and so loses accuracy under shift; LP-FT trains the
head on frozen features first. Every client without part in the pretraining gets a fresh head; the others keep the received model. Nothing
persists from round to round.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from fedlib.core import Client, State, Task
from fedlib.models import build_linear
from fedlib.states import stacked
from fedlib.train.fedavg import model_loss
from fedlib.train.local import train


@dataclass(frozen=True)
class Transfer:
    """probe_epochs: on the head alone; tune_epochs: then on everything. The personal part is the whole model, ``model.<name>``."""

    probe_epochs: int = 0
    tune_epochs: int = 0
    persistent: ClassVar[bool] = False
    version: int = 1

    def init(self, task: Task, clients: Sequence[Client]) -> State:
        return {}

    def fit(self, task: Task, received: Sequence[State], clients: Sequence[Client], personal: State, round: int) -> State:
        tuned = [state if c.source else self._transferred(task, state, c, round) for state, c in zip(received, clients, strict=True)]
        return stacked(tuned)

    def _transferred(self, task: Task, state: State, client: Client, round: int) -> State:
        fresh = build_linear(task.model, task.n_classes, task.seed, "transferred head", client.id)
        state = state | {f"head.{name}": tensor for name, tensor in fresh.items() if f"head.{name}" in state}
        phases = (("probe", self.probe_epochs, lambda name: name.startswith("head.")), ("tune", self.tune_epochs, lambda name: True))
        for phase, epochs, moves in phases:
            local = replace(task.schedule.personal, epochs=epochs, steps=None)
            draws = [task.generator("transfer", phase, client.id, round)]
            [state] = train(task, model_loss(task, "cross_entropy"), state, [client.train], local=local, generators=draws, trainable=moves)
        return state
