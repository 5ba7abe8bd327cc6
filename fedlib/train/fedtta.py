"""FedTTA and FedTTA-Prox (UPFL section 3, equations 3-9, 13): meta-training of a network for a step that needs no label.

Two models: the network f(psi) and the adaptation model g(phi), which judges logits. On a labelled batch the network first takes the step
that it will take at test time, psi~ = psi - inner_lr (grad ||g(f(psi))|| + weight_decay psi); the cross-entropy of f(psi~) on the same
batch then moves psi *and* phi through that step. FedTTA-Prox adds mu KL(received model || local model) on the logits before the step. The
server averages both models by numbers of training samples. Carried from round to round: only the two models (``model``; g's tensors are
``adaptation.*``).

Paper and code, defaults from the code: Algorithm 1 as printed lets the outer step start from psi~, equations and code from psi (here; the
other reading makes adaptation harmful). Decay of all rates, weight decay, momentum 0.9 on phi, gradients of psi and phi clipped apart and
averaging by size are in the code only. The paper writes KL(local || received), ``kl="paper"``.

``order="hybrid"`` saves the second-order part of psi's gradient (d psi~ / d psi counts as identity), phi's gradient stays exact. The usual
first-order shortcut does not exist: with the inner gradient detached, the loss does not depend on phi and g never learns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import functional_call

from fedlib.adapt.fedtta import PREFIX, judge_of, personalisation_loss
from fedlib.core import Client, Samples, Schedule, Server, State, Task
from fedlib.models import Net, state_of
from fedlib.models.adaptation import Adaptation
from fedlib.models.net import training
from fedlib.stages.optim import Optimizer
from fedlib.stages.stacks import each_row, in_stacks
from fedlib.states import network_of, part, stacked
from fedlib.tools.names import check_name
from fedlib.tools.seeding import default_draws, derive
from fedlib.train.fedavg import mean, sizes
from fedlib.train.local import Batch, Step, clipped, layer_draws, round_plan, stacked_batch
from fedlib.train.losses import cross_entropy

ORDERS = ("second", "hybrid")
Judge = Callable[[State, Tensor], Tensor]
MetaLoss = Callable[[State, State, Batch], Tensor]
Phase = tuple[MetaLoss, Sequence[Samples], Sequence[list[Step]]]


@dataclass(frozen=True)
class Rates:
    """Rates in round 1 of the network's inner and outer step and of the adaptation model, and the latter's momentum."""

    inner: float = 0.5
    outer: float = 0.05
    adaptation: float = 0.005
    momentum: float = 0.9


@dataclass(frozen=True)
class FedTTA:
    """rates: see ``Rates``, defaults for CIFAR-10; mu: weight of the proximal KL, 0 for plain FedTTA; kl: ``code`` or ``paper``; order:
    ``second`` or ``hybrid``; hidden: width of the adaptation model."""

    rates: Rates = Rates()
    mu: float = 0.0
    kl: str = "code"
    order: str = "second"
    hidden: int = 32
    version: int = 1
    refuses_batch_norm: ClassVar[bool] = True

    def __post_init__(self):
        check_name(self.kl, ("code", "paper"), "direction of the divergence")
        check_name(self.order, ORDERS, "order")

    def check_schedule(self, schedule: Schedule) -> None:
        """Raise ValueError for a rate that falls within a round, which the two models' own rates know nothing of."""
        if schedule.local.milestone is not None:
            raise ValueError(f"FedTTA's rates are those of a whole round: take no milestone, got {schedule.local.milestone}")

    def init(self, task: Task, clients: Sequence[Client]) -> Server:
        return {"model": state_of(task.model) | adaptation_of(task, self.hidden)}

    def update(self, task: Task, server: Server, cohort: Sequence[Client], round: int) -> list[State]:
        loss, states = self.loss(task, server["model"], round), [server["model"]] * len(cohort)
        plans = [round_plan(client, task, round) for client in cohort]
        return meta_train(task, [(loss, [client.train for client in cohort], plans)], states, self.rates, round)

    def aggregate(self, task: Task, server: Server, messages: list[State], cohort: Sequence[Client], round: int) -> Server:
        return server | {"model": mean(messages, sizes(cohort))}

    def loss(self, task: Task, model: State, round: int) -> MetaLoss:
        """The loss of a labelled batch after the label-free step; ``model``: the received one, to which the proximal term holds."""
        received, judge, local = network_of(model), judge_of(model), task.schedule.local
        inner_lr = local.decayed(self.rates.inner, round)

        def loss(network: State, adaptation: State, batch: Batch) -> Tensor:
            inputs, labels, weights = batch
            options = {"lr": inner_lr, "weight_decay": local.weight_decay, "order": self.order}
            before, moved = inner_step(task.model, judge, network, adaptation, inputs, weights, **options)
            value = cross_entropy(functional_call(task.model, moved, (inputs,)), labels, weights)
            if self.mu:
                anchor = functional_call(task.model, received, (inputs,))
                pair = (anchor, before) if self.kl == "code" else (before, anchor)
                value = value + self.mu * divergence(*pair, weights)
            return value

        return loss


