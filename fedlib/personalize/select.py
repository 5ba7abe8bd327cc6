"""Choosing hyperparameters of a test-time method on the source clients' validation parts (ATP, section 6.1).

Every candidate runs, without labels, over the validation part of every source client as it would over a target client's stream; the one
with the best accuracy over all these samples is used for everybody. Target clients have no say. The paper says no more than "chosen on
validation data".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from fedlib.core import Adapter, Client, Output, Personalizer, State, Stream, Task
from fedlib.stages.progress import bar
from fedlib.states import check_once, require, slice_of


@dataclass(frozen=True)
class Select:
    """Personal part: ``shared.choice`` (position of the first best candidate), ``shared.accuracies`` [candidates] in percent, and what
    ``base`` provides.

    candidates: adapters to compare; base: personalizer whose part they need; limit: length at which validation streams are cut, None for
    not at all. ValueError where no source client has validation samples.
    """

    candidates: tuple[Adapter, ...]
    base: Personalizer | None = None
    limit: int | None = None
    persistent: ClassVar[bool] = False
    version: int = 1
    needs = ("validation",)

    def __post_init__(self):
        check_once(self.base)

    def init(self, task: Task, clients: Sequence[Client]) -> State:
        return self.base.init(task, clients) if self.base else {}

    def fit(self, task: Task, received: Sequence[State], clients: Sequence[Client], personal: State, round: int) -> State:
        personal = self.base.fit(task, received, clients, personal, round) if self.base else {}
        sources = [(k, client.val.head(self.limit)) for k, client in enumerate(clients) if client.source and len(client.val)]
        if not sources:
            raise ValueError("no source client has validation samples to choose hyperparameters on: hold more out for validation")
        streams = {k: Stream(samples.images, "validation", clients[k].id) for k, samples in sources}
        accuracies = []
        for candidate in bar(self.candidates, "candidates", shown=False):
            outputs = {k: candidate.run(task, received[k], slice_of(personal, k), streams[k]) for k in streams}
            scores = {k: output.scores for k, output in outputs.items()}
            # The argmax of NaN is a class, which happens to be right for some.
            hits = torch.cat([(scores[k].argmax(-1) == s.labels) & scores[k].isfinite().all(-1) for k, s in sources])
            accuracies.append(100 * hits.double().mean().item())
        choice = accuracies.index(max(accuracies))
        return personal | {"shared.choice": torch.tensor(choice), "shared.accuracies": torch.tensor(accuracies, dtype=torch.float64)}


@dataclass(frozen=True)
class Selected:
    """The adapter whose hyperparameters the source clients chose. candidates: the adapters that were compared, in the same order; the
    personal part's ``shared.choice`` says which one runs."""

    candidates: tuple[Adapter, ...]
    version: int = 1

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        require(personal, "Selected", "Select", "shared.choice")
        return self.candidates[int(personal["shared.choice"])].run(task, state, personal, stream)
