"""ODPFL-HN at test time: the hypernetwork writes the client's model from its unlabelled images, which that model then predicts.

See ``fedlib.train.odpfl_hn``. Nothing is carried from client to client.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from fedlib.core import Output, State, Stream, Task
from fedlib.train.odpfl_hn import hidden_of, written


@dataclass(frozen=True)
class ODPFLWrite:
    version: int = 1
    own_network: ClassVar[bool] = True
    refuses_batch_norm: ClassVar[bool] = True

    @torch.no_grad()
    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        if "trunk.0.weight" not in state:
            raise ValueError("ODPFL-HN needs a hypernetwork: train with fedlib.train.odpfl_hn")
        network = written(task.model, state, hidden_of(task, state, stream.images))
        return Output(task.predict(network, stream.images)[1])
