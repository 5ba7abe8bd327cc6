"""FedADG (Zhang et al., 2021), a baseline of UPFL: features of all clients are drawn towards one learned, class-wise distribution.

Beside the network (extractor F, head C) stand a generator G(u, y) of features, u uniform in [0, 1]^10, and at each client a discriminator
D(y, z) in (0, 1). Per batch, one step each: D ascends D(y, G)^2 + (1 - D(y, F))^2; F and C descend cross-entropy + beta (1 - D(y, F))^2;
G descends (1 - D(y, G))^2. The server averages F, C and G by numbers of training samples. State: ``model``, ``generator``, and each
client's D in ``client_discriminator``. All steps share the schedule's weight decay, clip and decay of rates.

Paper and code: the authors' code weighs the losses 0.85 / 0.15, smooths labels and detaches G's output in G's own step, so that G never
trains; none of it is done here. UPFL's code names only the options; its appendix gives 128 features on MNIST and 512 elsewhere, where
MNIST's network has 200 and FEMNIST's 2048: ``features`` puts one more layer with a ReLU before the head, and such a model is evaluated by
``fedlib.adapt.fedadg``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import one_hot
from torch.nn.utils.rnn import pad_sequence

from fedlib.core import Client, Server, State, Task
from fedlib.models import Net, state_of
from fedlib.models.net import training
from fedlib.stages.optim import Optimizer
from fedlib.stages.stacks import each_row, in_stacks
from fedlib.states import part, stacked
from fedlib.tools.seeding import default_draws, derive
from fedlib.train.fedavg import mean, sizes
from fedlib.train.local import Batch, Step, clipped, layer_draws, round_plan, stacked_batch
from fedlib.train.losses import cross_entropy
from fedlib.train.members import members, positions, with_rows

NOISE = 10
GROUPS = ("model.", "generator.", "discriminator.")
PROJECTION = "discriminator.0.weight"  # drawn once, never trained


@dataclass(frozen=True)
class FedADG:
    """beta: weight of the adversarial loss; lr: of F and C (None: the schedule's), adversarial_lr: of G and D, in round 1; widths: hidden
    units of G and D; features: width of a layer put before the head (None: the network's own features)."""

    beta: float = 1.0
    lr: float | None = None
    adversarial_lr: float = 0.1
    widths: tuple[int, int] = (4096, 1024)
    features: int | None = None
    version: int = 2
    refuses_batch_norm: ClassVar[bool] = True

    def init(self, task: Task, clients: Sequence[Client]) -> Server:
        like = next(task.model.parameters())
        network = with_features(task, self.features)
        with default_draws(derive(task.seed, "parameters", "fedadg")):
            generator, discriminator = (state_of(module.to(like)) for module in self._modules(network))
        copies = stacked([discriminator] * len(clients), prefix="")
        return {"model": state_of(network), "generator": generator, "members": members(clients), "client_discriminator": copies}

    def _modules(self, network: Net) -> tuple[nn.Module, nn.Module]:
        """G: noise and class -> features; D: class and features, through a fixed random projection (``0.weight``), -> (0, 1)."""
        classes, features = network.head.out_features, network.head.in_features
        generator = [nn.Linear(NOISE + classes, self.widths[0]), nn.LeakyReLU(), nn.Linear(self.widths[0], features), nn.ReLU()]
        projection = nn.Linear(classes + features, features, bias=False)
        discriminator = [projection, nn.Linear(features, self.widths[1]), nn.LeakyReLU(), nn.Linear(self.widths[1], 1), nn.Sigmoid()]
        return nn.Sequential(*generator), nn.Sequential(*discriminator)

    def update(self, task: Task, server: Server, cohort: Sequence[Client], round: int) -> list[State]:
        """Messages: F and C under their names, ``generator.*`` and ``discriminator.*``; ``task.chunk_size`` clients at once."""
        plans = [round_plan(client, task, round) for client in cohort]
        order = sorted(range(len(cohort)), key=lambda k: -len(plans[k]))
        rows = positions(server, cohort)
        common = {f"model.{n}": t for n, t in server["model"].items()} | {f"generator.{n}": t for n, t in server["generator"].items()}

        def run(chunk: Sequence[int]) -> list[State]:
            stack = stacked([common] * len(chunk), prefix="")
            own = {name: tensor[[rows[k] for k in chunk]] for name, tensor in server["client_discriminator"].items()}
            stack |= {f"discriminator.{name}": tensor.clone() for name, tensor in own.items()}
            self._train(task, stack, [cohort[k] for k in chunk], [plans[k] for k in chunk], round)
            return [{name.removeprefix("model."): tensor[i].clone() for name, tensor in stack.items()} for i in range(len(chunk))]

        return in_stacks(order, task.chunk_size, run)

    def _train(self, task: Task, stack: State, cohort: list[Client], plans: list[list[Step]], round: int) -> None:
        """Move the ``stack`` of clients, those with most steps first; at each step the prefix that still trains."""
        network, local = with_features(task, self.features), task.schedule.local
        with torch.device("meta"):
            generator, discriminator = self._modules(network)
        moving = {group: [n for n in stack if n.startswith(group) and n != PROJECTION] for group in GROUPS}
        rules = {group: local.at(round, self.lr if group == "model." else self.adversarial_lr) for group in GROUPS}
        optimizers = {g: Optimizer(rules[g], [stack[n] for n in names], [True] * len(names)) for g, names in moving.items()}
        draws = [task.generator("noise", client.id, round) for client in cohort]
        with training(network), layer_draws(task.generator("layers", cohort[0].id, round)):
            for s in range(len(plans[0])):
                n = sum(len(plan) > s for plan in plans)
                steps = [plan[s] for plan in plans[:n]]
                batch = stacked_batch(task, [client.train for client in cohort[:n]], steps)
                u = [torch.rand(len(step.index), NOISE, generator=g, dtype=torch.float64) for step, g in zip(steps, draws, strict=False)]
                leaves = {name: tensor[:n].detach().requires_grad_() for name, tensor in stack.items()}
                # Leaves share the memory of the stack: each loss is that after the steps before it.
                for group, value in self._losses(network, generator, discriminator, leaves, batch, pad_sequence(u, batch_first=True)):
                    names = moving[group]
                    gradients = torch.autograd.grad(value, [leaves[name] for name in names])
                    optimizers[group].step([stack[name][:n] for name in names], clipped(list(gradients), local.clip, stacked=True), n)

    def _losses(
        self, network: Net, generator: nn.Module, discriminator: nn.Module, leaves: State, batch: Batch, u: Tensor
    ) -> Iterator[tuple[str, Tensor]]:
        """What D, then F and C, then G descend on a minibatch, summed over clients: group and scalar, each once those before have moved."""
        inputs, labels, weights = batch
        y, u = one_hot(labels, network.head.out_features).to(inputs), u.to(inputs.device, inputs.dtype, non_blocking=True)

        def verdict(features: Tensor) -> Tensor:
            return _each(discriminator, part(leaves, "discriminator."), torch.cat([y, features], -1))[..., 0]

        features = _each(network.extractor, part(leaves, "model.extractor."), inputs)
        made = _each(generator, part(leaves, "generator."), torch.cat([u, y], -1))
        yield "discriminator.", -((verdict(made.detach()).square() + (1 - verdict(features.detach())).square()) * weights).sum()
        logits = _each(network.head, part(leaves, "model.head."), features)
        fit = cross_entropy(logits.flatten(0, 1), labels.flatten(), weights.flatten())
        yield "model.", fit + self.beta * ((1 - verdict(features)).square() * weights).sum()
        yield "generator.", ((1 - verdict(made)).square() * weights).sum()

    def aggregate(self, task: Task, server: Server, messages: list[State], cohort: Sequence[Client], round: int) -> Server:
        shared = [{name: tensor for name, tensor in message.items() if not name.startswith("discriminator.")} for message in messages]
        average, own = mean(shared, sizes(cohort)), [part(message, "discriminator.") for message in messages]
        own = with_rows(server["client_discriminator"], positions(server, cohort), own)
        model = {name: average[name] for name in server["model"]}
        return server | {"model": model, "generator": part(average, "generator."), "client_discriminator": own}


def with_features(task: Task, features: int | None) -> Net:
    """The task's network with one more layer of that width before the head, both initialised anew from the seed; the network itself for
    None."""
    if features is None:
        return task.model
    with default_draws(derive(task.seed, "parameters", "fedadg", "features")):
        layer, head = nn.Linear(task.model.head.in_features, features), nn.Linear(features, task.n_classes)
    wider = Net(nn.Sequential(task.model.extractor, layer, nn.ReLU()), head)
    return wider.to(next(task.model.parameters()))


def _each(module: nn.Module, states: State, inputs: Tensor) -> Tensor:
    """``module`` under stacked states on stacked inputs [clients, b, ...]."""
    return each_row(lambda state, batch: functional_call(module, state, (batch,)), states, inputs)
