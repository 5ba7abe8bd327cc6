"""kNN-Per's personal side: the memory of the client's training features under the received model, and the weight of the mixture.

FedTHE (C.2). The memory holds the features of one augmented pass over the training part, evaluation mode. The weight of the global
model is searched on 0, 0.01, ..., 1 for each client: the first with the best accuracy on the client's validation part. Nothing persists.

Paper and code: FedTHE's code searches the weight on the client's own *test* set and reports that set, an oracle
(``fedlib.adapt.knn_per.BestMix``); here no test is ever read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import functional_call

from fedlib.adapt.knn_per import neighbour_probabilities
from fedlib.core import Client, Local, Samples, State, Task
from fedlib.states import part
from fedlib.train.local import batch_of, plan


@dataclass(frozen=True)
class LocalMemory:
    """Personal part: ``keys`` [clients, M, d], ``key_labels`` [clients, M] (M the largest memory), ``key_count`` and ``mix`` [clients], and
    the scalars ``shared.k`` and ``shared.scale``.

    k: neighbours; scale: of their distances; candidates: values of ``mix`` searched, evenly spaced on [0, 1].
    """

    k: int = 10
    scale: float = 1.0
    candidates: int = 101
    persistent: ClassVar[bool] = False
    version: int = 1
    needs = ("labels", "validation")

    def __post_init__(self):
        if self.k < 1 or self.scale <= 0 or self.candidates < 2:
            raise ValueError(f"out of range: {self} (k >= 1, scale > 0, candidates >= 2)")

    def init(self, task: Task, clients: Sequence[Client]) -> State:
        return {}

    def fit(self, task: Task, received: Sequence[State], clients: Sequence[Client], personal: State, round: int) -> State:
        keys, labels, mixes = [], [], []
        for state, client in zip(received, clients, strict=True):
            if not len(client.val):
                raise ValueError(f"kNN-Per chooses its weight on validation samples, and client {client.id} has none")
            features, targets = _memory(task, state, client.train, task.generator("personal", client.id, round))
            keys.append(features)
            labels.append(targets)
            mixes.append(self._best_mix(task, state, features, targets, client.val))
        return {
            "keys": torch.nn.utils.rnn.pad_sequence(keys, batch_first=True),
            "key_labels": torch.nn.utils.rnn.pad_sequence(labels, batch_first=True),
            "key_count": torch.tensor([len(targets) for targets in labels], device=labels[0].device),
            "mix": torch.stack(mixes),
            "shared.k": torch.tensor(self.k),
            "shared.scale": torch.tensor(self.scale, dtype=torch.float64),
        }

    def _best_mix(self, task: Task, state: State, keys: Tensor, labels: Tensor, val: Samples) -> Tensor:
        features, logits = task.predict(state, val.images)
        neighbours = neighbour_probabilities(features, keys, labels, task.n_classes, k=self.k, scale=self.scale)
        mixes = torch.linspace(0, 1, self.candidates, dtype=logits.dtype, device=logits.device)
        correct = [((mix * logits + (1 - mix) * neighbours).argmax(1) == val.labels).sum() for mix in mixes]
        return mixes[torch.stack(correct).argmax()]


def _memory(task: Task, state: State, samples: Samples, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Features [M, d] and labels [M] of one augmented pass."""
    extractor = part(state, "extractor.")
    steps = plan(len(samples), Local(batch_size=task.schedule.personal.batch_size, epochs=1), task, generator)
    batches = [batch_of(task, samples, step) for step in steps]
    with torch.no_grad():
        features = [functional_call(task.model.extractor, extractor, (inputs,)) for inputs, _ in batches]
    return torch.cat(features), torch.cat([labels for _, labels in batches])
