"""FedTTA and FedTTA-Prox at test time (UPFL section 3.2, equation 11): one step of a learned, label-free loss on a client's images.

The adaptation model g judges logits row by row; the personalisation loss of a batch is the L2 norm of its judgements. g was trained so that
this step helps (``fedlib.train.fedtta``), and stays fixed here. The network moves, then predicts the same images. Nothing is carried from
client to client.

Paper and code: the paper takes one norm over all images (``norm="full"``), the code the mean over batches of the batches' norms (default),
about sqrt(number of batches) times smaller. Under the root stands 1e-12, since the norm has no gradient at zero.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import functional_call

from fedlib.adapt.whole_client import walk
from fedlib.core import Output, State, Stream, Task
from fedlib.models.adaptation import Adaptation
from fedlib.states import network_of, overlay, part
from fedlib.tools.names import check_name

NORMS = ("batches", "full")
PREFIX = "adaptation."


def judge_of(state: State) -> Callable[[State, Tensor], Tensor]:
    """The adaptation model that fits ``state``'s ``adaptation.`` tensors as a function (those tensors, logits [n, C]) -> judgements [n]."""
    widths = state.get(f"{PREFIX}layers.0.weight")
    if widths is None:
        raise ValueError("FedTTA needs a model with an adaptation part: start it from fedlib.train.fedtta")
    with torch.device("meta"):
        skeleton = Adaptation(widths.shape[1], widths.shape[0])
    return lambda adaptation, logits: functional_call(skeleton, adaptation, (logits,))[:, 0]


def personalisation_loss(judgements: Tensor, kept: Tensor | None = None) -> Tensor:
    """L2 norm of the judgements [n] of a batch; ``kept`` [n] (0 or 1) leaves padded rows out."""
    squares = judgements.square() if kept is None else judgements.square() * kept
    return (squares.sum() + 1e-12).sqrt()


@dataclass(frozen=True)
class FedTTA:
    """lr: inner rate in round 1, which decays as the schedule's; steps: on the whole client; norm: ``batches`` or ``full``."""

    lr: float = 0.5
    steps: int = 1
    norm: str = "batches"
    version: int = 2
    refuses_batch_norm: ClassVar[bool] = True

    def __post_init__(self):
        check_name(self.norm, NORMS, "norm")

    def walk(self, task: Task, state: State, stream: Stream, batch_size: int | None = None, steps: int | None = None):
        """What holds before each step and after the last: logits [n, C], loss, entropy; see ``fedlib.adapt.whole_client.walk``."""
        judge, adaptation = judge_of(state), part(state, PREFIX)
        batch_size = max(1, len(stream)) if self.norm == "full" else batch_size
        loss = lambda logits: personalisation_loss(judge(adaptation, logits))  # noqa: E731
        return walk(task, network_of(state), stream, loss, lr=self.lr, steps=steps, batch_size=batch_size)

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        *_, (logits, _, _) = self.walk(task, overlay(state, personal), stream, steps=self.steps)
        return Output(logits)


@dataclass(frozen=True)
class FedTTAPlus:
    """FedTTA++ (UPFL section 3.3.2, Algorithm 1): FedTTA's step again and again, stopped by the entropy of the predictions.

    Up to ``max_steps`` networks are candidates, step 0 (no step yet) first; the one of least mean entropy answers, and the search ends when
    ``patience`` further ones have not been better. Nothing is carried from client to client. lr, norm: as in FedTTA. path: add what every
    step saw to the extras: ``predictions`` [n, steps] (class numbers), ``loss`` and ``entropy`` (the client's, on every row).

    Paper and code: in the code step 0 is a candidate (default), in Algorithm 1 only networks after a step are (``allow_step0=False``). The
    stored code multiplies the log-probabilities by the count of failures in place of the probabilities, a quantity that always selects step
    0; the published numbers cannot come from it, and here it is the entropy.
    """

    lr: float = 0.5
    patience: int = 1
    max_steps: int = 50
    norm: str = "batches"
    allow_step0: bool = True
    path: bool = False
    version: int = 2
    refuses_batch_norm: ClassVar[bool] = True

    def __post_init__(self):
        check_name(self.norm, NORMS, "norm")
        if self.patience < 1 or self.max_steps < 1:
            raise ValueError(f"at least patience=1 and max_steps=1, so that a network can answer; got {self}")

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        best, kept, failures, answer, seen = float("inf"), 0, 0, None, []
        # A step 0 that may not answer does not count.
        met = FedTTA(self.lr, norm=self.norm).walk(task, overlay(state, personal), stream, steps=self.max_steps - self.allow_step0)
        for t, (logits, loss, uncertainty) in enumerate(met):
            seen.append((logits.argmax(1), loss, uncertainty))
            if t == 0 and not self.allow_step0:
                continue
            if (value := uncertainty.item()) < best:
                best, answer, kept, failures = value, logits, t, 0
            else:
                failures += 1
                if failures >= self.patience:
                    break
        if answer is None:
            raise FloatingPointError("FedTTA++: no step has a finite entropy")
        extras = {"steps": torch.full((len(stream),), kept, device=stream.images.device)}
        if self.path:
            predictions, losses, entropies = (torch.stack(values, dim=-1) for values in zip(*seen, strict=True))
            extras |= {"predictions": predictions}
            extras |= {name: v.expand(len(stream), -1).contiguous() for name, v in {"loss": losses, "entropy": entropies}.items()}
        return Output(answer, extras)
