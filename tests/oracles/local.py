"""Local training of one client as a bare PyTorch loop: nn.Module, torch.optim, the same planned minibatches."""

import copy

import torch
from torch.nn.functional import cross_entropy


def train(
    task, state, samples, steps, local, *, loss=cross_entropy, trainable=lambda name: True, weight_decayed=lambda name: True, rates=None
):
    """State of a copy of the task's network after ``steps``; loss(logits, labels) -> scalar; rates: one per step."""
    model = copy.deepcopy(task.model).train()
    model.load_state_dict(state)
    groups = [{"params": [p], "weight_decay": local.weight_decay * weight_decayed(n)} for n, p in model.named_parameters() if trainable(n)]
    if local.optimizer == "adam":
        optimizer = torch.optim.Adam(groups, lr=local.lr)
    else:
        optimizer = torch.optim.SGD(groups, lr=local.lr, momentum=local.momentum)
    for i, step in enumerate(steps):
        for group in optimizer.param_groups:
            group["lr"] = rates[i] if rates else local.lr
        images = task.transform.augmented(samples.images[step.index], step.draws)
        inputs = task.transform.normalise(images, task.dtype)
        optimizer.zero_grad()
        loss(model(inputs), samples.labels[step.index]).backward()
        if local.clip is not None:
            torch.nn.utils.clip_grad_norm_([p for group in groups for p in group["params"]], local.clip)
        optimizer.step()
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
