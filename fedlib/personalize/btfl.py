"""BTFL's personal side (section 4.1): a personal head, tables of code frequencies, and the heads' mean entropies.

Each round, as FedTHE: one epoch of cross-entropy on a bias-free head over frozen features of the *received* extractor (augmented images,
training mode); the head persists. From the same features: the client's frequency table (6), the mean of the *other* clients' tables and of
all, and the mean entropy of the personal (after its epoch) and of the received head.

Paper and code: the code makes three passes with augmentation of their own (table, head, entropies); here the features that the head
meets serve for all three, a third of the work for equally distributed numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from fedlib.adapt.btfl import frequency_table, leave_one_out
from fedlib.core import Client, State, Task
from fedlib.models import build_head
from fedlib.personalize.head import fit_head, whole_head
from fedlib.states import part


@dataclass(frozen=True)
class BTFLPersonal:
    """levels: of the codes. Personal part: ``model.head.weight`` [clients, C, d] (with a ``model.head.bias`` of zero where the network's
    head has one), ``table`` and ``others_table`` [clients, levels, d], ``shared.table`` [levels, d], ``entropies`` [clients, 2] in nats
    (personal, received head)."""

    levels: int = 2
    persistent: ClassVar[bool] = True
    version: int = 2
    needs_positive: ClassVar[bool] = True

    def init(self, task: Task, clients: Sequence[Client]) -> State:
        return whole_head(task, torch.stack([build_head(task.model, task.seed, client.id) for client in clients]))

    def fit(self, task: Task, received: Sequence[State], clients: Sequence[Client], personal: State, round: int) -> State:
        """Raises ValueError for networks whose features can be negative, and for a single client."""
        heads, tables, entropies = [], [], []
        for k, client in enumerate(clients):
            head, batches = fit_head(task, received[k], client.train, personal["model.head.weight"][k], client.id, round)
            features = torch.cat(batches)
            global_logits = functional_call(task.model.head, part(received[k], "head."), (features,))
            heads.append(head)
            tables.append(frequency_table(features, self.levels))
            entropies.append(torch.stack([mean_entropy(logits) for logits in (functional.linear(features, head), global_logits)]))
        table = torch.stack(tables)
        return whole_head(task, torch.stack(heads)) | {
            "table": table,
            "others_table": leave_one_out(table),
            "shared.table": table.mean(0),
            "entropies": torch.stack(entropies),
        }


def mean_entropy(logits: Tensor) -> Tensor:
    """Mean over samples of the entropy of softmax(logits), in nats; logits [n, C] -> scalar."""
    return torch.special.entr(logits.softmax(1)).sum(1).mean()
