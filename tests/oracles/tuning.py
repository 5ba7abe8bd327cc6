"""Per-sample tuning as published: copy the module, a few steps of torch.optim on fresh views, predict, throw the copy away."""

import copy

import torch

from fedlib.augment.augmix import views as augmix_views


def entropy_of_the_mean(probabilities):
    mean = probabilities.mean(0)
    return -(mean * mean.log()).sum()


def tune(task, module, stream, forward, optimizer_of, *, steps, n_views):
    """Scores [n, C]; forward(module, inputs, i) -> logits of sample i's views, optimizer_of(parameters) -> a torch optimizer."""
    scores = []
    for i, image in enumerate(stream.images):
        tuned = copy.deepcopy(module).eval()
        optimizer = optimizer_of(tuned.parameters())
        generator = task.generator("views", stream.client, stream.column, stream.draw, i)
        for _ in range(steps):
            how = task.transform
            views = augmix_views(image[None], n_views, [generator], mean=how.mean, std=how.std, pad=how.pad, flip=how.flip)
            inputs = views[0].to(task.dtype)
            optimizer.zero_grad()
            entropy_of_the_mean(forward(tuned, inputs, i).softmax(1)).backward()
            optimizer.step()
        with torch.no_grad():
            scores.append(forward(tuned, task.inputs(image[None]), i)[0])
    return torch.stack(scores)


def tune_with_one_optimizer(task, module, stream, optimizer_of, *, steps, n_views):
    """Scores [n, C]: one module whose parameters are restored after every sample, and one optimizer that lives through the stream."""
    how, scores = task.transform, []
    tuned = copy.deepcopy(module).eval()
    saved, optimizer = copy.deepcopy(tuned.state_dict()), optimizer_of(tuned.parameters())
    for i, image in enumerate(stream.images):
        generator = task.generator("views", stream.client, stream.column, stream.draw, i)
        for _ in range(steps):
            views = augmix_views(image[None], n_views, [generator], mean=how.mean, std=how.std, pad=how.pad, flip=how.flip)
            optimizer.zero_grad()
            entropy_of_the_mean(tuned(views[0].to(task.dtype)).softmax(1)).backward()
            optimizer.step()
        with torch.no_grad():
            scores.append(tuned(task.inputs(image[None]))[0])
        tuned.load_state_dict(saved)
    return torch.stack(scores)


def probe_and_tune(task, module, stream, *, head_steps, steps, n_views, lr, weight_decay):
    """Scores [n, C]: ``head_steps`` with everything but the head frozen by requires_grad, then ``steps`` on all parameters."""
    how, scores = task.transform, []
    for i, image in enumerate(stream.images):
        tuned = copy.deepcopy(module).eval()
        generator = task.generator("views", stream.client, stream.column, stream.draw, i)
        optimizer = torch.optim.SGD(tuned.parameters(), lr, weight_decay=weight_decay)
        for step in range(head_steps + steps):
            tuned.extractor.requires_grad_(step >= head_steps)
            views = augmix_views(image[None], n_views, [generator], mean=how.mean, std=how.std, pad=how.pad, flip=how.flip)
            optimizer.zero_grad()
            entropy_of_the_mean(tuned(views[0].to(task.dtype)).softmax(1)).backward()
            optimizer.step()
        with torch.no_grad():
            scores.append(tuned(task.inputs(image[None]))[0])
    return torch.stack(scores)
