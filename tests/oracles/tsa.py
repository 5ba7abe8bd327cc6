"""TSA's ensemble weight sample by sample, with torch.optim.Adam on two logits."""

import torch


def weight(global_logits, personal_logits, lr, steps):
    """global_logits, personal_logits: [2, C], the heads' logits of the two views of one sample."""
    a = torch.ones(2, dtype=global_logits.dtype, requires_grad=True)
    optimizer = torch.optim.Adam([a], lr=lr)
    for _ in range(steps):
        e = a.softmax(0)
        first, second = ((e[0] * g + e[1] * p).softmax(0) for g, p in zip(global_logits, personal_logits, strict=True))
        optimizer.zero_grad()
        (-(first @ second) / (first.norm() * second.norm())).backward()
        optimizer.step()
    return a.detach().softmax(0)[0].item()
