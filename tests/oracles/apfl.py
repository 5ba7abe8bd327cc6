"""APFL's personal phase as published: two modules, torch.optim, gradients accumulated in .grad."""

import copy

import torch
from torch.nn.functional import cross_entropy


def update_alpha(alpha, local_params, personal_params, local_grads, personal_grads, lr):
    slope = 0.02 * alpha
    for u, v, grad_u, grad_v in zip(local_params, personal_params, local_grads, personal_grads, strict=True):
        slope += (v - u) * (alpha * grad_v + (1 - alpha) * grad_u)
    return min(1.0, max(0.0, alpha - lr * slope))


def fit(task, received, own, alpha, samples, steps, local, swapped=True):
    """States u and v after ``steps`` of one epoch each, and alpha; swapped: alpha weighs u in the mixture."""
    models = []
    for state in (received, own):
        models.append(copy.deepcopy(task.model).train())
        models[-1].load_state_dict(state)
    u, v = models
    rule = lambda m: torch.optim.SGD(m.parameters(), local.lr, local.momentum, weight_decay=local.weight_decay)  # noqa: E731
    u_optimizer, v_optimizer = rule(u), rule(v)
    for i, step in enumerate(steps):
        x = task.transform.normalise(task.transform.augmented(samples.images[step.index], step.draws), task.dtype)
        y = samples.labels[step.index]
        u_optimizer.zero_grad()
        cross_entropy(u(x), y).backward()
        u_optimizer.step()
        v_optimizer.zero_grad()
        share = alpha if swapped else 1 - alpha
        cross_entropy(share * u(x) + (1 - share) * v(x), y).backward()
        v_optimizer.step()
        if i % (len(steps) // local.epochs) == 0:
            flat = [torch.cat([getattr(p, a).flatten() for p in m.parameters()]).tolist() for a in ("data", "grad") for m in (u, v)]
            alpha = update_alpha(alpha, *flat, local.lr)
    return u.state_dict(), v.state_dict(), alpha
