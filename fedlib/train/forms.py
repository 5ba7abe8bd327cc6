"""Forms of a training step that change its speed but not its mathematics, by the engine's options (``fedlib.stages.engine.Engine``)."""

from collections.abc import Callable

import torch
from torch import Tensor

from fedlib.core import Task

# Steps that run as usual before a graph is recorded, so that libraries have made their handles and workspaces.
WARM = 3


def formed(task: Task, loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """``loss`` compiled, or with its forward pass in bfloat16, where the task's options say so."""
    form = torch.compile(loss) if "compile" in task.options else loss
    if "bfloat16" not in task.options:
        return form

    def lowered(*arguments) -> Tensor:
        with torch.autocast(task.model.head.weight.device.type, torch.bfloat16):
            value = form(*arguments)
        return value.to(task.dtype)

    return lowered


class Replayed:
    """A step, given its batch, that is recorded on the GPU once and then replayed: one call from the host instead of a hundred.

    The step must change tensors in place only, and never wait for the host. The first ``WARM`` batches, and those of another size than the
    first, run as usual.
    """

    def __init__(self, step: Callable[..., None]):
        self.step = step
        self.shapes: list[torch.Size] = []
        self.batch: tuple[Tensor, ...] = ()
        self.graph: torch.cuda.CUDAGraph | None = None
        self.warm = 0

    def __call__(self, *batch: Tensor) -> None:
        shapes = [tensor.shape for tensor in batch]
        self.shapes = self.shapes or shapes
        if shapes != self.shapes or self.warm < WARM:
            self.warm += shapes == self.shapes
            self.step(*batch)
            return
        if self.graph is None:
            self.batch, self.graph = tuple(tensor.clone() for tensor in batch), torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.step(*self.batch)
        for kept, new in zip(self.batch, batch, strict=True):
            kept.copy_(new)
        self.graph.replay()
