"""q-FFL (Li et al., ICLR 2020), q-FedAvg: clients with a larger loss count more.

Round: client k reports F_k, its mean loss at the received model w over its training part, and w_k after local training. With
D_k = (w - w_k) / lr the server takes w - sum_k F_k^q D_k / sum_k (q F_k^(q-1) |D_k|^2 + F_k^q / lr). Batch-norm statistics are averaged by
the number of samples. State: the model. q = 0 is the uniform mean of the clients.

Paper and code: ATP compares with q-FFL (q = 1) without code for it; this is the form of the cited paper, 1 / lr its Lipschitz estimate.
F_k is taken in evaluation mode.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fedlib.clients import Client
from fedlib.models import state_of
from fedlib.task import State, Task
from fedlib.train.fedavg import mean, model_loss, sizes
from fedlib.train.local import train_cohort
from fedlib.train.losses import cross_entropy

Server = dict[str, State]
LOSS = "loss at the received model"


@dataclass(frozen=True)
class QFFL:
    """q >= 0: strength of the preference for clients with a large loss."""

    q: float = 1.0
    version: int = 1

    def __post_init__(self):
        if self.q < 0:
            raise ValueError(f"q-FFL: q must be 0 or more, got {self.q}")

    def init(self, task: Task, clients: Sequence[Client]) -> Server:
        return {"model": state_of(task.model)}

    def update(self, task: Task, server: Server, cohort: Sequence[Client], round: int) -> list[State]:
        """One message per client: its trained state and its loss at the received model."""
        losses = [cross_entropy(task.predict(server["model"], c.train.images)[1], c.train.labels) for c in cohort]
        trained = train_cohort(task, model_loss(task, "cross_entropy"), server["model"], cohort, round)
        return [state | {LOSS: loss} for state, loss in zip(trained, losses, strict=True)]

    def aggregate(self, task: Task, server: Server, messages: list[State], cohort: Sequence[Client], round: int) -> Server:
        losses = [message[LOSS] for message in messages]
        states = [{name: tensor for name, tensor in message.items() if name != LOSS} for message in messages]
        names = [name for name, _ in task.model.named_parameters()]
        lipschitz = 1 / task.schedule.local.decayed(task.schedule.local.lr, round)
        deltas = [{name: lipschitz * (server["model"][name] - state[name]) for name in names} for state in states]
        norms = [sum(delta.square().sum() for delta in of_client.values()) for of_client in deltas]
        total = sum(self.q * f ** (self.q - 1) * norm + f**self.q * lipschitz for f, norm in zip(losses, norms, strict=True))
        model = mean(states, sizes(cohort))
        for name in names:
            push = sum(f**self.q * delta[name] for f, delta in zip(losses, deltas, strict=True))
            model[name] = (server["model"][name] - push / total).contiguous()
        return server | {"model": model}
