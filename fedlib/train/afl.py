"""AFL, agnostic federated learning (Mohri et al., ICML 2019), a baseline of UPFL: the mixture of clients that is worst for the model.

min over w, max over mixtures lambda of the sum of lambda_k L_k(w). Round: every client reports the loss L_k of the received model on its
training part and trains as in FedAvg; w <- sum lambda_k w_k; lambda <- projection on the simplex of lambda + mixture_lr (L_1 .. L_N).
State: the model and lambda (``mixture``), at first the clients' shares of the training samples. Both rates decay as the schedule says.

The source takes one stochastic gradient per step; UPFL trains 20 local steps per round, and how it combined the two is not published.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

from fedlib.core import Client, Server, State, Task
from fedlib.models import state_of
from fedlib.tools.simplex import project_to_simplex
from fedlib.train.fedavg import mean, model_loss, sizes
from fedlib.train.local import train_cohort
from fedlib.train.members import members, positions


@dataclass(frozen=True)
class AFL:
    """mixture_lr: rate of lambda; lr: local rate; both in round 1, lr None for the schedule's."""

    mixture_lr: float = 0.3
    lr: float | None = None
    version: int = 1

    def init(self, task: Task, clients: Sequence[Client]) -> Server:
        share = torch.tensor(sizes(clients), dtype=task.dtype)
        return {"model": state_of(task.model), "members": members(clients), "mixture": {"weights": share / share.sum()}}

    def update(self, task: Task, server: Server, cohort: Sequence[Client], round: int) -> list[State]:
        """Messages: the trained model, and the received model's ``loss`` [] on the client's training part."""
        losses = [cross_entropy(task.predict(server["model"], client.train.images)[1], client.train.labels) for client in cohort]
        trained = train_cohort(task, model_loss(task, "cross_entropy"), server["model"], cohort, round, lr=self.lr)
        return [model | {"loss": loss} for model, loss in zip(trained, losses, strict=True)]

    def aggregate(self, task: Task, server: Server, messages: list[State], cohort: Sequence[Client], round: int) -> Server:
        losses = [message["loss"] for message in messages]
        models = [{name: tensor for name, tensor in message.items() if name != "loss"} for message in messages]
        mixture, rows = server["mixture"]["weights"], positions(server, cohort)
        climbed = mixture.clone()
        climbed[rows] += task.schedule.local.decayed(self.mixture_lr, round) * torch.stack(losses).to(mixture)
        weights = mixture[rows].tolist()
        if sum(weights) > 0:
            server = server | {"model": mean(models, weights)}
        return server | {"mixture": {"weights": project_to_simplex(climbed)}}
