"""APFL (Deng et al., 2020) as FedTHE runs it: a personal model trained through its mixture with the global one, and a learned weight.

FedTHE (C.2). Each round, one epoch with a copy u of the received model and the personal model v. Per batch: (i) a cross-entropy step on
u; (ii) a step on v alone down the cross-entropy of the mixed logits; after the first batch of an epoch, a step on alpha, whose gradient of
u is the sum of those of (i) and (ii). Prediction: the mixed logits (``fedlib.adapt.mixture.ModelMixture``). State: v, which starts as the
first received model, and alpha, which starts at 1/2.

Paper and code: the step on alpha is the one for the share of v, yet FedTHE's code mixes alpha u + (1 - alpha) v, so that the roles are
swapped (default). ``alpha_role="personal"`` mixes alpha v + (1 - alpha) u, as APFL does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import functional_call

from fedlib.core import Client, Samples, State, Task
from fedlib.models import state_of
from fedlib.models.net import training
from fedlib.stages.optim import Optimizer
from fedlib.stages.workers import shared
from fedlib.states import stacked
from fedlib.tools.names import check_name
from fedlib.train.apfl import update_alpha
from fedlib.train.local import batch_of, clipped, clone, layer_draws, plan, seen
from fedlib.train.losses import cross_entropy


@dataclass(frozen=True)
class APFL:
    """Personal part: u ``model.<name>``, v ``own.<name>`` [clients, ...], ``alpha`` and the resulting ``weight`` of u [clients].

    alpha_role: the model that alpha weighs in the mixture, ``global`` or ``personal``.
    """

    alpha_role: str = "global"
    persistent: ClassVar[bool] = True
    version: int = 3

    def __post_init__(self):
        check_name(self.alpha_role, ("global", "personal"), "role of alpha")

    def init(self, task: Task, clients: Sequence[Client]) -> State:
        start, alpha = state_of(task.model), torch.tensor(0.5).to(task.model.head.weight)
        return _together([(start, start, alpha)] * len(clients), self._weight)

    def fit(self, task: Task, received: Sequence[State], clients: Sequence[Client], personal: State, round: int) -> State:
        calls = []
        for k, client in enumerate(clients):
            own = {name: personal[f"own.{name}"][k] for name in received[k]}
            generator = task.generator("personal", client.id, round)
            calls.append((task, received[k], own, personal["alpha"][k], client.train, generator))
        return _together(shared(self._fit_one, calls, task.processes, seen(clients, task.schedule.personal)), self._weight)

    def _weight(self, alpha: Tensor) -> Tensor:
        """The share of u in the mixture."""
        return alpha if self.alpha_role == "global" else 1 - alpha

    def _fit_one(
        self, task: Task, received: State, own: State, alpha: Tensor, samples: Samples, generator: torch.Generator
    ) -> tuple[State, State, Tensor]:
        """u, v and alpha of one client after the phase."""
        local = task.schedule.personal
        u, v = ({name: clone(task, tensor) for name, tensor in state.items()} for state in (received, own))
        names = [name for name, _ in task.model.named_parameters()]
        u_leaves, v_leaves = ([state[name].requires_grad_() for name in names] for state in (u, v))
        decay = [task.model.feels_decay(name) for name in names]
        u_optimizer, v_optimizer = (Optimizer(local, leaves, decay) for leaves in (u_leaves, v_leaves))
        steps = plan(len(samples), local, task, generator)
        with training(task.model), layer_draws(generator):
            for i, step in enumerate(steps):
                inputs, labels = batch_of(task, samples, step)
                gradients = torch.autograd.grad(cross_entropy(functional_call(task.model, u, (inputs,)), labels), u_leaves)
                u_optimizer.step(u_leaves, clipped(list(gradients), local.clip), epoch=step.epoch)

                # Only alpha's step, once an epoch, asks for the mixture's gradient by u.
                moves = i == 0 or step.epoch != steps[i - 1].epoch
                with torch.set_grad_enabled(moves):
                    u_logits = functional_call(task.model, u, (inputs,))
                v_logits = functional_call(task.model, v, (inputs,))
                loss = cross_entropy(v_logits + self._weight(alpha) * (u_logits - v_logits), labels)
                mixed = torch.autograd.grad(loss, [*v_leaves, *(u_leaves if moves else ())])
                v_gradients, u_gradients = mixed[: len(names)], mixed[len(names) :]
                v_optimizer.step(v_leaves, clipped(list(v_gradients), local.clip), epoch=step.epoch)
                if moves:
                    summed = [first + second for first, second in zip(gradients, u_gradients, strict=True)]
                    flat = [torch.cat([t.detach().flatten() for t in tensors]) for tensors in (u_leaves, v_leaves, summed, v_gradients)]
                    alpha = update_alpha(alpha, *flat, lr=local.rate(step.epoch))
        return _detached(u), _detached(v), alpha


def _detached(state: State) -> State:
    return {name: tensor.detach() for name, tensor in state.items()}


def _together(results: Sequence[tuple[State, State, Tensor]], weight: Callable[[Tensor], Tensor]) -> State:
    tuned, own, alphas = zip(*results, strict=True)
    alpha = torch.stack(alphas)
    return stacked(tuned) | stacked(own, prefix="own.") | {"alpha": alpha, "weight": weight(alpha)}
