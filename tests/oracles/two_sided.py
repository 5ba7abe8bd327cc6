"""Personal phases with a loss that reads more than one model's logits: Ditto and FedRoD as bare loops over torch.optim.SGD."""

import copy

import torch
from torch import nn
from torch.nn.functional import cross_entropy


def _module(task, state):
    model = copy.deepcopy(task.model).train()
    model.load_state_dict(state)
    return model


def _batches(task, samples, steps):
    for step in steps:
        images = task.transform.augmented(samples.images[step.index], step.draws)
        yield task.transform.normalise(images, task.dtype), samples.labels[step.index]


def ditto(task, own, received, samples, steps, local, strength):
    """State of the personal model; strength 0 leaves the proximal gradient out."""
    model, anchor = _module(task, own), _module(task, received)
    optimizer = torch.optim.SGD(model.parameters(), local.lr, local.momentum)
    for x, y in _batches(task, samples, steps):
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        for p, q in zip(model.parameters(), anchor.parameters(), strict=True):
            p.grad += strength * (p.data - q.data)
        optimizer.step()
    return model.state_dict()


def fedrod(task, received, head, samples, steps, local):
    """State of the tuned model, and weight and bias of the personal head."""
    model = _module(task, received)
    personal = nn.Linear(head[0].shape[1], head[0].shape[0], dtype=task.dtype)
    with torch.no_grad():
        personal.weight.copy_(head[0])
        personal.bias.copy_(head[1])
    groups = [{"params": list(model.parameters()), "weight_decay": local.weight_decay}, {"params": list(personal.parameters())}]
    optimizer = torch.optim.SGD(groups, local.lr, local.momentum)
    prior = (torch.bincount(samples.labels, minlength=task.n_classes).to(task.dtype) + 1).log()
    for x, y in _batches(task, samples, steps):
        optimizer.zero_grad()
        features = model.extractor(x)
        logits = model.head(features)
        corrected = logits.detach() + personal(features.detach())
        (cross_entropy(logits + prior, y) + cross_entropy(corrected, y)).backward()
        optimizer.step()
    return model.state_dict(), [p.detach() for p in personal.parameters()]
