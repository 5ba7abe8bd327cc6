"""Tent as UPFL runs it (its section 4.1.2): the networks have no normalisation layer, so that entropy moves all weights.

One step on the prediction entropy in bits, its mean over all of a client's images, then predict them all. Nothing is carried from client
to client.

Paper and code: the paper says no more than "Tent"; step count, entropy in bits, clip and weight decay are those of the public code's Tent
for networks of unequal size.
"""

from dataclasses import dataclass
from itertools import islice

from fedlib.adapt.whole_client import entropy, network_of, walk
from fedlib.core import Output, State, Stream, Task, overlay


@dataclass(frozen=True)
class TentAll:
    """lr: rate in round 1, which decays as the schedule's; steps: on the whole client."""

    lr: float = 0.1
    steps: int = 1
    version: int = 2

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        network = network_of(overlay(state, personal))
        *_, (logits, _, _) = islice(walk(task, network, stream, entropy, lr=self.lr, over="images"), self.steps + 1)
        return Output(logits)
