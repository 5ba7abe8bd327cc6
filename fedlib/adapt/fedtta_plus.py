"""FedTTA++ at test time (UPFL section 3.3.2, Algorithm 1): FedTTA's step again and again, stopped by the entropy of the predictions.

Up to ``max_steps`` networks are met, step 0 (no step yet) first; the one of least mean entropy answers, and the search ends when
``patience`` further ones have not been better. Nothing is carried from client to client.

Paper and code: in the code step 0 is a candidate (default), in Algorithm 1 only networks after a step are (``allow_step0=False``). The
stored code multiplies the log-probabilities by the count of failures in place of the probabilities, a quantity that always selects step 0
(``entropy="code"``); the published numbers cannot come from it, and the default is the entropy.
"""

from dataclasses import dataclass
from itertools import islice

import torch

from fedlib.adapt.fedtta import FedTTA
from fedlib.core import Output, State, Stream, Task
from fedlib.names import check_name

ENTROPIES = ("true", "code")


@dataclass(frozen=True)
class FedTTAPlus:
    """lr, norm: as in FedTTA; patience: failures before the search ends; max_steps: networks met, without any step included. path: add
    what every step saw to the extras: ``predictions`` [n, steps] (class numbers), ``loss`` and ``entropy`` (the client's, on every row)."""

    lr: float = 0.5
    patience: int = 1
    max_steps: int = 50
    norm: str = "batches"
    entropy: str = "true"
    allow_step0: bool = True
    path: bool = False
    version: int = 1

    def __post_init__(self):
        check_name(self.entropy, ENTROPIES, "entropy")
        if self.patience < 1 or self.max_steps < 1:
            raise ValueError(f"patience and max_steps must be at least 1, got {self.patience} and {self.max_steps}")

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        best, kept, failures, seen = float("inf"), 0, 0, []
        for t, (logits, loss, uncertainty) in enumerate(islice(FedTTA(self.lr, norm=self.norm).walk(task, state, stream), self.max_steps)):
            if failures >= self.patience:
                break
            seen.append((logits.argmax(1), loss, uncertainty))
            if t == 0:
                answer = logits
            if t == 0 and not self.allow_step0:
                continue
            value = uncertainty.item() if self.entropy == "true" else -failures * logits.log_softmax(1).sum(1).mean().item()
            if value < best:
                best, answer, kept, failures = value, logits, t, 0
            else:
                failures += 1
        extras = {"steps": torch.full((len(stream),), kept, device=stream.images.device)}
        if self.path:
            predictions, losses, entropies = (torch.stack(values, dim=-1) for values in zip(*seen, strict=True))
            extras |= {"predictions": predictions}
            extras |= {name: v.expand(len(stream), -1).contiguous() for name, v in {"loss": losses, "entropy": entropies}.items()}
        return Output(answer, extras)
