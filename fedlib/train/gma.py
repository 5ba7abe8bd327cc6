"""GMA, gradient-masked averaging (Tenison et al., TMLR 2023): a baseline of FedTHE and, under the name FedGMA, of UPFL.

Per coordinate, the agreement A of the cohort is the absolute mean sign of the clients' updates. Where A reaches the threshold, the server
takes the whole mean update, elsewhere A times it: w <- w + server_lr M mean(w_k - w), M = 1 or A. State: the model.

Paper and code: FedTHE's code compares a floating-point mean with a threshold of 0.1, which 20 clients hit exactly (11 against 9), so that
rounding decides; here signs are counted, and a tie is agreement. A zero update counts as negative in that code, in UPFL's formula as zero.
FedTHE averages uniformly with server rate 1; UPFL weighs the mean (not the signs) by numbers of training samples and lets the server rate
decay.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedlib.core import Client, Server, State, Task
from fedlib.models import state_of
from fedlib.tools.names import check_name
from fedlib.train.fedavg import mean, model_loss, sizes
from fedlib.train.local import train_cohort


def masked_average(
    server: Tensor,
    clients: Tensor,
    *,
    threshold: float,
    server_lr: float = 1.0,
    weights: Sequence[float] | None = None,
    zero_sign: int = -1,
) -> Tensor:
    """The server's new parameters [D] from its own [D] and the clients' [K, D]; threshold in [0, 1], 0 for the plain mean.

    weights: of the mean update, summing to one (None: uniform); zero_sign: of an update that is zero, -1 or 0.
    """
    if not 0 <= threshold <= 1:
        raise ValueError(f"the threshold of agreement must lie in [0, 1], got {threshold}")
    updates = clients - server
    zero = zero_sign * (updates == 0).sum(0)
    votes = ((updates > 0).sum(0) - (updates < 0).sum(0) + zero).abs()
    mask = torch.where(votes >= threshold * len(clients) - 1e-9, 1.0, votes.to(server.dtype) / len(clients))
    update = updates.mean(0) if weights is None else torch.tensordot(updates.new_tensor(weights), updates, 1)
    return server + server_lr * mask * update


@dataclass(frozen=True)
class GMA:
    """threshold: agreement from which a coordinate moves in full; server_lr: in round 1, decays as the schedule says; weighting:
    ``uniform`` (FedTHE) or ``samples`` (UPFL); lr: local rate in round 1, None for the schedule's; zero_sign: of an update that is zero, -1
    (FedTHE) or 0 (UPFL)."""

    threshold: float = 0.1
    server_lr: float = 1.0
    weighting: str = "uniform"
    lr: float | None = None
    zero_sign: int = -1
    version: int = 1

    def __post_init__(self):
        check_name(self.weighting, ("uniform", "samples"), "weighting")
        if not 0 <= self.threshold <= 1 or self.server_lr <= 0 or self.zero_sign not in (-1, 0):
            raise ValueError(f"out of range: {self} (threshold in [0, 1], server_lr > 0, zero_sign -1 or 0)")

    def init(self, task: Task, clients: Sequence[Client]) -> Server:
        return {"model": state_of(task.model)}

    def update(self, task: Task, server: Server, cohort: Sequence[Client], round: int) -> list[State]:
        return train_cohort(task, model_loss(task, "cross_entropy"), server["model"], cohort, round, lr=self.lr)

    def aggregate(self, task: Task, server: Server, messages: list[State], cohort: Sequence[Client], round: int) -> Server:
        weights = sizes(cohort) if self.weighting == "samples" else [1.0] * len(cohort)
        options = {"threshold": self.threshold, "zero_sign": self.zero_sign}
        options["server_lr"] = task.schedule.local.decayed(self.server_lr, round)
        options["weights"] = [weight / sum(weights) for weight in weights]
        model = mean(messages, weights)
        for name, _ in task.model.named_parameters():
            received = server["model"][name]
            stack = torch.stack([message[name].flatten() for message in messages])
            model[name] = masked_average(received.flatten(), stack, **options).view_as(received)
        return server | {"model": model}
