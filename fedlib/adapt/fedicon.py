"""FedICON at test time (section 4.2): the encoder follows the client's unlabelled test images by the self-supervised contrastive loss.

Offline: the whole test set is there. From the client's model, a few epochs over two views of every image move the encoder alone, batch norm
in training mode; then every plain image is predicted once. An image alone has nothing to be contrasted with: nothing moves then, batch norm
neither. Adaptation starts afresh with every stream. Any model with an extractor can be adapted so, also one trained by cross-entropy (the
paper's ablation).

Paper and code: the paper leaves open the number of epochs (5 in the authors' related code, which has this adaptation switched off), the
size of the memory and its replacement. Of the optimiser it names SGD, rate and weight decay; there is no momentum here. With the 0.9 of the
related code, which was meant for training, the encoder leaves its frozen classifier behind and the gain becomes a loss. Online, batch
norm is in evaluation mode and no gradient flows through the memory: choices made here.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from fedlib.core import Local, Output, Samples, State, Stream, Task
from fedlib.models.net import fast, moving_names
from fedlib.stages.optim import Optimizer
from fedlib.states import overlay, part, require
from fedlib.train.contrastive import Contrast


def plain(local: Local, **changed: float) -> Local:
    """SGD with the weight decay and the batches of ``local``, whatever else it trains with, and what is ``changed``."""
    return replace(local, optimizer="sgd", steps=None, clip=None, milestone=None, **changed)


@dataclass(frozen=True)
class Contrastive:
    """contrast: loss, views and rate; epochs: over the test images, in shuffled batches of the training's size, 0 changes nothing;
    momentum: of the optimiser, [0, 1)."""

    contrast: Contrast = Contrast()
    epochs: int = 5
    momentum: float = 0.0
    version: int = 5

    def __post_init__(self):
        if self.epochs < 0 or not 0 <= self.momentum < 1:
            raise ValueError(f"epochs must be at least 0 and momentum must lie in [0, 1), got {self.epochs} and {self.momentum}")

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        epochs = self.epochs if len(stream) > 1 else 0
        local = plain(task.schedule.local, lr=self.contrast.lr, epochs=epochs, momentum=self.momentum)
        generator = task.generator("fedicon", stream.client, stream.column, stream.draw)
        # The loss reads no label; training wants a tensor of them.
        images = Samples(stream.images, torch.zeros(len(stream), dtype=torch.int64, device=stream.images.device))
        start = [overlay(state, personal)]
        (adapted,) = self.contrast.train(task, start, [images], local=local, generators=[generator], supervised=False)
        return Output(task.predict(adapted, stream.images)[1])


def online_loss(view: Tensor, other: Tensor, memory: Tensor, *, temperature: float = 0.1, base: float | None = 0.07) -> Tensor:
    """Features of two views [d] of one image and of the memory [m, d], of any length -> scalar."""
    view, other, memory = (functional.normalize(features, dim=-1) for features in (view, other, memory))
    similarities = torch.cat([(view @ other)[None], memory @ view]) / temperature
    loss = -similarities.log_softmax(0)[0]
    return loss if base is None else loss * (temperature / base)


@dataclass(frozen=True)
class ContrastiveOnline:
    """FedICON online: test images come one by one, and each is contrasted with a memory of the client's training images.

    The memory is from ``OwnClassifier(memory=...)``; the loss is -log [exp(z.z'/t) / (exp(z.z'/t) + sum over memory of exp(z.m/t))]. One
    step of plain SGD with the schedule's weight decay, predict, and the image enters the memory in place of a random training image or,
    once those are gone, of the oldest test image. Carried over the stream: encoder, optimiser, memory. No printed number depends on it.
    Raises ValueError without a memory.
    """

    contrast: Contrast = Contrast()
    version: int = 2

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        require(personal, "FedICON online", "OwnClassifier(memory=64)", "memory")
        generator = task.generator("fedicon online", stream.client, stream.column, stream.draw)
        state, memory = fast(overlay(state, personal)), personal["memory"].clone()
        views, local = self.contrast.two_views(task.transform), plain(task.schedule.local, lr=self.contrast.lr, momentum=0.0)
        names = moving_names(task.model, state, lambda name: name.startswith("extractor."))
        state |= {name: state[name].detach().clone() for name in names}
        leaves = [state[name].requires_grad_() for name in names]
        optimizer = Optimizer(local, leaves, [True] * len(leaves))
        order = torch.randperm(len(memory), generator=generator).tolist()
        encode = lambda inputs: functional_call(task.model.extractor, part(state, "extractor."), (inputs,))  # noqa: E731
        results = []
        for i, image in enumerate(stream.images.split(1)):
            pair = encode(task.inputs(views.augmented(image, views.draws(1, generator))[0]).to(task.dtype))
            with torch.no_grad():
                stored = encode(task.inputs(memory))
            loss = online_loss(*pair, stored, temperature=self.contrast.temperature, base=self.contrast.base)
            optimizer.step(leaves, list(torch.autograd.grad(loss, leaves)))
            with torch.no_grad():
                results.append(functional_call(task.model.head, part(state, "head."), (encode(task.inputs(image)),)))
            # The first round through the memory replaces training images, later ones the oldest arrival.
            memory[order[i % len(order)]] = image[0]
        return Output(torch.cat(results))
