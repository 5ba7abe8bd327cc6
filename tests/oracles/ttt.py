"""TTT as published: a deep copy of the network beside a rotation head, torch.optim, every copy of a sample computed."""

import copy

import torch
from torch import nn
from torch.nn.functional import cross_entropy


def turned(images, labels):
    """Each image turned counter-clockwise by 90 degrees, label times."""
    result = []
    for image, label in zip(images, labels.tolist(), strict=True):
        for _ in range(label):
            image = image.transpose(1, 2).flip(1)
        result.append(image)
    return torch.stack(result)


def modules(task, state, head):
    """The network with ``state`` and a rotation head with weight and bias ``head``, in training mode."""
    model = copy.deepcopy(task.model).train()
    model.load_state_dict(state)
    rotation = nn.Linear(head[0].shape[1], 4, dtype=head[0].dtype)
    with torch.no_grad():
        rotation.weight.copy_(head[0])
        rotation.bias.copy_(head[1])
    return model, rotation


def fit(task, state, head, samples, steps, local, generator):
    """State and head after a phase; generator draws the turns of each batch."""
    model, rotation = modules(task, state, head)
    groups = [{"params": list(model.parameters()), "weight_decay": local.weight_decay}, {"params": list(rotation.parameters())}]
    optimizer = torch.optim.SGD(groups, lr=local.lr, momentum=local.momentum)
    for step in steps:
        x = task.transform.normalise(task.transform.augmented(samples.images[step.index], step.draws), task.dtype)
        y = samples.labels[step.index]
        turns = torch.randint(4, (len(y),), generator=generator)
        optimizer.zero_grad()
        (cross_entropy(model(x), y) + cross_entropy(rotation(model.extractor(turned(x, turns))), turns)).backward()
        optimizer.step()
    return model.state_dict(), [p.detach() for p in rotation.parameters()]


def adapt(task, state, head, images, generator, *, copies, steps, lr, online):
    """Scores [n, C] of a stream of uint8 images; batch norm keeps its statistics."""

    def fresh():
        model, rotation = modules(task, state, head)
        for layer in model.modules():
            layer.train(not isinstance(layer, nn.BatchNorm2d))
        return model, rotation

    model, rotation = fresh()
    scores = []
    for image in images:
        if not online:
            model, rotation = fresh()
        optimizer = torch.optim.SGD([*model.parameters(), *rotation.parameters()], lr=lr)
        x = task.transform.normalise(image[None], task.dtype)
        for _ in range(steps):
            turns = torch.randint(4, (copies,), generator=generator)
            optimizer.zero_grad()
            cross_entropy(rotation(model.extractor(turned(x.repeat(copies, 1, 1, 1), turns))), turns).backward()
            optimizer.step()
        with torch.no_grad():
            scores.append(model(x))
    return torch.cat(scores)
