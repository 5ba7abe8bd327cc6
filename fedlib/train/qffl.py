"""q-FFL (Li et al., ICLR 2020), q-FedAvg: clients with a larger loss count more.

Round: client k, with a share p_k of the training samples, reports F_k, its mean loss at the received model w, and w_k after local training.
The server takes the mean of the clients' whole states, batch-norm statistics included, weighted by p_k F_k^q. State: the model. q = 0 is
FedAvg weighted by samples.

Paper and code: ATP compares with q-FFL (q = 1) without code for it. The cited paper goes a share of the way to this mean only, with L = 1 /
lr: sum_k p_k L F_k^q / sum_k p_k (q F_k^(q-1) |L (w - w_k)|^2 + L F_k^q). The term with q bounds the curvature by squared pseudo-gradients,
which grow with the number of local steps: the share is a few per cent, and the network barely trains at a rate that suits FedAvg. Here the
term is left out, which keeps what q-FFL is about, the preference for large losses. F_k is taken in evaluation mode, plus 1e-10 as in that
paper's code.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fedlib.core import Client, Server, State, Task
from fedlib.models import state_of
from fedlib.train.fedavg import mean, model_loss, sizes
from fedlib.train.local import train_cohort
from fedlib.train.losses import cross_entropy

LOSS = "loss at the received model"


@dataclass(frozen=True)
class QFFL:
    """q >= 0: strength of the preference for clients with a large loss."""

    q: float = 1.0
    version: int = 2

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
        losses = [float(message[LOSS]) + 1e-10 for message in messages]
        states = [{name: tensor for name, tensor in message.items() if name != LOSS} for message in messages]
        weights = [n * f**self.q for n, f in zip(sizes(cohort), losses, strict=True)]
        return server | {"model": mean(states, weights)}
