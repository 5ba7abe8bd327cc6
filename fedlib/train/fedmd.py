"""FedMD (Li and Wang, 2019) for clients whose networks differ in size, as UPFL uses it (section 4.6): knowledge travels as logits.

All clients hold the same unlabelled public images. Round: every client digests the ensemble's logits on them (not in round 1), trains on
its own labels, and sends its logits on the public images; the server takes uniform means. There are two arrays of logits, before
(``base``) and after (``personalised``) the label-free step of the learner. State: both arrays in ``model``; the clients' states in
``client_0``, ``client_1``, ... by size, stacked over the clients of that size in order of id. A new client starts from scratch: fresh
networks, two passes of digestion, one step on its own images (``fedlib.adapt.fedmd``).

Paper and code: sizes are dealt by id mod 3 in the code, at random in the paper. FedMD's own first phase, training on labelled public
data, is not used by UPFL.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from fedlib.core import Client, Server, State, Stream, Task
from fedlib.models import build, norm_layers
from fedlib.states import part, stacked
from fedlib.tools.seeding import derive
from fedlib.train.fedavg import mean
from fedlib.train.local import Step
from fedlib.train.members import members

SIZES = ("convnet_small", "convnet_medium", "convnet_big")


class Learner(Protocol):
    """What a client of FedMD does. The task's network is of the client's size; ensemble: ``base`` and ``personalised`` logits [m, C]."""

    version: int

    def fresh(self, task: Task, size: int, client: int) -> State: ...

    def learn(self, task: Task, states: list[State], ensemble: State, plan: list[Step], cohort: list[Client], round: int) -> list[State]:
        """Digest the ensemble's logits on the planned public batches, then train on the labels of the cohort (none: stop there)."""
        ...

    def answers(self, task: Task, state: State, stream: Stream, batch_size: int | None = None) -> State: ...


@dataclass(frozen=True)
class FedMD:
    """learner: see ``fedlib.train.hetero``; networks: names of the sizes, client k has number k mod their count; batch_size: of public
    images."""

    learner: Learner
    networks: tuple[str, ...] = SIZES
    batch_size: int = 100
    version: int = 1

    def init(self, task: Task, clients: Sequence[Client]) -> Server:
        if task.public is None:
            raise ValueError('FedMD needs public images: build the clients with UPFL(partition="public")')
        for name in self.networks:
            if norm_layers(build(name, tuple(task.public.shape[1:]), task.n_classes, task.seed)):
                raise ValueError(f"FedMD runs without batch norm only, and {name} has it: choose one without")
        silent = torch.zeros(len(task.public), task.n_classes, dtype=task.dtype, device=task.public.device)
        groups = {}
        for size, _, holders in self.by_size(task, clients):
            states = [self.learner.fresh(self.sized(task, size, client.id), size, client.id) for client in holders]
            groups[f"client_{size}"] = stacked(states, prefix="")
        return {"model": {"base": silent, "personalised": silent.clone()}, "members": members(clients), **groups}

    def by_size(self, task: Task, clients: Sequence[Client]) -> Iterator[tuple[int, Task, list[Client]]]:
        """For every size that occurs: its number, the task with a network of that size, its clients."""
        for size in range(len(self.networks)):
            if holders := [client for client in clients if client.id % len(self.networks) == size]:
                yield size, self.sized(task, size), holders

    def sized(self, task: Task, size: int, *purpose: str | int) -> Task:
        """The task with a network of that size, whose own weights depend on ``purpose``."""
        seed = derive(task.seed, "fedmd", *purpose)
        network = build(self.networks[size], tuple(task.public.shape[1:]), task.n_classes, seed)
        return replace(task, model=network.to(task.public.device, task.dtype))

    def learned(self, task: Task, states: list[State], ensemble: State, passes: int, cohort: list[Client], round: int) -> list[State]:
        """The learner's work after ``passes`` over the public images, in order, then on the cohort's labels."""
        chunks = torch.arange(len(task.public)).split(self.batch_size)
        plan = [Step(index, torch.empty(0, 3, dtype=torch.int64)) for index in chunks] * passes
        return self.learner.learn(task, states, ensemble, plan, cohort, round)

    def update(self, task: Task, server: Server, cohort: Sequence[Client], round: int) -> list[State]:
        """Messages: ``base`` and ``personalised`` logits on the public images, and the client's own state as ``own.<name>``."""
        messages: dict[int, State] = {}
        for size, sized, holders in self.by_size(task, cohort):
            states = [{n: t[self.row(server, c)] for n, t in server[f"client_{size}"].items()} for c in holders]
            states = self.learned(sized, states, server["model"], int(round > 1), holders, round)
            for client, state in zip(holders, states, strict=True):
                stream = Stream(task.public, "public", client.id)
                answers = self.learner.answers(replace(sized, round=round + 1), state, stream, self.batch_size)
                messages[client.id] = answers | {f"own.{name}": tensor for name, tensor in state.items()}
        return [messages[client.id] for client in cohort]

    def aggregate(self, task: Task, server: Server, messages: list[State], cohort: Sequence[Client], round: int) -> Server:
        answers = [{name: message[name] for name in ("base", "personalised")} for message in messages]
        own = {group: {n: t.clone() for n, t in state.items()} for group, state in server.items() if group.startswith("client_")}
        for client, message in zip(cohort, messages, strict=True):
            for name, tensor in part(message, "own.").items():
                own[f"client_{client.id % len(self.networks)}"][name][self.row(server, client)] = tensor
        return server | {"model": mean(answers, [1.0] * len(answers))} | own

    def row(self, server: Server, client: Client) -> int:
        """The client's row among those of its size."""
        size = client.id % len(self.networks)
        return [i for i in server["members"]["id"].tolist() if i % len(self.networks) == size].index(client.id)
