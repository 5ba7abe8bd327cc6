"""FedADG (Zhang et al., 2021), a baseline of UPFL: features of all clients are drawn towards one learned, class-wise distribution.

Beside the network (extractor F, head C) stand a generator G(u, y) of features, u uniform in [0, 1]^10, and at each client a discriminator
D(y, z) in (0, 1). Per batch, one step each: D ascends D(y, G)^2 + (1 - D(y, F))^2; F and C descend cross-entropy + beta (1 - D(y, F))^2;
G descends (1 - D(y, G))^2. The server averages F, C and G by numbers of training samples. State: ``model``, ``generator``, and each
client's D in ``client_discriminator``. All steps share the schedule's weight decay, clip and decay of rates.

Paper and code: the authors' code weighs the losses 0.85 / 0.15, smooths labels and detaches G's output in G's own step, so that G never
trains; none of it is done here. UPFL's code names only the options. Features are the network's own; UPFL puts a layer to 128 features
into its MLP.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import one_hot

from fedlib.clients import Client
from fedlib.models import state_of
from fedlib.optim import Optimizer
from fedlib.seeding import default_draws, derive
from fedlib.task import State, Task, part
from fedlib.train.fedavg import Server, mean, sizes
from fedlib.train.local import batch_of, clipped, round_plan
from fedlib.train.losses import cross_entropy
from fedlib.train.members import members, positions

NOISE = 10


@dataclass(frozen=True)
class FedADG:
    """beta: weight of the adversarial loss; lr: of F and C (None: the schedule's), adversarial_lr: of G and D, in round 1; widths: hidden
    units of G and D."""

    beta: float = 1.0
    lr: float | None = None
    adversarial_lr: float = 0.1
    widths: tuple[int, int] = (4096, 1024)
    version: int = 1

    def init(self, task: Task, clients: Sequence[Client]) -> Server:
        like = next(task.model.parameters())
        with default_draws(derive(task.seed, "parameters", "fedadg")):
            generator, discriminator = (state_of(module.to(like)) for module in self._modules(task))
        copies = {name: torch.stack([tensor] * len(clients)) for name, tensor in discriminator.items()}
        return {"model": state_of(task.model), "generator": generator, "members": members(clients), "client_discriminator": copies}

    def _modules(self, task: Task) -> tuple[nn.Module, nn.Module]:
        """G: noise and class -> features; D: class and features, through a fixed random projection (``0.weight``), -> (0, 1)."""
        classes, features = task.n_classes, task.model.head.in_features
        generator = [nn.Linear(NOISE + classes, self.widths[0]), nn.LeakyReLU(), nn.Linear(self.widths[0], features), nn.ReLU()]
        projection = nn.Linear(classes + features, features, bias=False)
        discriminator = [projection, nn.Linear(features, self.widths[1]), nn.LeakyReLU(), nn.Linear(self.widths[1], 1), nn.Sigmoid()]
        return nn.Sequential(*generator), nn.Sequential(*discriminator)

    def update(self, task: Task, server: Server, cohort: Sequence[Client], round: int) -> list[State]:
        """Messages: F and C under their names, ``generator.*`` and ``discriminator.*``."""
        owners = zip(positions(server, cohort), cohort, strict=True)
        return [self._train(task, server, {n: t[k] for n, t in server["client_discriminator"].items()}, c, round) for k, c in owners]

    def _train(self, task: Task, server: Server, discriminator: State, client: Client, round: int) -> State:
        with torch.device("meta"):
            generate, judge = self._modules(task)
        local = task.schedule.local
        lr = local.lr if self.lr is None else self.lr
        states = {"model": server["model"], "generator": server["generator"], "discriminator": discriminator}
        states = {group: {n: t.detach().clone().requires_grad_() for n, t in state.items()} for group, state in states.items()}
        network, g, d = states.values()
        moving = {group: [t for n, t in state.items() if (group, n) != ("discriminator", "0.weight")] for group, state in states.items()}
        optimizers = {}
        for group, tensors in moving.items():
            rate = local.decayed(lr if group == "model" else self.adversarial_lr, round)
            optimizers[group] = Optimizer(replace(local, lr=rate), tensors, [True] * len(tensors))

        def descend(group: str, value: Tensor) -> None:
            gradients = clipped(list(torch.autograd.grad(value, moving[group])), local.clip)
            optimizers[group].step(moving[group], gradients)

        draws = task.generator("noise", client.id, round)
        task.model.train()
        for step in round_plan(client, task, round):
            inputs, labels = batch_of(task, client.train, step)
            y = one_hot(labels, task.n_classes).to(inputs)
            u = torch.rand(len(y), NOISE, generator=draws, dtype=torch.float64).to(inputs)

            def verdict(features: Tensor, y: Tensor = y) -> Tensor:
                return functional_call(judge, d, (torch.cat([y, features], 1),))

            features = functional_call(task.model.extractor, part(network, "extractor."), (inputs,))
            made = functional_call(generate, g, (torch.cat([u, y], 1),))
            descend("discriminator", -(verdict(made.detach()).square() + (1 - verdict(features.detach())).square()).mean())
            logits = functional_call(task.model.head, part(network, "head."), (features,))
            descend("model", cross_entropy(logits, labels) + self.beta * (1 - verdict(features)).square().mean())
            descend("generator", (1 - verdict(made)).square().mean())
        named = {group: {n: t.detach() for n, t in state.items()} for group, state in states.items()}
        return named["model"] | {f"{group}.{n}": t for group in ("generator", "discriminator") for n, t in named[group].items()}

    def aggregate(self, task: Task, server: Server, messages: list[State], cohort: Sequence[Client], round: int) -> Server:
        average = mean(messages, sizes(cohort))
        own = {name: tensor.clone() for name, tensor in server["client_discriminator"].items()}
        for k, message in zip(positions(server, cohort), messages, strict=True):
            for name, tensor in part(message, "discriminator.").items():
                own[name][k] = tensor
        model = {name: average[name] for name in server["model"]}
        return server | {"model": model, "generator": part(average, "generator."), "client_discriminator": own}
