"""FedPer (Arivazhagan et al., 2019), the training behind UPFL's PFL-Sampled and PFL-Ensemble: a shared body, a head for every client.

Every client trains the received body and its own head together; the server averages the bodies by numbers of training samples. State: the
body and all clients' heads, ``donors.<name>`` [clients, ...] with their ``donors.id``, in the group ``model``, since new clients borrow
heads.

Paper and code: the public code's only trace of these baselines is the option to share two layers. In the convolutional networks that
leaves a head of two linear layers (``head="block"``, default); ``head="last"`` is the last layer alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fedlib.core import Client, Server, State, Task
from fedlib.models import state_of
from fedlib.models.blocks import body_prefix
from fedlib.states import part
from fedlib.tools.names import check_name
from fedlib.train.fedavg import mean, model_loss, sizes
from fedlib.train.local import train_cohort
from fedlib.train.members import members, positions, with_rows

DONORS = "donors."


@dataclass(frozen=True)
class FedPer:
    """head: ``block`` or ``last``; lr: local rate in round 1, None for the schedule's."""

    head: str = "block"
    lr: float | None = None
    version: int = 1

    def __post_init__(self):
        check_name(self.head, ("block", "last"), "head")

    def init(self, task: Task, clients: Sequence[Client]) -> Server:
        state, ids = state_of(task.model), members(clients)
        shared = body_prefix(task.model) if self.head == "block" else "extractor."
        body = {name: tensor for name, tensor in state.items() if name.startswith(shared)}
        heads = {f"{DONORS}{name}": torch.stack([tensor] * len(clients)) for name, tensor in state.items() if name not in body}
        return {"model": body | heads | {f"{DONORS}id": ids["id"]}, "members": ids}

    def update(self, task: Task, server: Server, cohort: Sequence[Client], round: int) -> list[State]:
        starts = [with_head(server["model"], k) for k in positions(server, cohort)]
        return train_cohort(task, model_loss(task, "cross_entropy"), starts, cohort, round, lr=self.lr)

    def aggregate(self, task: Task, server: Server, messages: list[State], cohort: Sequence[Client], round: int) -> Server:
        average, model = mean(messages, sizes(cohort)), server["model"]
        body = {name: average[name] for name in model if not name.startswith(DONORS)}
        heads = {name: tensor for name, tensor in part(model, DONORS).items() if name != "id"}
        heads = with_rows(heads, positions(server, cohort), messages)
        return server | {"model": model | body | {f"{DONORS}{name}": tensor for name, tensor in heads.items()}}


def with_head(model: State, k: int) -> State:
    """The network with the k-th donor's head."""
    body = {name: tensor for name, tensor in model.items() if not name.startswith(DONORS)}
    return body | {name: tensor[k] for name, tensor in part(model, DONORS).items() if name != "id"}
