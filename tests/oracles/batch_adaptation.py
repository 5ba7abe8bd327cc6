"""ATP's gradient baselines on deep copies with torch's own layers, modes and optimisers, batch after batch."""

import copy

import torch
from torch import nn
from torch.func import functional_call

from tests.oracles.atp import PlainBatchNorm, moved, with_plain_batch_norm

NORMS = nn.BatchNorm1d | nn.BatchNorm2d


def loaded(task, state):
    model = copy.deepcopy(task.model)
    model.load_state_dict(state)
    return model.eval()


def entropy(logits):
    p = torch.softmax(logits, 1)
    return -(p * torch.log(p)).sum(1).mean()


def split(task, stream, size):
    return [task.inputs(stream.images[start : start + size]) for start in range(0, len(stream), size)]


class MixedBatchNorm(PlainBatchNorm):
    """Normalises with a mixture of running and batch statistics, both of its own input."""

    share = 1.0

    def forward(self, x):
        super().forward(x)
        shape = (1, -1) + (1,) * (x.dim() - 2)
        mean = self.share * self.running_mean + (1 - self.share) * self.batch_mean
        variance = self.share * self.running_var + (1 - self.share) * self.batch_var
        return (x - mean.view(shape)) / torch.sqrt(variance.view(shape) + self.eps) * self.weight.view(shape) + self.bias.view(shape)


def bn_adapt(task, state, stream, batch_size, prior):
    model = loaded(task, state)
    for name, layer in list(model.named_modules()):
        if isinstance(layer, NORMS):
            mixed = MixedBatchNorm(layer)
            mixed.share = prior / (prior + batch_size)
            setattr(model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2], mixed)
    with torch.no_grad():
        return torch.cat([model(x) for x in split(task, stream, batch_size)])


def online(task, state, stream, batch_size, names, loss, optimizer):
    """Train-mode batch norm without running statistics; ``names`` move after each answer."""
    model = loaded(task, state)
    for layer in model.modules():
        if isinstance(layer, NORMS):
            layer.train()
            layer.track_running_stats, layer.running_mean, layer.running_var = False, None, None
    parameters = dict(model.named_parameters())
    steps = optimizer([parameters[name] for name in names])
    answers = []
    for x in split(task, stream, batch_size):
        features = model.extractor(x)
        logits = model.head(features)
        answers.append(logits.detach())
        steps.zero_grad()
        loss(features, logits).backward()
        steps.step()
    return torch.cat(answers)


def information(features, logits, beta):
    p = torch.softmax(logits, 1)
    q = p.mean(0)
    value = entropy(logits) + sum(share * torch.log(share + 1e-9) for share in q)
    prototypes = [sum(p[i, c].detach() * features[i].detach() for i in range(len(p))) / p[:, c].detach().sum() for c in range(p.shape[1])]
    nearest = [min(range(len(prototypes)), key=lambda c: (f.detach() - prototypes[c]).norm().item()) for f in features]
    return value + beta * nn.functional.cross_entropy(logits, torch.tensor(nearest))


def surgical(task, state, stream, batch_size, names, lr):
    answers = []
    for x in split(task, stream, batch_size):
        model = loaded(task, state)
        parameters = dict(model.named_parameters())
        steps = torch.optim.SGD([parameters[name] for name in names], lr)
        entropy(model(x)).backward()
        steps.step()
        answers.append(model(x).detach())
    return torch.cat(answers)


def memo(task, state, views_of, stream, lr):
    """views_of(i): network inputs of the copies of image i."""
    answers = []
    for i in range(len(stream)):
        model = loaded(task, state)
        p = torch.softmax(model(views_of(i)), 1).mean(0)
        (-(p * torch.log(p)).sum()).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= lr * parameter.grad
            answers.append(model(task.inputs(stream.images[i : i + 1])))
    return torch.cat(answers)


def atp(task, state, rates, stream, batch_size, online):
    """ATP on running statistics that are parameters: batch, or the average of the adapted tensors so far."""
    answers, history = [], []
    for x in split(task, stream, batch_size):
        model, _ = moved(loaded(task, state), rates, x)
        history.append({name: p.detach() for name, p in model.named_parameters()})
        used = {n: sum(h[n] for h in history) / len(history) for n in history[0]} if online else history[-1]
        with torch.no_grad():
            answers.append(functional_call(with_plain_batch_norm(task.model), used, (x,)))
    return torch.cat(answers)
