"""FedTHE's Algorithm 2 as the published code runs it: batch by batch, autograd and torch.optim.Adam on two logits per sample."""

import torch
from torch.nn.functional import cosine_similarity


def past_of(features, alpha, rule, batch_size):
    """The history used for each sample, one after the other."""
    used, state = [], features[0]
    for i, z in enumerate(features):
        if rule == "exclusive":
            used.append(state)
            state = alpha * z + (1 - alpha) * state
        else:
            if i > 0 and (rule == "inclusive" or i % batch_size):
                state = alpha * z + (1 - alpha) * state
            used.append(state)
    return torch.stack(used)


def entropy(logits):
    q = logits.softmax(-1)
    return -(q * q.log()).sum(-1)


def ensemble(
    features,
    global_logits,
    personal_logits,
    global_descriptor,
    personal_descriptor,
    *,
    history_rule="code",
    batch_size=32,
    alpha=0.1,
    beta=0.3,
    lr=0.1,
    steps=20,
    early_stop=False,
    weighting="similarity",
    shared=False,
    compounded=False,
):
    """weights [n] of the global head, blended logits [n, C], history [n, d]."""
    past = past_of(features, alpha, history_rule, batch_size)
    weights, blended = [], []
    for start in range(0, len(features), batch_size):
        rows = range(start, min(start + batch_size, len(features)))
        logits = torch.ones(1 if shared else len(rows), 2, dtype=features.dtype, requires_grad=True)
        optimizer = torch.optim.Adam([logits], lr=lr)

        def blend(i, logits=logits, start=start):
            e = logits[0 if shared else i - start].softmax(0)
            return e, e[0] * global_logits[i] + e[1] * personal_logits[i]

        smoothed = features
        for step in range(steps):
            if step == 0 or compounded:
                smoothed = beta * smoothed + (1 - beta) * past
            losses = []
            for i in rows:
                e, y = blend(i)
                distances = torch.stack([(smoothed[i] - global_descriptor).norm(), (smoothed[i] - personal_descriptor).norm()])
                s = cosine_similarity(global_logits[i].softmax(0), personal_logits[i].softmax(0), dim=0, eps=1e-6)
                s = {"similarity": s, "alignment": 0.0, "entropy": 1.0, "half": 0.5}[weighting]
                losses.append(s * entropy(y) + (1 - s) * (e * distances).sum())
            optimizer.zero_grad()
            (sum(losses) / len(losses)).backward()
            if early_stop and logits.grad.norm() < 1e-5:
                break
            optimizer.step()
        for i in rows:
            e, y = blend(i)
            weights.append(e[0].detach())
            blended.append(y.detach())
    return torch.stack(weights), torch.stack(blended), past
