"""TSA (Zhang et al., 2021) as FedTHE's ablation runs it: the weight of two heads that makes two views of a sample agree.

FedTHE Table 3, row 3. Per sample the weight e = softmax(a)_1 of the global head is found by Adam on a, from (1, 1), so that the cosine
similarity of the two views' blended predictions grows; then the sample itself is predicted with it. Both heads read the received extractor,
which stays as it is. Nothing is carried from sample to sample.

Paper and code: FedTHE's code forgets to augment, so that both views are the sample itself, the similarity is 1 whatever e is, and e stays
at one half up to rounding (default). ``augment=True`` takes the intended views of MoCo, cropped by 4 pixels and flipped on any data set.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedlib.augment.views import moco_views
from fedlib.core import Local, Output, State, Stream, Task
from fedlib.stages.optim import Optimizer
from fedlib.states import own_head, require


def agreement_weight(global_logits: Tensor, personal_logits: Tensor, *, lr: float = 0.1, steps: int = 10) -> Tensor:
    """Weight [n] of the global head in (0, 1) from both heads' logits of two views, [2, n, C] each; samples do not interact."""
    # In float64 the gradient of two equal views vanishes beside Adam's eps; in float32 its rounding noise would move e.
    heads = torch.stack([global_logits, personal_logits], -1).detach().double()
    a = heads.new_ones(heads.shape[1], 2, requires_grad=True)
    optimizer = Optimizer(Local(lr=lr, optimizer="adam"), [a], [False])
    for _ in range(steps):
        first, second = (heads * a.softmax(-1)[:, None]).sum(-1).softmax(-1)
        agreement = functional.cosine_similarity(first, second, dim=-1, eps=1e-6).sum()
        optimizer.step([a], torch.autograd.grad(-agreement, [a]))
    return a.detach().softmax(-1)[:, 0].to(global_logits.dtype)


@dataclass(frozen=True)
class TSA:
    """augment: whether the views are augmented; lr: of Adam, ten times the personal rate; steps: of it."""

    augment: bool = False
    lr: float = 0.1
    steps: int = 10
    version: int = 1

    def __post_init__(self):
        if self.lr <= 0 or self.steps < 0:
            raise ValueError(f"out of range: {self} (lr > 0, steps >= 0)")

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        require(personal, "TSA", "PersonalHead", "model.head.weight")
        features, global_logits = task.frozen(state, stream)
        personal_logits = own_head(features, personal)
        views = [(features, global_logits)] * 2
        if self.augment:
            generator = task.generator("TSA", stream.client, stream.column, stream.draw)
            images = moco_views(stream.images, generator).to(task.dtype)
            views = [task.predict(state, view) for view in images.unbind(1)]
        weight = agreement_weight(
            torch.stack([logits for _, logits in views]),
            torch.stack([own_head(z, personal) for z, _ in views]),
            lr=self.lr,
            steps=self.steps,
        )
        return Output(personal_logits + weight[:, None] * (global_logits - personal_logits), {"weight": weight})
