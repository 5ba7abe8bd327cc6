"""A new client of FedMD: it starts from scratch, digests what the federation knows, and takes one label-free step on its own images.

See ``fedlib.train.fedmd``. A fresh network of its size at every evaluation (the adaptation model starts from the same draw of its client at
each), two passes over the public images with the ensemble's logits, then the learner's step. Nothing is carried from client to client.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from fedlib.core import Output, State, Stream, Task
from fedlib.train.fedmd import FedMD


@dataclass(frozen=True)
class Newcomer:
    """method: the training that made the ensemble; passes: over the public images."""

    method: FedMD
    passes: int = 2
    version: int = 1
    own_network: ClassVar[bool] = True

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        size = stream.client % len(self.method.networks)
        sized = replace(self.method.sized(task, size, "newcomer", stream.client, task.round), chunk_size=1)
        states = [self.method.learner.fresh(sized, size, stream.client)]
        states = self.method.learned(sized, states, state, self.passes, [], max(task.round - 1, 1))
        return Output(self.method.learner.answers(sized, states[0], stream)["personalised"])
