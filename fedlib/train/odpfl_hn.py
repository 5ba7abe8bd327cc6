"""ODPFL-HN (Amosy et al., 2021), a baseline of UPFL: a hypernetwork writes a model for a client from its unlabelled images.

An encoder embeds a client as the mean over its images, a hypernetwork turns the embedding e into all weights theta of the network. Round:
every client trains theta to theta' on its labels; theta - theta' is the gradient that is carried back through the hypernetwork and, by e,
through the encoder; the server averages by numbers of training samples and steps. State: ``encoder.*``, ``trunk.*`` and ``out.*`` in
``model``.

The hypernetwork's last layers are linear in its hidden vector h, so that a client sends theta - theta' and h in place of the outer
product. The round is inferred from UPFL's code, which kept only the averaging function. In training the embedding
is of the client's training part; in a test, of the images that are tested, for training clients (column ``validation``) as for new ones.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedlib.core import Client, Server, State, Task
from fedlib.models import Net, state_of
from fedlib.models.blocks import body_of, body_width
from fedlib.models.mlp import MLP
from fedlib.states import part
from fedlib.tools.seeding import default_draws, derive
from fedlib.train.fedavg import model_loss, sizes
from fedlib.train.local import train_cohort

EMBEDDING, HIDDEN = 32, 100
BATCH = 256  # images encoded at once


@dataclass(frozen=True)
class ODPFLHN:
    """lr, encoder_lr, hyper_lr: of the local steps, the encoder and the hypernetwork in round 1; all decay as the schedule says."""

    lr: float = 0.05
    encoder_lr: float = 0.1
    hyper_lr: float = 0.5
    version: int = 2
    refuses_batch_norm: ClassVar[bool] = True

    def init(self, task: Task, clients: Sequence[Client]) -> Server:
        """Framework-default initialisation; one output layer per tensor of the network."""
        like = next(task.model.parameters())
        with default_draws(derive(task.seed, "parameters", "odpfl-hn")):
            encoder = _encoder(task.model, None)
            for layer in encoder.modules():
                if hasattr(layer, "reset_parameters"):
                    layer.reset_parameters()
            parts = {"encoder": encoder, "trunk": _trunk()}
            parts |= {f"out.{name}": nn.Linear(HIDDEN, tensor.numel()) for name, tensor in task.model.named_parameters()}
            model = {f"{p}.{name}": tensor for p, module in parts.items() for name, tensor in state_of(module.to(like)).items()}
        return {"model": model}

    def update(self, task: Task, server: Server, cohort: Sequence[Client], round: int) -> list[State]:
        """Messages: ``step.<name>`` (theta - theta'), the ``hidden`` vector, and the gradients of ``encoder.*`` and ``trunk.*``."""
        model = server["model"]
        embeddings = [embedding_of(task, model, client.train.images) for client in cohort]
        hidden = [_hidden(model, e) for e in embeddings]
        starts = [written(task.model, model, h) for h in hidden]
        trained = train_cohort(task, model_loss(task, "cross_entropy"), starts, cohort, round, lr=self.lr)
        messages = []
        for client, e, h, start, end in zip(cohort, embeddings, hidden, starts, trained, strict=True):
            steps = {name: start[name] - end[name] for name in start}
            towards = sum(steps[name].flatten() @ model[f"out.{name}.weight"] for name in steps)
            gradients = _carried_back(task, model, client.train.images, e, towards)
            messages.append(gradients | {"hidden": h} | {f"step.{name}": step for name, step in steps.items()})
        return messages

    def aggregate(self, task: Task, server: Server, messages: list[State], cohort: Sequence[Client], round: int) -> Server:
        model, local = dict(server["model"]), task.schedule.local
        rates = {"encoder": local.decayed(self.encoder_lr, round), "trunk": local.decayed(self.hyper_lr, round)}
        weights = torch.tensor(sizes(cohort)).to(messages[0]["hidden"])
        weights = weights / weights.sum()
        hidden = torch.stack([message["hidden"] for message in messages]) * weights[:, None]
        for name, tensor in model.items():
            group, own = name.split(".", 1)
            if group == "out":
                steps = torch.stack([message[f"step.{own.rpartition('.')[0]}"].flatten() for message in messages])
                gradient = steps.T @ hidden if own.endswith(".weight") else weights @ steps
            else:
                gradient = sum(weight * message[name] for weight, message in zip(weights, messages, strict=True))
            model[name] = tensor - rates.get(group, rates["trunk"]) * gradient
        return server | {"model": model}


def hidden_of(task: Task, model: State, images: Tensor) -> Tensor:
    """The hypernetwork's hidden vector [100] for a client's images uint8 [n, C, H, W]."""
    return _hidden(model, embedding_of(task, model, images))


@torch.no_grad()
def embedding_of(task: Task, model: State, images: Tensor) -> Tensor:
    """The embedding [32] of a client: the mean over its images."""
    encoder, state = _encoder(task.model), part(model, "encoder.")
    return sum(functional_call(encoder, state, (task.inputs(batch),)).sum(0) for batch in images.split(BATCH)) / len(images)


def _hidden(model: State, embedding: Tensor) -> Tensor:
    with torch.device("meta"):
        trunk = _trunk()
    return functional_call(trunk, part(model, "trunk."), (embedding,))


def _carried_back(task: Task, model: State, images: Tensor, embedding: Tensor, towards: Tensor) -> State:
    """Gradients of <hidden vector, towards> by ``trunk.*`` and ``encoder.*``. Images are encoded again, a batch at a time: the mean is
    linear, so that all of a client's activations need never be held at once."""
    moving = {n: t.detach().requires_grad_() for n, t in model.items() if not n.startswith("out.")}
    leaf = embedding.detach().requires_grad_()
    (_hidden(moving, leaf) @ towards).backward()
    encoder, state = _encoder(task.model), part(moving, "encoder.")
    for batch in images.split(BATCH):
        (functional_call(encoder, state, (task.inputs(batch),)).sum(0) @ leaf.grad / len(images)).backward()
    return {name: tensor.grad for name, tensor in moving.items()}


def written(network: Net, model: State, hidden: Tensor) -> State:
    """The network's state that the hypernetwork writes from a hidden vector."""
    own = network.named_parameters()
    return {name: (model[f"out.{name}.weight"] @ hidden + model[f"out.{name}.bias"]).view(tensor.shape) for name, tensor in own}


def _encoder(network: Net, device: str | None = "meta") -> nn.Module:
    """The body of the network (of an MLP: its first layer), then a linear layer to the embedding, on ``device``: by default one without
    weights, whose initialisation draws nothing."""
    body = network.extractor[:3] if isinstance(network, MLP) else body_of(network)
    width = network.extractor[1].out_features if isinstance(network, MLP) else body_width(network)
    return nn.Sequential(copy.deepcopy(body), nn.Linear(width, EMBEDDING, device=device))


def _trunk() -> nn.Module:
    layers: list[nn.Module] = [nn.Linear(EMBEDDING, HIDDEN)]
    for _ in range(3):
        layers += [nn.ReLU(), nn.Linear(HIDDEN, HIDDEN)]
    return nn.Sequential(*layers)
