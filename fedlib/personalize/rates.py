"""ATP's federated learning of one adaptation rate per module (section 4.1, algorithm 1), the global model frozen.

Round: a random cohort of source clients starts from the server's rates; each goes once, in fixed order, through the batches of its
validation part and refines the rates after every batch (``fedlib.train.atp``), the model back at the global one before each; the server
takes the plain mean. State: the rates, zero at first. Only rates travel. Target clients take no part. Where clients hold parts of the
model that never travel (FedBN), each works with the model that it received.

Paper and code: the paper's algorithm has E local epochs, the code one pass in fixed order (as here). The gradient is divided by the
square root of a module's size, in the code's two ablations by the size itself; ``grad_norm`` selects.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from fedlib.adapt.atp import directions, modules
from fedlib.adapt.batchwise import batches
from fedlib.core import Client, State, Stream, Task
from fedlib.models.net import fast
from fedlib.tools.seeding import numpy_generator
from fedlib.train.atp import check_choices, gradient_and_loss, scale

# Directions at the frozen model are the same in every round: they are kept where all of them fit.
KEPT_BYTES = 2**30


@dataclass(frozen=True)
class Rates:
    """Personal part: ``shared.rates`` [modules] after the last round, ``shared.history`` [rounds + 1, modules] before each round and at the
    end, ``shared.losses`` [rounds] mean cross-entropy of the cohort's adapted models during refinement.

    rounds, cohort: federated schedule, the cohort at most all source clients; lr, batch_size, grad_norm, only: of ``refine``.
    """

    rounds: int = 200
    cohort: int = 60
    lr: float = 0.1
    batch_size: int = 20
    grad_norm: str = "sqrt_numel"
    only: str = "all"
    persistent: ClassVar[bool] = False
    version: int = 2
    needs = ("validation",)

    def __post_init__(self):
        if self.rounds < 1 or self.cohort < 1 or self.lr <= 0:
            raise ValueError(f"out of range: {self} (rounds >= 1, cohort >= 1, lr > 0)")
        check_choices(self.grad_norm, self.only)

    def init(self, task: Task, clients: Sequence[Client]) -> State:
        return {}

    def fit(self, task: Task, received: Sequence[State], clients: Sequence[Client], personal: State, round: int) -> State:
        sources = [k for k, client in enumerate(clients) if client.source and len(client.val)]
        if self.cohort > len(sources):
            raise ValueError(
                f"a cohort of {self.cohort} needs as many source clients with validation samples, but there are {len(sources)}: take more "
                f"clients, or in a recipe of your own dataclasses.replace(recipe.personalize, cohort={max(1, len(sources))})"
            )
        distinct = {id(received[k]): received[k] for k in sources}
        # One at a time: most trainings give all clients one model, and of their own models there may be more than there is room for.
        model_of = lru_cache(maxsize=1)(lambda key: fast(distinct[key]))
        data = {k: _batches(task, clients[k], self.batch_size) for k in sources}
        model = model_of(id(received[sources[0]]))
        size = sum(model[name].numel() * model[name].element_size() for name in modules(task.model))
        directions_of = lambda k, inputs: directions(task.model, inputs, model_of(id(received[k])))  # noqa: E731
        if size * sum(map(len, data.values())) <= KEPT_BYTES:
            directions_of = cache(directions_of)
        rates = torch.zeros(len(modules(task.model)), dtype=task.dtype, device=model["head.weight"].device)
        factor = self.lr * scale(task.model, rates, model, self.grad_norm, self.only)
        rng = numpy_generator(task.seed, "rate cohorts", len(sources), self.cohort)
        history, losses = [rates], []
        for _ in range(self.rounds):
            refined, values = [], []
            for k in rng.choice(sources, self.cohort, replace=False):
                own, model = rates, model_of(id(received[k]))
                for inputs, labels in data[k]:
                    gradient, loss = gradient_and_loss(task.model, own, directions_of(k, inputs), inputs, labels, model)
                    own = own - factor * gradient
                    values.append(loss)
                refined.append(own)
            rates = torch.stack(refined).mean(0)
            history.append(rates)
            losses.append(torch.stack(values).mean())
        # Once at the end, since a GPU waits for it.
        if not torch.isfinite(rates).all():
            last = sum(bool(torch.isfinite(each).all()) for each in history) - 1
            raise FloatingPointError(f"learning the rates diverged after {last} of {self.rounds} rounds: take steps (lr) below {self.lr}")
        return {"shared.rates": rates, "shared.history": torch.stack(history), "shared.losses": torch.stack(losses)}


def _batches(task: Task, client: Client, size: int) -> list[tuple[Tensor, Tensor]]:
    """Network inputs and labels of a client's validation batches, in order."""
    inputs = list(batches(task, Stream(client.val.images, "validation", client.id), size))
    return list(zip(inputs, client.val.labels.split([len(x) for x in inputs]), strict=True))
