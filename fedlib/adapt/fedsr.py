"""FedSR at test time: logs of mean class probabilities over draws of the representation (``fedlib.train.fedsr``). Nothing is carried."""

import math
from dataclasses import dataclass

import torch

from fedlib.core import Output, State, Stream, Task
from fedlib.models.blocks import after_body
from fedlib.states import overlay
from fedlib.train.fedsr import SIGMA, representation


@dataclass(frozen=True)
class FedSRPredict:
    """draws: representations per image."""

    draws: int = 20
    version: int = 2

    @torch.no_grad()
    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        if not any(name.startswith(SIGMA) for name in state):
            raise ValueError("FedSR's prediction needs a model with a sigma part: train with fedlib.train.fedsr")
        state = overlay(state, personal)
        generator = task.generator("representation", stream.client, stream.column, stream.draw)
        scores = []
        for batch in stream.images.split(200):
            mean, scale = representation(task.model, state, task.inputs(batch))
            noise = torch.randn(self.draws, *mean.shape, generator=generator, dtype=mean.dtype).to(mean.device)
            logits = after_body(task.model, state, (mean + scale * noise).flatten(0, 1)).unflatten(0, (self.draws, len(batch)))
            scores.append(logits.log_softmax(-1).logsumexp(0) - math.log(self.draws))
        return Output(torch.cat(scores))
