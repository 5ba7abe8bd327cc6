"""TTT, online (Sun et al., ICML 2020), as FedTHE runs it: per sample, steps on the rotation task of its own copies, then the prediction.

FedTHE (C.2). For every sample in stream order: ``copies`` of it, each turned by a random multiple of 90 degrees; a step of plain SGD on
extractor and rotation head (``fedlib.personalize.ttt``) down the cross-entropy of the turns; then the sample itself is predicted. Carried
over the stream: all parameters; the next stream starts from the saved ones. The network is in training mode throughout, which on FedTHE's
networks concerns dropout alone. Batch norm, which they do not have, keeps its running statistics: those of a single image tell little.

Where training mode changes nothing (no dropout), copies with the same turn are equal: one of each is computed, and weighted
by how many were drawn.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call

from fedlib.augment.views import rotations
from fedlib.core import Local, Output, State, Stream, Task
from fedlib.models.net import training
from fedlib.personalize.ttt import HEAD, TURNS, rotation_logits
from fedlib.stages.optim import Optimizer
from fedlib.states import network_of, overlay, require
from fedlib.train.local import layer_draws
from fedlib.train.losses import cross_entropy


@dataclass(frozen=True)
class TTT:
    """copies of each sample; steps on them; lr: of plain SGD without weight decay. online: carry the parameters on to the next sample."""

    copies: int = 32
    steps: int = 1
    lr: float = 0.001
    online: bool = True
    version: int = 2

    def __post_init__(self):
        if self.copies < 1 or self.steps < 0 or self.lr <= 0:
            raise ValueError(f"out of range: {self} (copies >= 1, steps >= 0, lr > 0)")

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        require(personal, "TTT", "JointRotation", *HEAD)
        start = overlay(state, personal) | {name: personal[name] for name in HEAD}
        generator = task.generator("TTT", stream.client, stream.column, stream.draw)
        scores: list[Tensor] = []
        with layer_draws(generator):
            grouped = not _mode_matters(task, start, stream.images[:2])
            current = copied(start)
            with training(task.model, statistics=False):
                for image in task.inputs(stream.images).split(1):
                    if not self.online:
                        current = copied(start)
                    self._step(task, current, image, generator, grouped)
                    with torch.no_grad():
                        scores.append(functional_call(task.model, network_of(current), (image,)))
        return Output(torch.cat(scores))

    def _step(self, task: Task, state: State, image: Tensor, generator: torch.Generator, grouped: bool) -> None:
        """Move ``state`` in place."""
        names = [*(name for name, _ in task.model.named_parameters() if name.startswith("extractor.")), *HEAD]
        leaves = [state[name].requires_grad_() for name in names]
        optimizer = Optimizer(Local(lr=self.lr, weight_decay=0.0), leaves, [False] * len(leaves))
        for _ in range(self.steps):
            turns = torch.randint(TURNS, (self.copies,), generator=generator)
            weights = torch.full((self.copies,), 1 / self.copies, dtype=image.dtype)
            if grouped:
                # Counted on the host: on a GPU every count stops it.
                weights = torch.bincount(turns, minlength=TURNS).to(image.dtype) / self.copies
                turns = torch.arange(TURNS)
            turns, weights = (tensor.to(image.device, non_blocking=True) for tensor in (turns, weights))
            logits = rotation_logits(task, state, rotations(image.expand(len(turns), -1, -1, -1), turns))
            optimizer.step(leaves, list(torch.autograd.grad(cross_entropy(logits, turns, weights), leaves)))


def _mode_matters(task: Task, state: State, images: Tensor) -> bool:
    """Whether training mode changes what the network computes for ``images``."""

    def answer() -> Tensor:
        with torch.no_grad():
            return functional_call(task.model, network_of(copied(state)), (task.inputs(images),))

    with training(task.model, statistics=False):
        trained = answer()
    return not torch.equal(trained, answer())


def copied(state: State) -> State:
    return {name: tensor.detach().clone() for name, tensor in state.items()}
