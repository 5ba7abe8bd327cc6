"""HeteroFedTTA and heterogeneous Tent (UPFL sections 3.4 and 4.6): what a client of FedMD learns and says.

HeteroFedTTA keeps FedTTA's two models at every client. Digesting is a meta-step on public images whose loss is KL(ensemble's personalised
logits || network after the label-free step) + strength KL(ensemble's base logits || network before it); strength 0 is plain distillation.
Revisiting is FedTTA on the client's labels. Tent keeps one network, digests KL(personalised || network), revisits with cross-entropy, and
its label-free step lowers the entropy.

Paper and code: the paper prints the student as the first argument of the divergence, the code the teacher (here). The adaptation models
have three hidden layers (code), two in the paper's appendix. Personalised logits come from a step on the public images (code); the
paper's wording would allow the client's own.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call

from fedlib.adapt.fedtta import FedTTA as FedTTAStep
from fedlib.adapt.fedtta import judge_of
from fedlib.adapt.whole_client import entropy, walk
from fedlib.core import Client, Samples, State, Stream, Task
from fedlib.models import state_of
from fedlib.states import network_of
from fedlib.train.fedavg import model_loss
from fedlib.train.fedtta import FedTTA, MetaLoss, Rates, adaptation_of, divergence, inner_step, meta_train
from fedlib.train.local import Batch, Step, round_plan, train, train_cohort


@dataclass(frozen=True)
class HeteroFedTTA:
    """rates: as in FedTTA; strength: of the base logits in digestion, lambda in the paper; hidden: widths of the adaptation models by
    size."""

    rates: Rates = Rates(0.5, 0.1, 0.005)
    strength: float = 0.8
    hidden: tuple[int, ...] = (32, 64, 128)
    version: int = 2

    def fresh(self, task: Task, size: int, client: int) -> State:
        return state_of(task.model) | adaptation_of(task, self.hidden[size], client)

    def learn(self, task: Task, states: list[State], ensemble: State, plan: list[Step], cohort: list[Client], round: int) -> list[State]:
        """Digestion and revisit are phases of one optimiser, as in the code: the momentum of the adaptation models goes on."""
        samples = [public_samples(task)] * len(states)
        phases = [(self.digestion(task, states[0], ensemble, round), samples, [plan] * len(states))]
        if cohort:
            loss = FedTTA(self.rates).loss(task, states[0], round)
            phases.append((loss, [client.train for client in cohort], [round_plan(client, task, round) for client in cohort]))
        return meta_train(task, phases, states, self.rates, round)

    def digestion(self, task: Task, state: State, ensemble: State, round: int) -> MetaLoss:
        """The loss of a public batch, whose labels are the images' numbers; ``state``: of any client of the task's size."""
        judge, local = judge_of(state), task.schedule.local
        options = {"lr": local.decayed(self.rates.inner, round), "weight_decay": local.weight_decay}

        def loss(network: State, adaptation: State, batch: Batch) -> Tensor:
            inputs, index, weights = batch
            before, moved = inner_step(task.model, judge, network, adaptation, inputs, weights, **options)
            after = functional_call(task.model, moved, (inputs,))
            distance = divergence(ensemble["personalised"][index], after, weights)
            return distance + self.strength * divergence(ensemble["base"][index], before, weights)

        return loss

    def answers(self, task: Task, state: State, stream: Stream, batch_size: int | None = None) -> State:
        return two(FedTTAStep(self.rates.inner).walk(task, state, stream, batch_size, steps=1))


@dataclass(frozen=True)
class HeteroTent:
    """lr: of all steps in round 1."""

    lr: float = 0.1
    version: int = 2

    def fresh(self, task: Task, size: int, client: int) -> State:
        return state_of(task.model)

    def learn(self, task: Task, states: list[State], ensemble: State, plan: list[Step], cohort: list[Client], round: int) -> list[State]:
        def loss(state: State, batch: Batch, constants: State) -> Tensor:
            inputs, index, weights = batch
            return divergence(ensemble["personalised"][index], functional_call(task.model, state, (inputs,)), weights)

        local, samples, n = task.schedule.local.at(round, self.lr), public_samples(task), len(states)
        generators = [task.generator("digest", k, round) for k in range(n)]
        states = train(task, loss, states, [samples] * n, local=local, generators=generators, plans=[plan] * n)
        return train_cohort(task, model_loss(task, "cross_entropy"), states, cohort, round, lr=self.lr) if cohort else states

    def answers(self, task: Task, state: State, stream: Stream, batch_size: int | None = None) -> State:
        return two(walk(task, network_of(state), stream, entropy, lr=self.lr, steps=1, batch_size=batch_size, over="images"))


def public_samples(task: Task) -> Samples:
    """The public images, each labelled with its own number, by which a loss finds its row of the ensemble."""
    return Samples(task.public, torch.arange(len(task.public), device=task.public.device))


def two(steps: Iterator[tuple[Tensor, Tensor, Tensor]]) -> State:
    """Logits before and after the one label-free step."""
    (base, *_), (personalised, *_) = steps
    return {"base": base, "personalised": personalised}
