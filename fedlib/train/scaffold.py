"""SCAFFOLD (Karimireddy et al., ICML 2020, option II), a baseline of UPFL: control variates against client drift.

Local step: w <- w - lr (gradient + c - c_k). After K steps c_k' = c_k - c + (w_received - w) / (K lr). Server, uniform means over the
cohort S of N clients: w <- w + server_lr mean(w_k - w), c <- c + |S| / N mean(c_k' - c_k). State: the model, c (``control``), and each
client's c_k (``client_control``), all c zero at first. The published gradient clip acts on the corrected gradient. The way from w_received
to w is K lr mean gradients after plain steps of one rate alone: with momentum the control variates would be several times too long.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fedlib.core import Client, Schedule, Server, State, Task
from fedlib.models import state_of
from fedlib.states import part
from fedlib.train.fedavg import mean, model_loss
from fedlib.train.local import round_plan, train_cohort
from fedlib.train.members import members, positions


@dataclass(frozen=True)
class SCAFFOLD:
    """server_lr: constant over rounds; lr: local rate in round 1, None for the schedule's."""

    server_lr: float = 1.5
    lr: float | None = None
    version: int = 2

    def check_schedule(self, schedule: Schedule) -> None:
        """Raise ValueError for a local phase from whose length no mean gradient can be told."""
        local = schedule.local
        if local.optimizer != "sgd" or local.momentum or local.milestone is not None:
            raise ValueError(
                "SCAFFOLD reads mean gradients off plain steps of one rate: take optimizer sgd, momentum 0 and no milestone, got "
                f"{local.optimizer}, {local.momentum} and {local.milestone}"
            )

    def init(self, task: Task, clients: Sequence[Client]) -> Server:
        model = state_of(task.model)
        control = {name: torch.zeros_like(model[name]) for name, _ in task.model.named_parameters()}
        own = {name: tensor.new_zeros((len(clients), *tensor.shape)) for name, tensor in control.items()}
        return {"model": model, "control": control, "members": members(clients), "client_control": own}

    def update(self, task: Task, server: Server, cohort: Sequence[Client], round: int) -> list[State]:
        """Messages: the trained model, and the client's new control variate as ``control.<name>``."""
        received, control, plain = server["model"], server["control"], model_loss(task, "cross_entropy")
        own = [{n: t[k] for n, t in server["client_control"].items()} for k in positions(server, cohort)]
        corrections = [{n: control[n] - c[n] for n in control} for c in own]

        def loss(state, batch, correction):
            return plain(state, batch, correction) + sum((correction[n] * state[n]).sum() for n in correction)

        trained = train_cohort(task, loss, received, cohort, round, lr=self.lr, constants=corrections)
        rate = task.schedule.local.at(round, self.lr).lr
        messages = []
        for client, model, correction in zip(cohort, trained, corrections, strict=True):
            length = len(round_plan(client, task, round)) * rate
            messages.append(model | {f"control.{n}": (received[n] - model[n]) / length - correction[n] for n in control})
        return messages

    def aggregate(self, task: Task, server: Server, messages: list[State], cohort: Sequence[Client], round: int) -> Server:
        models = [{n: t for n, t in message.items() if not n.startswith("control.")} for message in messages]
        average, received = mean(models, [1.0] * len(models)), server["model"]
        control, own = dict(server["control"]), {n: t.clone() for n, t in server["client_control"].items()}
        for k, message in zip(positions(server, cohort), messages, strict=True):
            for name, new in part(message, "control.").items():
                control[name] = control[name] + (new - own[name][k]) / len(own[name])
                own[name][k] = new
        # Control variates belong to parameters, and a step beyond the mean could make a variance negative: buffers take the mean.
        model = {n: t + self.server_lr * (average[n] - t) if n in control else average[n] for n, t in received.items()}
        return server | {"model": model, "control": control, "client_control": own}
