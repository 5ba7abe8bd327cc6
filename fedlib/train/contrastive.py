"""Contrastive losses of FedICON: supervised (equation 4) and self-supervised (equation 7), and the encoder's training with them.

For a batch of B images with V views each, unit vectors z and similarities s = z.z' / temperature, every view i is an anchor:
mean over i of  -1/|P(i)| sum over p in P(i) of [ s_ip - log sum over a != i of exp s_ia ],  P(i) the other views of i's class
(supervised) or of i's image (self-supervised). A batch of one image has loss zero.

Paper and code: the paper sums over anchors, contrasts with all local data and has no factor; here the mean over the views of the batch,
times temperature / ``base`` as in the authors' related code (``base=None``: no factor). The factor makes the size of the gradient
independent of the temperature. Views are ``fedlib.augment.views.contrastive_views``; the paper says "random perturbations".
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from fedlib.augment.transform import Transform
from fedlib.augment.views import CONTRASTIVE, contrastive_views
from fedlib.core import Local, Samples, State, Task
from fedlib.states import part
from fedlib.tools.names import check_name
from fedlib.train.local import Loss, train


def contrastive(features: Tensor, labels: Tensor | None = None, *, temperature: float = 0.1, base: float | None = 0.07) -> Tensor:
    """Loss of the views' features [B, V, d], any length; labels [B], or None for the self-supervised loss. Returns a scalar.

    Raises ValueError unless V >= 2 and temperature > 0.
    """
    n, views = features.shape[:2]
    if views < 2 or temperature <= 0:
        raise ValueError(f"a contrastive loss needs two views of every image and temperature > 0, got {views} and {temperature}")
    units = functional.normalize(features.flatten(0, 1), dim=1)
    groups = (torch.arange(n, device=features.device) if labels is None else labels).repeat_interleave(views)
    itself = torch.eye(n * views, dtype=torch.bool, device=features.device)
    positives = (groups[:, None] == groups) & ~itself
    log_shares = (units @ units.mT / temperature).masked_fill(itself, -torch.inf).log_softmax(1)
    loss = -(log_shares.masked_fill(~positives, 0).sum(1) / positives.sum(1)).mean()
    return loss if base is None else loss * (temperature / base)


@dataclass(frozen=True)
class TwoViews(Transform):
    """In place of one augmented image [n, C, H, W] two random views of it, float [n, 2, C, H, W] in [0, 1]. kind: of data, which decides
    the views (``contrastive_views``)."""

    kind: str = "digits"

    def draws(self, n: int, generator: torch.Generator) -> Tensor:
        """One seed for the views of a batch: int64 [1]."""
        return torch.randint(2**62, (1,), generator=generator)

    def augmented(self, images: Tensor, draws: Tensor) -> Tensor:
        return contrastive_views(images, torch.Generator().manual_seed(draws.item()), kind=self.kind)


@dataclass(frozen=True)
class OneView(Transform):
    """One random view of every image, float [n, C, H, W] in [0, 1]: the views of ``TwoViews`` as plain augmentation."""

    kind: str = "digits"
    draws = TwoViews.draws

    def augmented(self, images: Tensor, draws: Tensor) -> Tensor:
        return contrastive_views(images, torch.Generator().manual_seed(draws.item()), kind=self.kind, n_views=1)[:, 0]

    def normalise(self, images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """As the data set's own transform, but that views, which are float32, come out in ``dtype``."""
        return Transform.normalise(self, images.to(dtype) if images.is_floating_point() else images, dtype)


@dataclass(frozen=True)
class Contrast:
    """How an encoder is trained contrastively: kind of views, temperature, ``base`` of the loss, rate (of round 1)."""

    views: str = "digits"
    temperature: float = 0.1
    base: float | None = 0.07
    lr: float = 0.005

    def __post_init__(self):
        check_name(self.views, CONTRASTIVE, "kind of contrastive views")
        if self.temperature <= 0 or self.lr <= 0 or (self.base is not None and self.base <= 0):
            raise ValueError(f"out of range: {self} (temperature, base and lr > 0)")

    def loss(self, task: Task, supervised: bool) -> Loss:
        """The loss of one client's batch of views [B, V, C, H, W] as a function of its state."""

        def of_batch(state, batch, constants):
            inputs, labels, _ = batch
            features = functional_call(task.model.extractor, part(state, "extractor."), (inputs.flatten(0, 1).to(task.dtype),))
            features = features.unflatten(0, inputs.shape[:2])
            return contrastive(features, labels if supervised else None, temperature=self.temperature, base=self.base)

        return of_batch

    def two_views(self, transform: Transform) -> TwoViews:
        return TwoViews(transform.mean, transform.std, kind=self.views)

    def train(
        self,
        task: Task,
        states: Sequence[State],
        samples: Sequence[Samples],
        *,
        local: Local,
        generators: Sequence[torch.Generator],
        supervised: bool,
    ) -> list[State]:
        """Each client's state after a phase ``local`` on its encoder alone; the head is left untouched."""
        return train(
            # One by one: rows that only pad a stack would enter the loss of the others.
            replace(task, transform=self.two_views(task.transform), chunk_size=1),
            self.loss(task, supervised),
            states,
            samples,
            # An image alone has nothing to be contrasted with.
            local=replace(local, smallest=max(2, local.smallest)),
            generators=generators,
            trainable=lambda name: name.startswith("extractor."),
        )
