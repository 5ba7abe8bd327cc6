"""MEMO (Zhang et al. 2022) as FedTHE runs it: per sample, minimise the marginal entropy over augmented views, then predict.

FedTHE (C.2). For every sample, from the saved parameters: ``steps`` times, draw AugMix views, take a step of the optimiser on the
entropy of the mean prediction over the views, all parameters; predict the clean image; restore. On the received model (MEMO-G) or on the
fine-tuned one (MEMO-P). Carried over the stream: nothing, or the optimiser's moments (``carry``).

Paper and code: the paper states 3 steps at 5e-4. The code takes 2, and its attempt to set that rate has no effect, so the personal rate
and weight decay act (default: the code; ``lr=5e-4, steps=3`` is the paper). The code restores the parameters after every sample but keeps
the optimiser, so that momentum and Adam's moments go on from sample to sample: ``carry``, which FedTHE's notebook sets for ResNet and CCT;
the CNN's plain SGD has none to keep. There the optimiser even comes from the personal phase and lives through all tests in turn; here
every stream starts with moments of zero. Table 3's linear probing then fine-tuning, for which the paper names no steps, divides the code's
two: one of each (``head_steps=1, steps=1``), at the same rate (LINs-lab/FedTHE, 699d55f).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.func import functional_call

from fedlib.adapt.batchwise import entropies
from fedlib.adapt.tune import tune_each
from fedlib.augment.views import crop_flip_views
from fedlib.core import Local, Output, State, Stream, Task
from fedlib.states import overlay
from fedlib.tools.names import check_name


def marginal_entropy(logits: Tensor) -> Tensor:
    """Entropy of the mean over views of the class probabilities: logits [V, C] -> scalar (nats)."""
    log_marginal = logits.log_softmax(-1).logsumexp(-2) - math.log(logits.shape[-2])
    return entropies(log_marginal)


def _tuned(task: Task, start: State, stream: Stream, **options) -> Output:
    """The stream's scores, tuned down the marginal entropy; options: of ``tune_each``."""

    def loss(state: State, views: Tensor, constants: State) -> Tensor:
        return marginal_entropy(functional_call(task.model, state, (views,)))

    def predict(state: State, image: Tensor, constants: State) -> Tensor:
        return functional_call(task.model, state, (image[None],))[0]

    return Output(tune_each(task, start, stream, loss, predict, **options))


@dataclass(frozen=True)
class MEMO:
    """base: ``global`` (received model) or ``personal`` (with the client's personal parts); views per step; lr None: the personal rate;
    momentum None: the personal phase's; head_steps: steps on the head alone before those on all parameters (linear probing, then
    fine-tuning); carry: keep momentum and Adam's moments from sample to sample."""

    base: str = "personal"
    views: int = 32
    steps: int = 2
    lr: float | None = None
    momentum: float | None = None
    head_steps: int = 0
    carry: bool = False
    version: int = 1

    def __post_init__(self):
        check_name(self.base, ("global", "personal"), "base")

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        start = overlay(state, personal) if self.base == "personal" else state
        local = task.schedule.personal
        local = replace(local, lr=local.rate(local.epochs - 1) if self.lr is None else self.lr)
        local = replace(local, momentum=local.momentum if self.momentum is None else self.momentum)
        steps = {"steps": self.steps, "head_steps": self.head_steps, "views": self.views, "carry": self.carry}
        return _tuned(task, start, stream, local=local, **steps)


@dataclass(frozen=True)
class MEMOCrop:
    """ATP's MEMO: per sample, one entropy step on randomly cropped and flipped copies, then predict.

    Evaluation mode with running statistics, all trainable parameters, plain gradient descent from the client's model; the clean image is
    predicted after the step. Nothing is carried from sample to sample. lr: step size; views: copies per sample; pad: crop margin in pixels,
    None for a seventh of the side (32 x 32: 4, 224 x 224: 32).

    Paper and code: the cited method takes AugMix views and adapts batch norm; ATP's code crops with a mirrored border, flips (digits too),
    and leaves batch norm alone.
    """

    lr: float = 1e-3
    views: int = 16
    pad: int | None = None
    version: int = 2

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        def augment(images: Tensor, n: int, generators: Sequence[torch.Generator]) -> Tensor:
            pad = images.shape[-1] // 7 if self.pad is None else self.pad
            return task.transform.normalise(crop_flip_views(images, n, generators, pad=pad))

        local = Local(lr=self.lr, weight_decay=0.0)
        return _tuned(task, overlay(state, personal), stream, local=local, steps=1, views=self.views, augment=augment)