def adaptation_of(task: Task, hidden: int, *purpose: str | int) -> State:
    """A fresh adaptation model, framework-default initialisation from the seed and ``purpose``, under the names ``adaptation.*``."""
    reference = next(task.model.parameters())
    with default_draws(derive(task.seed, "parameters", "adaptation", *purpose)):
        fresh = Adaptation(task.n_classes, hidden).to(reference)
    return {f"{PREFIX}{name}": tensor for name, tensor in state_of(fresh).items()}


def inner_step(
    model: Net,
    judge: Judge,
    network: State,
    adaptation: State,
    inputs: Tensor,
    weights: Tensor,
    *,
    lr: float,
    weight_decay: float,
    order: str = "second",
) -> tuple[Tensor, State]:
    """Logits [b, C] before the label-free step, and the network after it, differentiable in both states. Rows of weight 0 are padding."""

    def personal(network: State) -> tuple[Tensor, Tensor]:
        logits = functional_call(model, network, (inputs,))
        return personalisation_loss(judge(adaptation, logits), (weights > 0).to(logits)), logits

    start = network if order == "second" else {name: tensor.detach() for name, tensor in network.items()}
    gradient, before = torch.func.grad(personal, has_aux=True)(start)
    moved = {name: network[name] - lr * (gradient[name] + weight_decay * start[name]) for name in network}
    return before if order == "second" else functional_call(model, network, (inputs,)), moved


def divergence(teacher: Tensor, student: Tensor, weights: Tensor) -> Tensor:
    """KL(softmax teacher || softmax student) of logits [b, C], summed over classes, weighted over rows -> scalar."""
    log_p, log_q = teacher.log_softmax(-1), student.log_softmax(-1)
    return ((log_p.exp() * (log_p - log_q)).sum(-1) * weights).sum()


def meta_train(task: Task, phases: Sequence[Phase], states: Sequence[State], rates: Rates, round: int) -> list[State]:
    """Meta-steps of several clients from ``states`` (network and ``adaptation.*``), ``task.chunk_size`` at once.

    phases: one after the other, each a loss(network, adaptation, batch) -> scalar of one client, with every client's samples and
    minibatches; a client with more steps than another in one phase must not have fewer in the next. SGD with weight decay on both models,
    momentum on the adaptation model, started afresh and kept through all phases; gradients clipped per client and model. Returns the moved
    states in the order of ``states``.
    """
    local = task.schedule.local
    outer = replace(local.at(round, rates.outer), momentum=0.0)
    slow = replace(local.at(round, rates.adaptation), momentum=rates.momentum)
    order = sorted(range(len(states)), key=lambda k: -sum(len(plans[k]) for _, _, plans in phases))

    def run(chunk: Sequence[int]) -> list[State]:
        stack = stacked([states[k] for k in chunk], prefix="")
        groups = [[n for n in stack if n.startswith(PREFIX) == judging] for judging in (False, True)]
        optimizers = [Optimizer(rule, [stack[n] for n in g], [True] * len(g)) for rule, g in zip((outer, slow), groups, strict=True)]
        steps = [(loss, samples, plans, s) for loss, samples, plans in phases for s in range(len(plans[chunk[0]]))]
        with layer_draws(task.generator("layers", round, chunk[0])):
            for loss, samples, plans, s in steps:
                rows = sum(len(plans[k]) > s for k in chunk)
                batch = stacked_batch(task, [samples[k] for k in chunk[:rows]], [plans[k][s] for k in chunk[:rows]])
                leaves = {name: tensor[:rows].detach().requires_grad_() for name, tensor in stack.items()}
                values = each_row(loss, network_of(leaves), part(leaves, PREFIX), batch)
                gradients = torch.autograd.grad(values.sum(), list(leaves.values()), allow_unused=True, materialize_grads=True)
                gradients = dict(zip(leaves, gradients, strict=True))
                for names, optimizer in zip(groups, optimizers, strict=True):
                    moves = clipped([gradients[n] for n in names], local.clip, stacked=True)
                    optimizer.step([stack[n][:rows] for n in names], moves, rows)
        return [{name: tensor[i].clone() for name, tensor in stack.items()} for i in range(len(chunk))]

    with training(task.model):
        return in_stacks(order, task.chunk_size, run)
