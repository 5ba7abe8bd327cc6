"""FedTHE's personal head as a bare loop: torch.optim.SGD on a linear layer over features of a frozen extractor in training mode."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy


def fit(task, model, samples, steps, local, weight):
    """Head weight after ``steps`` and the mean feature of the last epoch; ``model`` is a module in training mode."""
    head = nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=weight.dtype)
    with torch.no_grad():
        head.weight.copy_(weight)
    optimizer = torch.optim.SGD(head.parameters(), lr=local.lr, momentum=local.momentum, weight_decay=local.weight_decay)
    met = []
    for step in steps:
        images = task.transform.augmented(samples.images[step.index], step.draws)
        with torch.no_grad():
            features = model.extractor(task.transform.normalise(images, task.dtype))
        optimizer.zero_grad()
        cross_entropy(head(features), samples.labels[step.index]).backward()
        optimizer.step()
        met.append(features)
    last_epoch = torch.cat(met[-len(met) // local.epochs :])
    return head.weight.detach(), last_epoch.mean(0)
