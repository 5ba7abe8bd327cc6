"""UPFL's meta-training and label-free steps for one client: plain autograd on dictionaries, batch by batch, gradients by torch alone."""

import math

import torch
from torch.nn.functional import cross_entropy, kl_div


def network(model, weights, inputs):
    return torch.func.functional_call(model, weights, (inputs,))


def judge(adaptation, logits):
    """Three hidden layers with ReLU, one output per row."""
    for i in (0, 2, 4):
        logits = torch.relu(logits @ adaptation[f"layers.{i}.weight"].T + adaptation[f"layers.{i}.bias"])
    return (logits @ adaptation["layers.6.weight"].T + adaptation["layers.6.bias"]).squeeze(1)


def norm(values):
    return torch.sqrt(sum(v * v for v in values) + 1e-12)


def clip(gradients, limit):
    total = math.sqrt(sum(float((g * g).sum()) for g in gradients.values()))
    return {n: g * min(1.0, limit / (total + 1e-6)) for n, g in gradients.items()}


def meta_gradients(model, weights, adaptation, inputs, labels, *, inner_lr, weight_decay, mu, received):
    """Loss, and its gradients in the network and in the adaptation model, unclipped."""
    w = {n: t.clone().requires_grad_() for n, t in weights.items()}
    a = {n: t.clone().requires_grad_() for n, t in adaptation.items()}
    before = network(model, w, inputs)
    inner = torch.autograd.grad(norm(judge(a, before)), list(w.values()), create_graph=True)
    moved = {n: t - inner_lr * (g + weight_decay * t) for (n, t), g in zip(w.items(), inner, strict=True)}
    loss = cross_entropy(network(model, moved, inputs), labels)
    if mu:
        teacher = network(model, received, inputs).softmax(1)
        loss = loss + mu * kl_div(before.log_softmax(1), teacher, reduction="batchmean")
    gradients = torch.autograd.grad(loss, [*w.values(), *a.values()], allow_unused=True, materialize_grads=True)
    return loss.detach(), dict(zip(w, gradients[: len(w)], strict=True)), dict(zip(a, gradients[len(w) :], strict=True))


def meta_train(task, weights, adaptation, samples, steps, rates, *, mu=0.0, received=None):
    """Both models after all steps of one client in round 1."""
    local, momentum = task.schedule.local, {n: torch.zeros_like(t) for n, t in adaptation.items()}
    for step in steps:
        inputs = task.inputs(task.transform.augmented(samples.images[step.index], step.draws))
        options = {"inner_lr": rates.inner, "weight_decay": local.weight_decay, "mu": mu, "received": received}
        _, u, v = meta_gradients(task.model, weights, adaptation, inputs, samples.labels[step.index], **options)
        u, v = clip(u, local.clip), clip(v, local.clip)
        weights = {n: t - rates.outer * (u[n] + local.weight_decay * t) for n, t in weights.items()}
        momentum = {n: rates.momentum * momentum[n] + v[n] + local.weight_decay * t for n, t in adaptation.items()}
        adaptation = {n: t - rates.adaptation * momentum[n] for n, t in adaptation.items()}
    return weights, adaptation


def entropy(logits):
    """Mean entropy in bits, row by row."""
    rows = [-sum(p * math.log2(p) for p in row.softmax(0).tolist() if p > 0) for row in logits]
    return sum(rows) / len(rows)


def steps_on_client(task, weights, batches, loss, lr, n_steps):
    """Networks 0..n_steps of label-free descent; loss(logits) of a batch; the mean over batches is descended."""
    path, local = [weights], task.schedule.local
    for _ in range(n_steps):
        w = {n: t.clone().requires_grad_() for n, t in path[-1].items()}
        total = sum(loss(network(task.model, w, batch)) for batch in batches) / len(batches)
        gradients = clip(dict(zip(w, torch.autograd.grad(total, list(w.values())), strict=True)), local.clip)
        path.append({n: t - lr * (gradients[n] + local.weight_decay * t) for n, t in path[-1].items()})
    return path


def early_stop(entropies, patience, max_steps, allow_step0=True):
    """The step that FedTTA++ keeps, given the entropy at every step."""
    best, kept, failures = math.inf, 0, 0
    for t, value in enumerate(entropies[: max_steps if allow_step0 else max_steps + 1]):
        if failures >= patience:
            break
        if t == 0 and not allow_step0:
            continue
        if value < best:
            best, kept, failures = value, t, 0
        else:
            failures += 1
    return kept
