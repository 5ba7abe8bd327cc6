"""FedSR (Nguyen et al., NeurIPS 2022), a baseline of UPFL: simple representations by two penalties.

The body gives a Gaussian per image, z ~ N(mu, sigma^2); a second copy of its last layer (``sigma.*``) stands for the doubled layer of the
source, sigma = softplus of that half. Local loss: cross-entropy + l2r mean ||z|| + cmi mean KL(N(C mu, (C sigma)^2) || N(r_y, s_y^2)),
with one reference Gaussian per class (s = softplus) and the scalar C learned at the client and never averaged. State: the network with
``sigma.*`` in ``model``, the references of all clients in ``client_reference``. The norm of z is not squared, as in the authors' code.
UPFL's blocks end in a ReLU, which both halves pass. Which layer UPFL doubled is inferred from its published network description. The noise
of clients that train in one stack is drawn together, as dropout's masks are: it depends on which clients these are. Either half is a pass
through the body: batch norm in it moves twice with every batch.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import softplus

from fedlib.core import Client, Server, State, Task
from fedlib.models import Net, state_of
from fedlib.models.blocks import after_body, body_of, body_prefix, body_width
from fedlib.states import part
from fedlib.tools.seeding import default_draws, derive
from fedlib.train.fedavg import mean, sizes
from fedlib.train.local import train_cohort
from fedlib.train.losses import cross_entropy
from fedlib.train.members import members, positions, with_rows

SIGMA, REFERENCE = "sigma.", "reference."


@dataclass(frozen=True)
class FedSR:
    """l2r, cmi: weights of the two penalties (UPFL, appendix D); lr: local rate in round 1, None for the schedule's."""

    l2r: float = 0.01
    cmi: float = 0.0005
    lr: float | None = None
    version: int = 1

    def check_network(self, model: Net) -> None:
        """Raise ValueError for a body that does not end in a layer which can be doubled."""
        name = _last_layer(model)
        layer = body_of(model).get_submodule(name)
        # Within a larger block the last parameters need not be those of the features.
        if "." in name or not isinstance(layer, nn.Linear | nn.Conv2d):
            raise ValueError(
                f"FedSR doubles the last layer of the body, which has to be linear or a convolution by itself, here {name} "
                f"({type(layer).__name__}): take a network such as mlp, convnet or cnn"
            )

    def init(self, task: Task, clients: Sequence[Client]) -> Server:
        shape = (len(clients), task.n_classes, body_width(task.model))
        like = next(task.model.parameters())
        reference = {"mean": like.new_zeros(shape), "scale": like.new_ones(shape), "factor": like.new_ones(len(clients))}
        model = state_of(task.model) | {f"{SIGMA}{name}": t for name, t in _fresh_half(task).items()}
        return {"model": model, "members": members(clients), "client_reference": {n: t.detach() for n, t in reference.items()}}

    def update(self, task: Task, server: Server, cohort: Sequence[Client], round: int) -> list[State]:
        own = [{f"{REFERENCE}{n}": t[k] for n, t in server["client_reference"].items()} for k in positions(server, cohort)]

        def loss(state, batch, constants):
            inputs, labels, weights = batch
            mean, scale = representation(task.model, state, inputs)
            z = mean + scale * torch.randn_like(mean)
            value = cross_entropy(after_body(task.model, state, z), labels, weights)
            penalty = self.l2r * z.norm(dim=1) + self.cmi * alignment(mean, scale, part(state, REFERENCE), labels)
            return value + (penalty * weights).sum()

        return train_cohort(task, loss, [server["model"] | reference for reference in own], cohort, round, lr=self.lr)

    def aggregate(self, task: Task, server: Server, messages: list[State], cohort: Sequence[Client], round: int) -> Server:
        average = mean(messages, sizes(cohort))
        own = [part(message, REFERENCE) for message in messages]
        reference = with_rows(server["client_reference"], positions(server, cohort), own)
        return server | {"model": {name: average[name] for name in server["model"]}, "client_reference": reference}


def representation(model: Net, state: State, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation [n, width] of the inputs' representations."""
    body, own = body_of(model), part(state, body_prefix(model))
    doubled = own | {f"{_last_layer(model)}.{name}": tensor for name, tensor in part(state, SIGMA).items()}
    return functional_call(body, own, (inputs,)), softplus(functional_call(body, doubled, (inputs,)))


def alignment(mean: Tensor, scale: Tensor, reference: State, labels: Tensor) -> Tensor:
    """KL [n] of the scaled representations N(C mean, (C scale)^2) to the reference Gaussians of their labels, summed over dimensions."""
    factor, centre, spread = reference["factor"], reference["mean"][labels], softplus(reference["scale"])[labels]
    distance = ((factor * scale).square() + (factor * mean - centre).square()) / (2 * spread.square())
    return (spread.log() - (factor * scale).log() + distance - 0.5).sum(1)


def _last_layer(model: Net) -> str:
    """Name within the body of its last layer with parameters."""
    return [name for name, _ in body_of(model).named_parameters()][-1].rpartition(".")[0]


def _fresh_half(task: Task) -> State:
    """Weight and bias of the second half of the doubled layer, framework-default initialisation."""
    layer = body_of(task.model).get_submodule(_last_layer(task.model))
    with default_draws(derive(task.seed, "parameters", "sigma")):
        half = copy.deepcopy(layer)
        half.reset_parameters()
    return state_of(half)
