"""MEMO (Zhang et al. 2022) as FedTHE runs it: per sample, minimise the marginal entropy over augmented views, then predict.

FedTHE section 5. For every sample, from the saved parameters: ``steps`` times, draw AugMix views, take a step of the optimiser on the
entropy of the mean prediction over the views, all parameters; predict the clean image; restore. On the received model (MEMO-G) or on the
fine-tuned one (MEMO-P). Carried over the stream: nothing, or the optimiser's moments (``carry``).

Paper and code: the paper states 3 steps at 5e-4. The code takes 2, and its attempt to set that rate has no effect, so the personal rate
and weight decay act (default: the code; ``lr=5e-4, steps=3`` is the paper). The code restores the parameters after every sample but keeps
the optimiser, so that momentum and Adam's moments go on from sample to sample: ``carry``, which FedTHE's notebook sets for ResNet and CCT;
the CNN's plain SGD has none to keep. There the optimiser even comes from the personal phase and lives through all tests in turn; here
every stream starts with moments of zero. For Table 3's linear probing then fine-tuning the paper names no steps and the released code has
none: three of each (``head_steps=3, steps=3``), at the same rate.
"""

import math
from dataclasses import dataclass, replace

from torch import Tensor
from torch.func import functional_call

from fedlib.adapt.tune import tune_each
from fedlib.core import Output, State, Stream, Task, overlay
from fedlib.names import check_name


def marginal_entropy(logits: Tensor) -> Tensor:
    """Entropy of the mean over views of the class probabilities: logits [V, C] -> scalar (nats)."""
    log_marginal = logits.log_softmax(-1).logsumexp(-2) - math.log(logits.shape[-2])
    return -(log_marginal.exp() * log_marginal).sum(-1)


@dataclass(frozen=True)
class MEMO:
    """base: ``global`` (received model) or ``personal`` (with the client's personal parts); views per step; lr None: the personal rate;
    head_steps: so many steps on the head alone come before those on all parameters (linear probing, then fine-tuning); carry: keep momentum
    and Adam's moments from sample to sample."""

    base: str = "personal"
    views: int = 32
    steps: int = 2
    lr: float | None = None
    head_steps: int = 0
    carry: bool = False
    version: int = 1

    def __post_init__(self):
        check_name(self.base, ("global", "personal"), "base")

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        start = overlay(state, personal) if self.base == "personal" else state

        def loss(state: State, views: Tensor, constants: State) -> Tensor:
            return marginal_entropy(functional_call(task.model, state, (views,)))

        def predict(state: State, image: Tensor, constants: State) -> Tensor:
            return functional_call(task.model, state, (image[None],))[0]

        local = task.schedule.personal
        local = replace(local, lr=local.rate(local.epochs - 1) if self.lr is None else self.lr)
        steps = {"steps": self.steps, "head_steps": self.head_steps, "views": self.views, "carry": self.carry}
        return Output(tune_each(task, start, stream, loss, predict, local=local, **steps))
