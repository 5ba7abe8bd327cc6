"""ATP with batch-norm layers whose running statistics are parameters, so that autograd gives every gradient; one module at a time."""

import copy

import torch
from torch import nn


class PlainBatchNorm(nn.Module):
    """Batch norm in evaluation mode written out, keeping the mean and variance of its latest input."""

    def __init__(self, layer):
        super().__init__()
        self.running_mean = nn.Parameter(layer.running_mean.clone())
        self.running_var = nn.Parameter(layer.running_var.clone())
        self.weight = nn.Parameter(layer.weight.detach().clone())
        self.bias = nn.Parameter(layer.bias.detach().clone())
        self.eps = layer.eps

    def forward(self, x):
        channels = [x[:, c].detach().reshape(-1) for c in range(x.shape[1])]
        self.batch_mean = torch.stack([values.sum() / len(values) for values in channels])
        self.batch_var = torch.stack([((values - values.sum() / len(values)) ** 2).sum() / (len(values) - 1) for values in channels])
        shape = (1, -1) + (1,) * (x.dim() - 2)
        mean, variance, weight, bias = (t.view(shape) for t in (self.running_mean, self.running_var, self.weight, self.bias))
        return (x - mean) / torch.sqrt(variance + self.eps) * weight + bias


def with_plain_batch_norm(model):
    """A copy of ``model`` in which every batch-norm layer is plain; its parameters, in order, are ATP's modules."""
    model = copy.deepcopy(model).eval()
    for name, layer in list(model.named_modules()):
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            parent = model.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], PlainBatchNorm(layer))
    return model


def directions(model, images):
    plain = with_plain_batch_norm(model)
    probabilities = torch.softmax(plain(images), 1)
    entropy = sum(-(p * torch.log(p)).sum() for p in probabilities) / len(images)
    names = [name for name, _ in plain.named_parameters()]
    result = dict(zip(names, [-g for g in torch.autograd.grad(entropy, list(plain.parameters()))], strict=True))
    for name, layer in plain.named_modules():
        if isinstance(layer, PlainBatchNorm):
            result[f"{name}.running_mean"] = layer.batch_mean - layer.running_mean.detach()
            result[f"{name}.running_var"] = layer.batch_var - layer.running_var.detach()
    return result


def moved(model, rates, images, clamp=True):
    """Loss-ready copy of ``model`` at its adapted modules, and the directions."""
    plain, steps = with_plain_batch_norm(model), directions(model, images)
    with torch.no_grad():
        for rate, (name, parameter) in zip(rates, plain.named_parameters(), strict=True):
            parameter.add_(rate * steps[name])
            if clamp and name.endswith("running_var"):
                parameter.clamp_(min=0)
    return plain, steps


def refine(model, rates, images, labels, lr, power=0.5):
    """One step of the rates; the gradient of a module with n elements is divided by n to the ``power``."""
    plain, steps = moved(model, rates, images)
    loss = nn.functional.cross_entropy(plain(images), labels)
    result = []
    for rate, (name, parameter) in zip(rates, plain.named_parameters(), strict=True):
        gradient = torch.autograd.grad(loss, parameter, retain_graph=True)[0]
        result.append(rate - lr * (steps[name] * gradient).sum() / parameter.numel() ** power)
    return torch.stack(result)
