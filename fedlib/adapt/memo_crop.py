"""MEMO (Zhang et al. 2022) as ATP runs it: per sample, one entropy step on randomly cropped and flipped copies, then predict.

Evaluation mode with running statistics, all trainable parameters, plain gradient descent from the received model; the clean image is
predicted after the step. Nothing is carried from sample to sample.

Paper and code: the cited method takes AugMix views and adapts batch norm; ATP's code crops with a mirrored border, flips (digits too), and
leaves batch norm alone. FedTHE's MEMO, which keeps AugMix, is ``fedlib.adapt.memo``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call

from fedlib.adapt.memo import marginal_entropy
from fedlib.adapt.tune import tune_each
from fedlib.augment.views import crop_flip_views
from fedlib.core import Local, Output, State, Stream, Task


@dataclass(frozen=True)
class MEMOCrop:
    """lr: step size; views: copies per sample; pad: crop margin in pixels, None for a seventh of the side (32 x 32: 4, 224 x 224: 32)."""

    lr: float = 1e-3
    views: int = 16
    pad: int | None = None
    version: int = 1

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        def loss(state: State, views: Tensor, constants: State) -> Tensor:
            return marginal_entropy(functional_call(task.model, state, (views,)))

        def predict(state: State, image: Tensor, constants: State) -> Tensor:
            return functional_call(task.model, state, (image[None],))[0]

        def augment(images: Tensor, n: int, generators: Sequence[torch.Generator]) -> Tensor:
            pad = images.shape[-1] // 7 if self.pad is None else self.pad
            return task.transform.normalise(crop_flip_views(images, n, generators, pad=pad))

        local = Local(lr=self.lr, weight_decay=0.0)
        return Output(tune_each(task, state, stream, loss, predict, local=local, steps=1, views=self.views, augment=augment))
